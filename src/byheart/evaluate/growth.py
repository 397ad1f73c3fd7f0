"""What happens to the memory as facts grow: bytes, seconds, and how sure addressing is against what was predicted.

Owns the sizes: 3, 10, 30 and 100 % of all facts, so that a tenth of the two largest was measured before. Facts are
ParaRel's, in two wordings where there are two: one of these is what addressing is asked with.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from byheart.evaluate import intervals
from byheart.evaluate.bases import Base
from byheart.evaluate.figures import Figure, Subject
from byheart.evaluate.intervals import Interval, binomial
from byheart.evaluate.memory_figures import MEMORY
from byheart.evaluate.memory_queries import growing_facts
from byheart.evaluate.recalling import WHOLE, clock_recalls
from byheart.evaluate.resume import Output, ResultLog
from byheart.evaluate.session import Session
from byheart.evaluate.spares import Spares
from byheart.types import FactState, NewFact, Question

LARGEST = 10_000
SHARES = (0.03, 0.1, 0.3, 1.0)
TENTHS = {0.3: 0.03, 1.0: 0.1}
ASKED = 1_000  # facts that `KnowledgeBase.capacity` asks at most
TIMED = 100
BEFORE = "before the clock starts"


def growth_figures(session: Session, spares: Spares, scale: float) -> list[Figure]:
    """Return the figures at each size; sizes that an earlier run finished are not measured again.

    Args:
        session: The run.
        spares: Knowledge bases to learn into.
        scale: Share of 10,000 facts to go up to, where there are as many.

    Returns:
        Per size: bytes per fact, facts written per second, seconds per recall, share of facts that addressing finds,
        and what was predicted of it at a tenth of the size.
    """
    facts = growing_facts(session.data)
    facts = facts[: max(1, round(LARGEST * scale))]
    sizes = {share: max(1, round(share * len(facts))) for share in SHARES}
    depends_on = {"suite": session.suite, "system": "growth", "facts": len(facts), **session.identity}
    with ResultLog(session.work / "growth.jsonl", depends_on) as finished:
        with spares.opened(f"growth-{len(facts)}", anew=not finished.done) as base:
            missing = [size for size in sorted({*sizes.values()}) if str(size) not in finished.done]
            if missing:
                _load(base)
            for size in missing:
                finished.add({str(size): _measured(session, base, facts[:size])})
        held = {share: finished.done[str(size)] for share, size in sizes.items()}
    return [figure for share in SHARES for figure in _figures(session, share, held)]


def _load(base: Base) -> None:
    """Have the networks loaded before the clock starts: learn a fact that is none of the suite's, and forget it."""
    base.learn([NewFact("What is learned before the clock starts?", "This", id=BEFORE)])
    base.forget(*(fact.id for fact in base.facts() if fact.id == BEFORE))


def _measured(session: Session, base: Base, facts: Sequence[NewFact]) -> Output:
    n_before = len(base.facts())
    start = time.perf_counter()
    base.learn(facts, session.progress)
    seconds = time.perf_counter() - start
    listed, found = base.facts(), base.capacity()
    n_asked = sum(fact.state is FactState.MEMORISED and len(fact.questions) > 1 for fact in listed)
    questions = [Question.parse(fact.question) for fact in facts[:TIMED]]
    return {
        "facts": len(facts),
        "memorised": found.memorised,
        "bytes_per_fact": found.bytes_per_fact,
        "new": len(listed) - n_before,
        "seconds": seconds,
        "recalls": [timing[WHOLE] for timing in clock_recalls(base, questions, session.progress)],
        "asked": min(n_asked, ASKED),
        "recall": found.recall,
        "predicted": found.recall_at_ten_times,
    }


def _figures(session: Session, share: float, held: Mapping[float, dict[str, Any]]) -> list[Figure]:
    at = held[share]
    subject = Subject(session, f"growth: {at['facts']:,} facts", MEMORY)
    median = intervals.quantile(at["recalls"], 0.5, session.rng())
    figures = [
        subject.figure("memorised", "share", binomial(at["memorised"], at["facts"])),
        subject.figure("bytes_per_fact", "bytes", _plain(at["bytes_per_fact"], at["memorised"])),
        subject.figure("recall_seconds_p50", "seconds", median),
    ]
    if at["new"]:  # 0 where a run was killed between learning and measuring
        rate = _plain(at["new"] / at["seconds"], at["new"])
        figures.append(subject.figure("written_per_second", "facts per second", rate))
    if at["recall"] is not None:
        found = binomial(round(at["recall"] * at["asked"]), at["asked"])
        figures.append(subject.figure("addressing_recall", "share", found))
    tenth = held.get(TENTHS.get(share, 0))
    if tenth is not None and tenth["predicted"] is not None:
        predicted = _plain(tenth["predicted"], tenth["asked"])
        figures.append(subject.figure("addressing_recall predicted at a tenth", "share", predicted))
    return figures


def _plain(value: float, n: int) -> Interval:
    """Return a figure to which no interval applies."""
    return Interval(value, None, None, n)
