"""Suite `near_miss`: 200 Natural Questions facts, their paraphrases, and questions that only look like them.

Owns what is reported of it. Memory learns each fact's own question and nothing else; of the 1,000 queries the 600
paraphrases are known, the 400 near misses are not.
"""

from __future__ import annotations

from pathlib import Path

from byheart.evaluate.bases import Corpus
from byheart.evaluate.cosine_cache import SYSTEM as CACHE
from byheart.evaluate.cosine_cache import cached
from byheart.evaluate.figures import Figure
from byheart.evaluate.memory_figures import (
    MEMORY,
    Compared,
    auc_figures,
    by_kind,
    configured_figures,
    coverage_figures,
    memorised_figure,
    part_figures,
)
from byheart.evaluate.memory_queries import PARAPHRASE, near_miss_facts, near_miss_queries
from byheart.evaluate.recalling import recall
from byheart.evaluate.session import Session
from byheart.evaluate.spares import Spares

ALL = "paraphrases + near misses"


def corpus(_: Path) -> Corpus:
    """Return no documents: there is nothing to look up."""
    return Corpus("near_miss", (), {})


def measure(session: Session, spares: Spares) -> list[Figure]:
    """Return the suite's figures.

    Args:
        session: The run.
        spares: Knowledge bases to learn into.

    Returns:
        Coverage at three precisions and area under the ROC curve for memory and cosine cache; how far memory can be
        trusted; and what becomes of paraphrases and of each kind of near miss at 95 % precision.
    """
    facts = near_miss_facts(session.data)
    with spares.holding(session, "facts", facts) as holding:
        figures = [memorised_figure(holding, "facts", facts)]
        compared = _compared(holding)
        figures += coverage_figures(holding, ALL, compared)
        figures += auc_figures(holding, ALL, compared)
        figures += configured_figures(holding, ALL, compared)
    thresholds = compared.thresholds()
    for kind, places in by_kind(compared.queries).items():
        split = "paraphrases" if kind == PARAPHRASE else f"near misses: {kind}"
        figures += part_figures(session, split, compared.chosen(places), thresholds)
    misses = [i for i, query in enumerate(compared.queries) if query.fact is None]
    return [*figures, *part_figures(session, "near misses", compared.chosen(misses), thresholds)]


def _compared(session: Session) -> Compared:
    asked = near_miss_queries(session.data)
    known = [query for query in asked if query.fact is not None][: session.limit]
    unknown = [query for query in asked if query.fact is None][: session.limit]
    queries = (*known, *unknown)
    said = {
        MEMORY: tuple(recall(session, "facts", queries)),
        CACHE: tuple(cached(session.base.encoder, near_miss_facts(session.data), queries)),
    }
    return Compared(queries, said)
