"""Suite `write_rate`: how fast facts are written, recalled and forgotten.

Owns what is timed: 1,000 facts of Natural Questions and PopQA into an empty knowledge base with its networks loaded,
three times over. Writing includes encoding and reading back; recall is one question at a time, from text to answer and
citation; forgetting includes that the text leaves the file.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byheart.errors import EvaluationError
from byheart.evaluate import intervals
from byheart.evaluate.bases import Base, Corpus
from byheart.evaluate.figures import Figure, Subject
from byheart.evaluate.intervals import Interval, binomial
from byheart.evaluate.memory_figures import MEMORY, memorised
from byheart.evaluate.memory_queries import general_facts
from byheart.evaluate.recalling import clock_recalls
from byheart.evaluate.resume import Output, ResultLog
from byheart.evaluate.session import Session
from byheart.evaluate.spares import Spares
from byheart.reports import Progress
from byheart.types import NewFact, Question

WRITTEN = 1_000
RUNS = 3
WARM = 8  # facts written, and forgotten, before the clock starts: networks are loaded then
TIMED = 200
ALONE = 20  # facts forgotten one by one


def corpus(_: Path) -> Corpus:
    """Return no documents: there is nothing to look up."""
    return Corpus("write_rate", (), {})


def measure(session: Session, spares: Spares) -> list[Figure]:
    """Return the suite's figures; runs that were finished before a kill are not repeated.

    Args:
        session: The run.
        spares: Knowledge bases to learn into.

    Returns:
        Facts written and forgotten per second, median, slowest and fastest of three; seconds per recall and step.

    Raises:
        EvaluationError: Memory took too few facts for anything to be timed.
    """
    facts = general_facts(session.data)
    n = min(WRITTEN, session.limit or WRITTEN, len(facts) - WARM)
    depends_on = {"suite": session.suite, "system": "write rate", "facts": n, **session.identity}
    with ResultLog(session.work / "write rate.jsonl", depends_on) as finished:
        for number in range(1, RUNS + 1):
            if f"run {number}" not in finished.done:
                with spares.opened("run", anew=True) as base:
                    timed = _run(base, facts[WARM : WARM + n], facts[:WARM], session.progress)
                finished.add({f"run {number}": timed})
        runs = [finished.done[f"run {number}"] for number in range(1, RUNS + 1)]
    return [*_rate_figures(session, runs), *_recall_figures(session, runs)]


def _run(base: Base, facts: Sequence[NewFact], warm: Sequence[NewFact], progress: Progress) -> Output:
    base.learn(warm)
    base.forget(*(fact.id for fact in base.facts()))
    start = time.perf_counter()
    base.learn(facts, progress)
    written = time.perf_counter() - start
    recalls = clock_recalls(base, [Question.parse(fact.question) for fact in facts[:TIMED]], progress)
    held = memorised(base)
    ids = [fact.id for fact in facts if fact.id in held]
    if len(ids) < 2:
        raise EvaluationError(f"memory took {len(ids)} of {len(facts)} facts; raise the limit, or see why it refuses")
    n_alone = min(ALONE, len(ids) // 2)
    alone = [_seconds(base, [fact_id]) for fact_id in ids[:n_alone]]
    return {
        "facts": len(facts),
        "memorised": len(ids),
        "written": written,
        "recalls": recalls,
        "alone": alone,
        "together": len(ids) - n_alone,
        "forgotten": _seconds(base, ids[n_alone:]),
    }


def _seconds(base: Base, fact_ids: Sequence[str]) -> float:
    start = time.perf_counter()
    base.forget(*fact_ids)
    return time.perf_counter() - start


def _rate_figures(session: Session, runs: Sequence[dict[str, Any]]) -> list[Figure]:
    writing, forgetting = Subject(session, "writing", MEMORY), Subject(session, "forgetting", MEMORY)
    n, taken = int(runs[0]["facts"]), int(runs[0]["memorised"])
    alone = [seconds for run in runs for seconds in run["alone"]]
    return [
        writing.figure("memorised", "share", binomial(taken, n)),
        *_spread(writing, "written_per_second", [run["facts"] / run["written"] for run in runs], n),
        *_spread(
            forgetting,
            "forgotten_per_second",
            [run["together"] / run["forgotten"] for run in runs],
            int(runs[0]["together"]),
        ),
        *_quantiles(forgetting, "forget_seconds", alone),
    ]


def _recall_figures(session: Session, runs: Sequence[dict[str, Any]]) -> list[Figure]:
    timings = [timing for run in runs for timing in run["recalls"]]
    subject = Subject(session, "recall, one question at a time", MEMORY)
    return [
        figure
        for name in timings[0]
        for figure in _quantiles(subject, f"{name}_seconds", [timing[name] for timing in timings])
    ]


def _spread(subject: Subject, name: str, rates: Sequence[float], n: int) -> list[Figure]:
    """Return the median of the runs, and the slowest and the fastest beside it."""
    figures = {name: statistics.median(rates), f"{name}, slowest run": min(rates), f"{name}, fastest run": max(rates)}
    return [
        subject.figure(measure, "facts per second", Interval(rate, None, None, n)) for measure, rate in figures.items()
    ]


def _quantiles(subject: Subject, name: str, seconds: Sequence[float]) -> list[Figure]:
    return [
        subject.figure(
            f"{name}_p{round(100 * share)}", "seconds", intervals.quantile(seconds, share, subject.session.rng())
        )
        for share in (0.5, 0.95)
    ]
