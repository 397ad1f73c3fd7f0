"""The words that recalled facts rest on: their passages, fetched by id, or what the ledger keeps of them. No search.

Owns which words stand for a fact. Part of the composition root; `facts` is its only caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from byheart.store.documents import Documents
from byheart.types import Fact, Passage, Recall


def grounds(
    recall: Recall,
    held: Sequence[tuple[int, Fact]],
    near: Sequence[tuple[int, float]],
    documents: Documents,
    n: int,
) -> tuple[tuple[Passage, float], ...]:
    """Return the words that facts rest on, each text once.

    The fact that is likelier than *not known* comes first; then those that are about something near, the nearest first.

    Args:
        recall: What memory says.
        held: Facts by number.
        near: Numbers and cosines of the nearest facts, falling.
        documents: The corpus, in the same transaction.
        n: Passages at most.

    Returns:
        Passages, each with the cosine of its fact; none where the facts have neither place nor evidence.
    """
    facts, found = dict(held), dict[str, tuple[Passage, float]]()
    known = recall.fact.id if recall.fact is not None and recall.probability > recall.not_known else None
    for number, cosine in sorted(near, key=lambda one: facts[one[0]].id != known):
        passage = words_of(facts[number], documents) if len(found) < n else None
        if passage is not None:
            found.setdefault(passage.text, (passage, cosine))
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
