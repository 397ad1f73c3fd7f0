"""The memory's part of suite `support`: 132 facts of a help desk, asked in the queries that nothing was trained on.

Owns what is reported of it. Near misses that another fact answers are known, for that fact; others are not, nor is what
is out of scope or stands in the articles only. Queries in other languages are reported apart: facts are English.
"""

from __future__ import annotations

from collections.abc import Sequence

from byheart.evaluate.cosine_cache import SYSTEM as CACHE
from byheart.evaluate.cosine_cache import cached
from byheart.evaluate.datasets import SUPPORT_STYLES
from byheart.evaluate.figures import Figure, Subject
from byheart.evaluate.intervals import binomial
from byheart.evaluate.memory_figures import (
    MEMORY,
    Compared,
    auc_figures,
    by_kind,
    configured_figures,
    coverage_figures,
    is_right,
    memorised_figure,
    part_figures,
)
from byheart.evaluate.memory_queries import Query, support_facts, support_queries
from byheart.evaluate.recalling import recall
from byheart.evaluate.session import Session

HEADLINE = "memory: facts + near misses"
ENGLISH = "memory: all in English"  # also what is out of scope, and what only the articles answer
UNRELATED = ("out_of_scope", "retrieval_only")


def memory_figures(session: Session) -> list[Figure]:
    """Return what memory makes of the help desk's queries, and the cosine cache beside it.

    Args:
        session: The run, over a base that holds articles and facts.

    Returns:
        Facts memorised; coverage at three precisions on facts and near misses, and on all English queries; what becomes
        of each style, kind and language at the first one's threshold; and whether answers cite the right article.
    """
    facts, queries = support_facts(session.data), _limited(session, support_queries(session.data))
    said = {
        MEMORY: tuple(recall(session, "support", queries)),
        CACHE: tuple(cached(session.base.encoder, facts, queries)),
    }
    everything = Compared(tuple(queries), said)
    english = everything.chosen([i for i, query in enumerate(queries) if not query.language])
    related = english.chosen([i for i, query in enumerate(english.queries) if query.kind not in UNRELATED])
    figures = [memorised_figure(session, "memory: facts", facts)]
    if not related.queries:
        return figures
    for split, part in ((HEADLINE, related), (ENGLISH, english)):
        figures += coverage_figures(session, split, part)
        if any(query.fact is None for query in part.queries):
            figures += auc_figures(session, split, part)
        figures += configured_figures(session, split, part)
    thresholds = related.thresholds()
    for name, places in _parts(queries).items():
        figures += part_figures(session, f"memory: {name}", everything.chosen(places), thresholds)
    return figures + _citation_figures(session, english)


def _limited(session: Session, queries: Sequence[Query]) -> list[Query]:
    """Return the first queries of each style, kind and language, as many as the limit allows."""
    allowed = {queries[i].id for places in _parts(queries).values() for i in places[: session.limit]}
    return [query for query in queries if query.id in allowed]


def _parts(queries: Sequence[Query]) -> dict[str, list[int]]:
    """Return places of queries by style, kind and language; near misses that another fact answers are apart."""
    parts: dict[str, list[int]] = {}
    for kind, places in by_kind(queries).items():
        for i in places:
            parts.setdefault(_part(queries[i], kind), []).append(i)
    return parts


def _part(query: Query, kind: str) -> str:
    if query.language:
        return f"language {query.language}"
    if kind in SUPPORT_STYLES or kind in UNRELATED:
        return kind
    return f"near misses: {kind}, {'nothing' if query.fact is None else 'another fact'} answers"


def _citation_figures(session: Session, compared: Compared) -> list[Figure]:
    """Return how often an answer from memory cites its article, as KILT scores provenance: the first page counts."""
    articles = {fact.id: fact.source for fact in support_facts(session.data)}
    threshold = session.base.config.memory.threshold
    pairs = zip(compared.queries, compared.said[MEMORY], strict=True)
    given = [(query, said) for query, said in pairs if said.fact is not None and said.score >= threshold]
    known = [(articles[query.fact], query, said) for query, said in given if query.fact is not None]
    right = [(article, said) for article, query, said in known if is_right(query, said)]
    cited = {"Rprec": [said.pages[:1] == (article,) for article, _, said in known]}
    cited["Rprec of right answers"] = [said.pages[:1] == (article,) for article, said in right]
    subject = Subject(session, "memory: answers to known queries", MEMORY)
    return [
        subject.figure(name, "share", binomial(sum(column), len(column))) for name, column in cited.items() if column
    ]
