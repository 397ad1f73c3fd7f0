"""Suite `capacity`: what thousands of facts do to the memory.

Owns what is reported of it: ParaRel facts asked in wordings never trained on, beside as many facts that were not
learned; facts of every kind read back word for word; and what a fact costs, and how sure addressing is, as facts grow.
A limit of `n` shrinks 3,000 facts to `n`, and the rest in proportion.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Sequence
from pathlib import Path

from byheart.evaluate.bases import Corpus
from byheart.evaluate.cosine_cache import SYSTEM as CACHE
from byheart.evaluate.cosine_cache import cached
from byheart.evaluate.figures import Figure, Subject
from byheart.evaluate.growth import growth_figures
from byheart.evaluate.intervals import Interval, binomial
from byheart.evaluate.memory_figures import (
    MEMORY,
    Compared,
    auc_figures,
    configured_figures,
    coverage_figures,
    memorised_figure,
    part_figures,
)
from byheart.evaluate.memory_queries import Query, statements, written_facts
from byheart.evaluate.recalling import recall
from byheart.evaluate.session import Session
from byheart.evaluate.spares import Spares
from byheart.types import FactState, NewFact, Question

SAMPLE = 3_000
STATEMENTS = "ParaRel: known + unknown"
WRITTEN = "written facts"
NOT_TAKEN = "not in the ledger"


def corpus(_: Path) -> Corpus:
    """Return no documents: there is nothing to look up."""
    return Corpus("capacity", (), {})


def measure(session: Session, spares: Spares) -> list[Figure]:
    """Return the suite's figures.

    Args:
        session: The run.
        spares: Knowledge bases to learn into.

    Returns:
        Coverage on ParaRel for memory and cosine cache; exact recall of written facts and reasons of refusal; bytes,
        seconds and addressing at four sizes.
    """
    n = min(SAMPLE, session.limit or SAMPLE)
    return [
        *_statement_figures(session, spares, n),
        *_written_figures(session, spares, n),
        *growth_figures(session, spares, n / SAMPLE),
    ]


def _statement_figures(session: Session, spares: Spares, n: int) -> list[Figure]:
    """Return how facts are told from others of the same templates, asked in wordings never trained on."""
    chosen = statements(session.data, n)
    queries = (*chosen.known, *chosen.unknown)
    with spares.holding(session, f"statements-{n}", chosen.facts) as holding:
        said = {
            MEMORY: tuple(recall(holding, "statements", queries)),
            CACHE: tuple(cached(holding.base.encoder, chosen.facts, queries)),
        }
        figures = [memorised_figure(holding, "ParaRel: facts", chosen.facts), _bytes_figure(holding)]
    compared = Compared(queries, said)
    figures += coverage_figures(session, STATEMENTS, compared)
    figures += auc_figures(session, STATEMENTS, compared)
    figures += configured_figures(session, STATEMENTS, compared)
    thresholds, n_known = compared.thresholds(), len(chosen.known)
    parts = {"known": range(n_known), "unknown": range(n_known, len(queries))}
    for name, places in parts.items():
        figures += part_figures(session, f"ParaRel: {name}", compared.chosen(places), thresholds)
    return figures


def _bytes_figure(session: Session) -> Figure:
    """Return the bytes of slots per fact, each with one wording."""
    held = session.base.capacity()
    bytes_per_fact = Interval(held.bytes_per_fact, None, None, held.memorised)
    return Subject(session, "ParaRel: facts", MEMORY).figure("bytes_per_fact", "bytes", bytes_per_fact)


def _written_figures(session: Session, spares: Spares, n: int) -> list[Figure]:
    """Return which facts memory takes, whether those come back word for word, and why it refuses others."""
    facts = written_facts(session.data)[:n]
    with spares.holding(session, f"written-{len(facts)}", facts) as holding:
        held = {fact.id: fact for fact in holding.base.facts()}
        memorised = [f for f in facts if f.id in held and held[f.id].state is FactState.MEMORISED]
        figures = [memorised_figure(holding, WRITTEN, facts), *_exact_figures(holding, memorised)]
    reasons = Counter(
        refusal_kind(held[fact.id].reason, held.keys()) if fact.id in held else NOT_TAKEN
        for fact in facts
        if fact not in memorised
    )
    subject = Subject(session, WRITTEN, MEMORY)
    return figures + [
        subject.figure(f"refused: {reason}", "share", binomial(count, len(facts)))
        for reason, count in sorted(reasons.items())
    ]


def _exact_figures(session: Session, facts: Sequence[NewFact]) -> list[Figure]:
    """Return how many memorised facts answer their own question with their answer, compared as strings."""
    if not facts:
        return []
    queries = [Query(fact.id, Question.parse(fact.question), fact.id, fact.id, "own question") for fact in facts]
    said = recall(session, "written", queries)
    exact = [one.answer == fact.answer for fact, one in zip(facts, said, strict=True)]
    threshold = session.base.config.memory.threshold
    sure = [is_exact and one.score >= threshold for is_exact, one in zip(exact, said, strict=True)]
    subject = Subject(session, "memorised facts", MEMORY)
    return [
        subject.figure("exact_recall", "share", binomial(sum(exact), len(facts))),
        subject.figure("exact_recall at the default threshold", "share", binomial(sum(sure), len(facts))),
    ]


def refusal_kind(reason: str, fact_ids: Container[str]) -> str:
    """Return the kind of a reason: without advice, numbers and the names of other facts.

    Args:
        reason: Why memory refused a fact.
        fact_ids: Names that may stand in it.

    Returns:
        Such as `its answer has N tokens, memory holds N`.
    """
    words = reason.partition(";")[0].split()
    named = " ".join("another fact" if word in fact_ids else word for word in words)
    return re.sub(r"\d+", "N", named)
