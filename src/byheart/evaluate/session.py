"""Asking a system a suite's questions: in batches, resumable, and one by one against the clock.

Owns what is kept of an answer. Scores nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from byheart.errors import EvaluationError, QuestionError
from byheart.evaluate.bases import Base
from byheart.evaluate.datasets import Task
from byheart.evaluate.measures import Guess
from byheart.evaluate.resume import Output, ResultLog
from byheart.reports import Progress, no_progress
from byheart.types import Answer, Question, Route

log = logging.getLogger(__name__)

BATCH = 32
Train = Callable[[Any, Sequence[Question], Sequence[Sequence[str]], Progress], object]
WARM_UP = 5


def _untrained(*_: object) -> object:
    raise EvaluationError("this suite trains jointly, and was given no training; run it with: byheart evaluate")


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a suite.

    Attributes:
        suite: Name of the suite.
        data: Folder of the data sets.
        base: The system under test.
        identity: All that its outputs depend on.
        work: Folder for what is finished so far.
        seed: Seed of every bootstrap, and of nothing else: two figures over the same questions are paired.
        limit: Questions per split at most, None for all.
        progress: Called with how much is done.
        train: Trains a knowledge base jointly on questions with their answers; suites do not import training.
    """

    suite: str
    data: Path
    base: Base
    identity: dict[str, object]
    work: Path
    seed: int
    limit: int | None = None
    progress: Progress = no_progress
    train: Train = _untrained

    def rng(self) -> np.random.Generator:
        """Return a fresh generator of the session's seed."""
        return np.random.default_rng(self.seed)

    def limited(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the first tasks, as many as the limit allows."""
        return list(islice(tasks, self.limit))

    def split(self, name: str) -> str:
        """Return the name under which a split is reported: one that was cut short does not replace the whole."""
        return name if self.limit is None else f"{name}, first {self.limit}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is kept of an answer.

    Attributes:
        text: The answer, None where the system abstained.
        confidence: Probability of being right, None where the system can't say.
        documents: Documents it rests on: those cited, then those retrieved by rank, each once.
        retrievals: Searches paid for.
        reads: Reader calls paid for.
        prompt_tokens: Tokens read.
    """

    text: str | None
    confidence: float | None
    documents: tuple[str, ...]
    retrievals: int
    reads: int
    prompt_tokens: int

    def guess(self, page: Callable[[str], str]) -> Guess:
        """Return the outcome as KILT scores it; `page` names the page that a document belongs to."""
        return Guess(self.text, tuple(dict.fromkeys(map(page, self.documents))))


def ask(
    session: Session, system: str, tasks: Sequence[Task], *, closed_book: bool = False, route: Route | None = None
) -> list[Outcome]:
    """Return what a system answers; questions finished in an earlier run under the same settings are not asked again.

    A question that the system cannot read counts as one that it does not answer.

    Args:
        session: The run.
        system: Name of the system, part of the log's name.
        tasks: What is asked.
        closed_book: Answer without any passage.
        route: One way for all, None to let the gate decide.

    Returns:
        Outcomes in order.
    """

    def answered(batch: Sequence[Task]) -> list[Output]:
        return [asdict(outcome) for outcome in _outcomes(session.base, batch, closed_book, route)]

    settings = {} if route is None else {"route": route.value}
    return [_read_outcome(output) for output in _finish(session, system, tasks, settings, answered)]


def search(
    session: Session, system: str, tasks: Sequence[Task], k: int, dense_weight: float | None = None
) -> list[tuple[str, ...]]:
    """Return the documents of the `k` best passages per task, best first, each once; resumable as `ask` is.

    Args:
        session: The run.
        system: Name of the system, part of the log's name.
        tasks: What is searched for.
        k: Passages retrieved.
        dense_weight: 0 for BM25 alone, 1 for dense alone, None for the fitted weight.

    Returns:
        Documents per task; fewer than `k` where several passages are of one document.
    """

    def found(batch: Sequence[Task]) -> list[Output]:
        hits = session.base.search_many([task.question for task in batch], k, dense_weight=dense_weight)
        return [{"documents": _documents(hit.passage_id for hit in ranked)} for ranked in hits]

    settings = {"k": k, "dense_weight": dense_weight}
    return [tuple(output["documents"]) for output in _finish(session, system, tasks, settings, found)]


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one question took, asked alone on a warm system.

    Attributes:
        seconds: Wall-clock seconds of the whole call.
        retrieve: Seconds of searching and fetching passages, without encoding; None where nothing was searched.
    """

    seconds: float
    retrieve: float | None


def clock(
    session: Session, tasks: Sequence[Task], *, closed_book: bool = False, route: Route | None = None
) -> list[Timing]:
    """Return how long each task takes when asked alone, after a few that are not counted.

    Args:
        session: The run.
        tasks: What is asked, at least one.
        closed_book: Answer without any passage.
        route: One way for all, None to let the gate decide.

    Returns:
        One timing per task that the system can read.
    """
    timings = []
    warm_up = tasks[:WARM_UP]
    for number, task in enumerate([*warm_up, *tasks]):
        timing = _timing(session.base, task, closed_book, route)
        if timing is not None and number >= len(warm_up):
            timings.append(timing)
        session.progress(number + 1, len(tasks) + len(warm_up), "questions timed")
    return timings


def _timing(base: Base, task: Task, closed_book: bool, route: Route | None) -> Timing | None:
    start = time.perf_counter()
    try:
        answer = base.ask_many([task.question], closed_book=closed_book, route=route)[0]
    except QuestionError:
        return None
    seconds = time.perf_counter() - start
    steps = [step.seconds for step in answer.seconds if step.name == "retrieve"]
    return Timing(seconds, sum(steps) if steps else None)


def _finish(
    session: Session,
    system: str,
    tasks: Sequence[Task],
    settings: Mapping[str, object],
    work: Callable[[Sequence[Task]], list[Output]],
) -> list[Output]:
    """Return one output per task, working on those that the log lacks, a batch at a time."""
    depends_on = {"suite": session.suite, "system": system, **settings, **session.identity}
    with ResultLog(session.work / f"{system}.jsonl", depends_on) as finished:
        missing = [task for task in tasks if task.id not in finished.done]
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            finished.add({task.id: output for task, output in zip(batch, work(batch), strict=True)})
            n_missing = len(missing) - start - len(batch)
            session.progress(len(tasks) - n_missing, len(tasks), f"{session.suite}: {system}")
        return [finished.done[task.id] for task in tasks]


def _outcomes(base: Base, batch: Sequence[Task], closed_book: bool, route: Route | None) -> list[Outcome]:
    """Return one outcome per task; where one cannot be read, each is asked alone, so that the others lose nothing."""
    try:
        answers = base.ask_many([task.question for task in batch], closed_book=closed_book, route=route)
    except QuestionError as error:
        if len(batch) > 1:
            return [outcome for task in batch for outcome in _outcomes(base, [task], closed_book, route)]
        log.warning("question %s counts as not answered: %s", batch[0].id, error)
        return [Outcome(None, None, (), retrievals=0, reads=0, prompt_tokens=0)]
    return [_outcome(answer, closed_book) for answer in answers]


def _outcome(answer: Answer, closed_book: bool) -> Outcome:
    passages = [*(citation.passage_id for citation in answer.citations), *(hit.passage_id for hit in answer.hits)]
    return Outcome(
        text=answer.text,
        confidence=answer.confidence,
        documents=tuple(_documents(passages)),
        retrievals=int(not closed_book and (answer.decision is None or answer.decision.route is Route.RETRIEVAL)),
        reads=int(closed_book or bool(answer.used)),
        prompt_tokens=answer.prompt_tokens,
    )


def _read_outcome(output: dict[str, Any]) -> Outcome:
    return Outcome(**{**output, "documents": tuple(output["documents"])})


def _documents(passage_ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(passage_id.rpartition(":")[0] for passage_id in passage_ids))
