"""The words that recalled facts rest on: their passages, fetched by id, or what the ledger keeps of them. No search.

Owns which words stand for a fact. Part of the composition root; `facts` is its only caller.
"""

from __future__ import annotations

from collections.abc import Callable

from byheart.store.documents import Documents
from byheart.types import Fact, Passage, Recall


def grounds(
    recall: Recall, fact_of: Callable[[str], Fact], documents: Documents, n: int
) -> tuple[tuple[Passage, float], ...]:
    """Return the words that a recall's facts rest on, the most probable fact first, each text once.

    Args:
        recall: What memory says.
        fact_of: Gives a fact by its id.
        documents: The corpus, in the same transaction.
        n: Passages at most.

    Returns:
        Passages, each with the cosine of its fact; none where the facts have neither place nor evidence.
    """
    found: dict[str, tuple[Passage, float]] = {}
    for share in recall.shares:
        passage = words_of(fact_of(share.fact_id), documents)
        if passage is not None and len(found) < n:
            found.setdefault(passage.text, (passage, share.cosine))
    return tuple(found.values())


def has_grounds(fact: Fact | None) -> bool:
    """Return whether there are words to read beside a fact."""
    return fact is not None and (fact.source.page is not None or bool(fact.evidence))


def words_of(fact: Fact, documents: Documents) -> Passage | None:
    """Return the words a fact rests on: its passage, its document's first, or its evidence; None without any."""
    if fact.source.passage_id is not None:
        return documents.passages([fact.source.passage_id])[0]
    if fact.source.page is not None:
        held = documents.text_of(fact.source.page)
        return None if held is None or not held[2] else held[2][0]
    if not fact.evidence:
        return None
    size = len(fact.evidence)
    return Passage(f"{fact.id}:0-{size}", fact.source.note or fact.id, "", (), fact.evidence, 0, size)
