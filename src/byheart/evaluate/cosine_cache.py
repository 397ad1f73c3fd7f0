"""The baseline to beat: a cache that answers with the fact whose question has the highest cosine to what is asked.

Owns nothing but that rule: what semantic caches do. It has the memory's own base encoder, and holds every fact, those
too that memory refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from byheart.evaluate.recalling import Said
from byheart.interfaces import Encoder
from byheart.types import NewFact, Question

SYSTEM = "cosine-cache"
ROWS = 512  # queries multiplied at once


class Asked(Protocol):
    """Something with a question."""

    @property
    def question(self) -> Question:
        """What is asked."""


def cached(encoder: Encoder, facts: Sequence[NewFact], queries: Sequence[Asked]) -> list[Said]:
    """Return the nearest fact to each query, with its cosine as score.

    Args:
        encoder: Turns questions into unit vectors.
        facts: What the cache holds, at least one; of a fact with paraphrases, the nearest wording counts.
        queries: What is asked.

    Returns:
        One per query; the earlier fact where two are equally near.
    """
    wordings = [(fact, text) for fact in facts for text in (fact.question, *fact.paraphrases)]
    held = encoder.encode_queries([text for _, text in wordings])
    said = []
    for start in range(0, len(queries), ROWS):
        asked = encoder.encode_queries([query.question.text for query in queries[start : start + ROWS]])
        cosines = asked @ held.T
        for row, place in zip(cosines, cosines.argmax(axis=1), strict=True):
            fact = wordings[int(place)][0]
            said.append(Said(fact.id, float(row[place]), fact.answer))
    return said
