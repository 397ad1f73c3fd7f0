"""The words that recalled facts rest on: their passages, fetched by id, or what the ledger keeps of them. No search.

Owns which words stand for a fact, and that a claim which holds is read itself. Part of the composition root; `facts` is
its only caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from byheart.store.documents import Documents
from byheart.types import Fact, Kind, Passage, Recall, Verdict


def grounds(
    recall: Recall,
    held: Sequence[tuple[int, Fact]],
    near: Sequence[tuple[int, float]],
    documents: Documents,
    n: int,
) -> tuple[tuple[Passage, float], ...]:
    """Return the words that facts rest on, each text once.

    The fact that is likelier than *not known* comes first; then those that are about something near, the nearest first.
    Where there is room for two, the last is the nearest claim that holds, in its own words (docs/log.md).

    Args:
        recall: What memory says.
        held: Facts by number.
        near: Numbers and cosines of the nearest facts, falling.
        documents: The corpus, in the same transaction.
        n: Passages at most.

    Returns:
        Passages, each with the cosine of its fact; none where the facts have neither place nor evidence, and none is
        a claim that holds.
    """
    facts, found = dict(held), dict[str, tuple[Passage, float]]()
    known = recall.fact.id if recall.fact is not None and recall.probability > recall.not_known else None
    true = next(((facts[number], cosine) for number, cosine in near if _holds(facts[number])), None) if n > 1 else None
    room = n if true is None else n - 1
    for number, cosine in sorted(near, key=lambda one: facts[one[0]].id != known):
        passage = words_of(facts[number], documents) if len(found) < room else None
        if passage is not None:
            found.setdefault(passage.text, (passage, cosine))
    if true is not None:
        fact, cosine = true
        found.setdefault(fact.questions[0], (_kept(fact, "claim", fact.questions[0]), cosine))
    return tuple(found.values())


def has_grounds(fact: Fact | None) -> bool:
    """Return whether there are words to read beside a fact."""
    return fact is not None and (fact.source.page is not None or bool(fact.evidence))


def words_of(fact: Fact, documents: Documents) -> Passage | None:
    """Return the words a fact rests on: its passage, its document's first, or its evidence; None without any."""
    if fact.source.passage_id is not None:
        return documents.passages([fact.source.passage_id])[0]
    if fact.source.page is not None and fact.evidence:  # the document does not show it
        return _kept(fact, "evidence", fact.evidence)
    if fact.source.page is not None:
        held = documents.text_of(fact.source.page)
        return None if held is None or not held[2] else held[2][0]
    if not fact.evidence:
        return None
    return _kept(fact, f"0-{len(fact.evidence)}", fact.evidence)


def _holds(fact: Fact) -> bool:
    """Return whether a fact is a claim that is true, with its text kept."""
    return fact.kind is Kind.CLAIM and fact.answer == Verdict.SUPPORTS and bool(fact.questions)


def _kept(fact: Fact, name: str, text: str) -> Passage:
    """Return words that the ledger keeps of a fact, as a passage of its page, or of its own where it has none."""
    page = fact.source.page
    return Passage(f"{page or fact.id}:{name}", page or fact.source.note or fact.id, "", (), text, 0, len(text))
