"""The words read beside recalled facts: whose come first, and the nearest claim that holds, in its own words."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from byheart.grounds import grounds, has_grounds
from byheart.store.documents import Documents
from byheart.types import Fact, FactState, Kind, Question, Recall, Source

CLAIM = Question("The tower of Tarn is tall.", Kind.CLAIM)


def fact(name: str, answer: str | None, evidence: str, *questions: str, kind: Kind = Kind.CLAIM) -> Fact:
    source = Source(note="a chronicle")
    return Fact(name, kind, questions, answer, source, 1, "", FactState.MEMORISED, evidence=evidence)


HELD = [
    fact("old", "REFUTES", "Tarn's tower was built in 1901.", "The tower of Tarn is medieval."),
    fact("steps", "SUPPORTS", "The tower has 90 steps.", "The tower of Tarn has 90 steps."),
    fact("young", "REFUTES", "Tarn's tower was built in 1901.", "The tower of Tarn is new."),
    fact("bell", "SUPPORTS", "Its bell weighs a ton.", "The tower of Tarn has a bell."),
]


def read(held: Sequence[Fact], n: int, known: int | None = None) -> list[tuple[str, str]]:
    """Return ids and texts of what is read, the facts nearest first, perhaps one of them likelier than not known."""
    recall = Recall(CLAIM, None, 0.0, 1.0)
    if known is not None:
        recall = Recall(CLAIM, held[known].answer, 0.9, 0.1, (), held[known])
    near = [(number, 0.9 - 0.1 * number) for number in range(len(held))]
    documents = Documents(cast(sqlite3.Connection, None))  # no fact has a place in a document
    found = grounds(recall, list(enumerate(held)), near, documents, n)
    by_id = {held[number].id: cosine for number, cosine in near}
    assert all(cosine == by_id[passage.id.rpartition(":")[0]] for passage, cosine in found)
    return [(passage.id.rpartition(":")[0], passage.text) for passage, _ in found]


def test_the_last_words_are_the_nearest_claim_that_holds_and_no_text_is_read_twice() -> None:
    assert read(HELD, 3) == [
        ("old", "Tarn's tower was built in 1901."),
        ("steps", "The tower has 90 steps."),
        ("steps", "The tower of Tarn has 90 steps."),
    ]
    assert [text for _, text in read(HELD, 9)] == [
        "Tarn's tower was built in 1901.",
        "The tower has 90 steps.",
        "Its bell weighs a ton.",
        "The tower of Tarn has 90 steps.",
    ]


def test_a_fact_likelier_than_not_known_comes_first() -> None:
    assert read(HELD, 2, known=3)[0] == ("bell", "Its bell weighs a ton.")


def test_where_no_claim_holds_or_only_one_is_read_it_is_evidence() -> None:
    assert read(HELD, 1) == [("old", "Tarn's tower was built in 1901.")]
    assert read([HELD[0], HELD[2]], 3) == [("old", "Tarn's tower was built in 1901.")]


def test_a_question_or_a_claim_whose_text_is_not_kept_is_not_read_itself() -> None:
    asked = fact("when", "SUPPORTS", "It opened in 1902.", "When did it open?", kind=Kind.QUESTION)
    silent = fact("silent", None, "It is 40 metres high.")
    assert [text for _, text in read([asked, silent], 3)] == ["It opened in 1902.", "It is 40 metres high."]
    assert has_grounds(silent)
    assert not has_grounds(fact("bare", "SUPPORTS", "", "The tower of Tarn stands."))


class Emptied(Documents):
    """A corpus whose documents have no passage any more."""

    def text_of(self, name: str) -> None:
        return None


def test_the_claim_of_a_fact_with_a_page_is_cited_by_its_page() -> None:
    held = replace(HELD[1], source=Source("Tarn", None, "docs/tarn.md"), evidence="")
    documents = Emptied(cast(sqlite3.Connection, None))
    [(passage, _)] = grounds(Recall(CLAIM, None, 0.0, 1.0), [(0, held)], [(0, 0.9)], documents, 3)
    assert (passage.page, passage.id.rpartition(":")[0]) == ("docs/tarn.md", "docs/tarn.md")
    assert passage.text == HELD[1].questions[0]
