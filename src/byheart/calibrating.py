"""The gate fitted to held-out questions, and what a risk is promised on.

Owns asking every route each question, and which questions are new to memory. Part of the composition root; `asking`
answers for it, `routing` keeps what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byheart.asking import BATCH, Asking
from byheart.decisions import Evidence, Wishes
from byheart.errors import BusyError, ConfigError
from byheart.facts import MEMORY_CALIBRATION
from byheart.gate.gate import Gate
from byheart.gate.risk import Outcomes
from byheart.reader.wording import answer_key
from byheart.reports import Calibrated, Progress
from byheart.routing import GATE, GateRouter, parameters, read_gate, write_gate
from byheart.text.question_keys import question_key
from byheart.types import Kind, Question, Route

LEAST_QUESTIONS = 30


@dataclass(frozen=True, slots=True)
class Seen:
    """What memory and gate say of the questions before anything is read.

    Attributes:
        evidence: As the gate sees them.
        recalled: Whether memory's answer is right.
        learned: Whether memory learned the question word for word.
        gate: The gate in use.
        rows: The parameters that must not change meanwhile.
    """

    evidence: Sequence[Evidence]
    recalled: list[bool]
    learned: Sequence[bool]
    gate: Gate
    rows: list[tuple[str, str]]


def calibrate(
    asking: Asking,
    questions: Sequence[Question],
    gold: Sequence[Sequence[str]],
    progress: Progress,
    choices: int = 1,
) -> Calibrated:
    """Fit the gate to held-out questions, and keep it, with how memory did on them, as a new epoch.

    Args:
        asking: The knowledge base, as it is asked.
        questions: Questions that nothing was trained on, as they come in use.
        gold: Accepted answers of each; none where only abstaining is right.
        progress: Told of every batch.
        choices: How many calibrations of memory these questions have chosen from; a promised risk pays for that.

    Returns:
        How often each route was right.

    Raises:
        ConfigError: There are too few questions, or no facts.
        QuestionError: The reader cannot take a question; the error says which.
        BusyError: Gate or memory was trained or calibrated meanwhile; nothing was kept.
    """
    if not asking.facts.is_used():
        raise ConfigError("calibrating needs facts in memory, there is none; learn facts first: byheart learn")
    if len(questions) < LEAST_QUESTIONS:
        raise ConfigError(f"calibrating needs {LEAST_QUESTIONS} held-out questions, got {len(questions)}; pass more")
    asking.check(questions)
    seen = _seen(asking, questions, gold)
    right = {Route.MEMORY: seen.recalled, **_read(asking, questions, gold, seen, progress)}
    gate, outcomes = seen.gate.calibrated(seen.evidence, right), outcomes_of(questions, seen, choices)
    with asking.database.write() as connection:
        if parameters(connection, (GATE, MEMORY_CALIBRATION)) != seen.rows:
            raise BusyError("gate or memory was changed while it was calibrated; nothing was kept, calibrate again")
        lowest = write_gate(connection, gate, seen.evidence, outcomes)
    shares = {route.value: sum(marks) / len(questions) for route, marks in right.items()}
    n, n_new = len(outcomes.scores), sum(outcomes.is_new)
    return Calibrated(len(questions), n, n_new, shares, lowest, asking.database.epoch)


def outcomes_of(questions: Sequence[Question], seen: Seen, choices: int) -> Outcomes:
    """Return how memory did on the questions for which it had a candidate, and which of them are new to it."""
    rows, asked = [], set[tuple[Kind, str]]()
    for question, found, right, learned in zip(questions, seen.evidence, seen.recalled, seen.learned, strict=True):
        key = question.kind, question_key(question.text)
        if found.candidates:
            rows.append((found.probability, right, not learned and key not in asked))
        asked.add(key)
    scores, right_ones, is_new = zip(*rows, strict=True) if rows else ((), (), ())
    return Outcomes(scores, right_ones, is_new, choices)


def is_right(text: str | None, gold: Sequence[str]) -> bool:
    """Return whether an answer is one of the accepted ones, up to case, articles and outer punctuation."""
    return text is not None and answer_key(text) in {answer_key(answer) for answer in gold}


def _seen(asking: Asking, questions: Sequence[Question], gold: Sequence[Sequence[str]]) -> Seen:
    """Return what is known before anything is read, all of one epoch."""
    queries = asking.encoder().encode_queries([question.text for question in questions])
    with asking.database.read() as connection:
        recalls = asking.facts.recall_held(questions, queries)  # not `recall`: what is measured is no use
        return Seen(
            evidence=GateRouter(connection, Wishes()).evidence(questions, recalls),
            recalled=[is_right(recall.answer, given) for recall, given in zip(recalls, gold, strict=True)],
            learned=asking.facts.are_learned(questions),
            gate=read_gate(connection),
            rows=parameters(connection, (GATE, MEMORY_CALIBRATION)),
        )


def _read(
    asking: Asking, questions: Sequence[Question], gold: Sequence[Sequence[str]], seen: Seen, progress: Progress
) -> dict[Route, list[bool]]:
    """Return whether what is read is right, with recalled facts and without, per question.

    Where both are asked the gate weighs memory's answer; for each half of the questions it is fitted on the other.
    """
    right = {route: [False] * len(questions) for route in (Route.BOTH, Route.RETRIEVAL)}
    done = 0
    for side in (0, 1):
        others = slice(1 - side, None, 2)
        weighing = seen.gate.calibrated(seen.evidence[others], {Route.MEMORY: seen.recalled[others]})
        places = range(side, len(questions), 2)
        for first in range(0, len(places), BATCH):
            batch = places[first : first + BATCH]
            for route, marks in right.items():
                answers = asking.answer_many([questions[i] for i in batch], Wishes(), [route] * len(batch), weighing)
                for i, answer in zip(batch, answers, strict=True):
                    marks[i] = is_right(answer.text, gold[i])
            done += len(batch)
            progress(done, len(questions), "questions answered")
    return right
