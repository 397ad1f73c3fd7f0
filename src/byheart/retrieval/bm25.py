"""BM25 as two sparse vectors whose inner product is the score.

Owns the two formulas, as pure functions. Knows no text, no database and no engine. The passage side holds saturation
with a *frozen* average length and the question side holds the inverse document frequencies, so that a passage's vector
never changes when others come and go, and every engine only stores and multiplies.
Source: Robertson and Zaragoza 2009, The Probabilistic Relevance Framework: BM25 and Beyond, section 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from byheart.config import RetrievalConfig
from byheart.interfaces import SparseVector


def passage_vector(terms: Sequence[str], numbers: Mapping[str, int], config: RetrievalConfig) -> SparseVector:
    """Return the BM25 weights of a passage: tf·(k1+1) / (tf + k1·(1 - b + b·length/average)).

    Args:
        terms: The passage's index terms, with repetition.
        numbers: A number for each of them.
        config: k1, b and the frozen average length.

    Returns:
        One weight per distinct term, below k1 + 1; empty for a blank passage.
    """
    frequencies = Counter(numbers[term] for term in terms)
    order = sorted(frequencies)
    tf = np.array([frequencies[number] for number in order], np.float64)
    penalty = config.k1 * (1 - config.b + config.b * len(terms) / config.average_terms)
    weights = tf * (config.k1 + 1) / (tf + penalty)
    return SparseVector(np.array(order, np.int64), weights.astype(np.float32))


def query_vector(terms: Sequence[str], known: Mapping[str, tuple[int, int]], n_passages: int) -> SparseVector:
    """Return the inverse document frequencies of a question: ln(1 + (N - df + ½) / (df + ½)), each term once.

    Args:
        terms: The question's index terms.
        known: Number and document frequency of the terms that the index holds; others add nothing.
        n_passages: Passages in the index.

    Returns:
        One weight per distinct known term; empty when none is known.
    """
    found = sorted({known[term] for term in terms if term in known})
    df = np.minimum(np.array([df for _, df in found], np.float64), n_passages)
    weights = np.log1p((n_passages - df + 0.5) / (df + 0.5))
    return SparseVector(np.array([number for number, _ in found], np.int64), weights.astype(np.float32))


def best_possible(query: SparseVector, config: RetrievalConfig) -> float:
    """Return the BM25 score that no passage can reach: every term of the question, fully saturated.

    Args:
        query: The question's inverse document frequencies.
        config: k1.

    Returns:
        Upper bound; 0 when no term of the question is known.
    """
    return float(query.weights.sum(dtype=np.float64) * (config.k1 + 1))
