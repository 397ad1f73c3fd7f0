"""Evidence from a recall and from the question's terms: numbers, and the columns the gate's curves are fitted on.

Owns the columns. Knows no memory and no corpus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from byheart.decisions import Evidence
from byheart.types import Kind, Recall

Columns = npt.NDArray[np.float64]

MOST_MARGIN = 12.0
NAMES = ("log_odds", "margin", "cosine", "is_cited", "known_terms", "log_terms", "is_empty", "is_claim")
_LEAST = 1e-6


def evidence_of(recall: Recall, cited: bool, known_terms: float, terms: int) -> Evidence:
    """Return the evidence of one question.

    Args:
        recall: What memory says.
        cited: Whether there are words to read beside its best fact.
        known_terms: Share of the question's terms that the corpus holds, by inverse document frequency.
        terms: How many terms it has.

    Returns:
        The evidence.
    """
    shares = [share.probability for share in recall.shares]
    rival = max([recall.not_known, *shares[1:2]])
    margin = _log(shares[0]) - _log(rival) if shares else -MOST_MARGIN
    return Evidence(
        probability=recall.probability,
        not_known=recall.not_known,
        margin=min(max(margin, -MOST_MARGIN), MOST_MARGIN),
        cosine=recall.shares[0].cosine if recall.shares else 0.0,
        candidates=len(recall.shares),
        cited=cited,
        known_terms=known_terms,
        terms=terms,
        is_claim=recall.question.kind is Kind.CLAIM,
    )


def columns(found: Sequence[Evidence]) -> Columns:
    """Return evidence as numbers of like size. Shape `batch columns`, as in `NAMES`."""
    rows = [
        (
            (_log(one.probability) - _log(1 - one.probability)) / 4,
            one.margin / 4,
            one.cosine,
            float(one.cited),
            one.known_terms,
            math.log1p(one.terms) / 2,
            float(one.candidates == 0),
            float(one.is_claim),
        )
        for one in found
    ]
    return np.array(rows, np.float64).reshape(len(rows), len(NAMES))


def _log(probability: float) -> float:
    return math.log(min(max(probability, _LEAST), 1.0))
