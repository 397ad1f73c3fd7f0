"""How a fact that comes in stands to the facts that are held: new, known, known in part, or against one of them.

Owns the judgement. Knows no database: who holds what is given.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from byheart.text.question_keys import distinct_questions
from byheart.types import FactState, Kind, NewFact

_REWORD = "remove that fact first, or give this question another wording"
_RENAME = "remove that fact first, or give this one another id"


class Novelty(enum.StrEnum):
    """What a fact adds to the ledger."""

    NEW = "new"
    UNCHANGED = "unchanged"
    EXTENDED = "extended"  # further ways to ask for a fact that is held
    CONFLICT = "conflict"  # another answer is held


@dataclass(frozen=True, slots=True)
class Holder:
    """A fact of the ledger, as far as a judgement needs it.

    Attributes:
        number: Its number.
        id: Its id.
        kind: A question or a claim.
        answer: Its answer, None where texts are not kept.
        answer_digest: Digest of the answer.
        state: Whether memory answers with it.
    """

    number: int
    id: str
    kind: Kind
    answer: str | None
    answer_digest: bytes
    state: FactState


@dataclass(frozen=True, slots=True)
class Standing:
    """How a fact stands to those held.

    Attributes:
        verdict: What it adds.
        number: The held fact it is, or is in conflict with; None when new.
        fact_id: That fact's id; when new, the id it is to have.
        extra: Wordings that no fact holds; when new, without the question itself.
        shared: Wordings that another fact holds with the same answer: they stay with that fact.
        must_relearn: Whether memory does not answer with the held fact: it was refused, or is stale.
        reason: What a conflict is with, and what to do.
    """

    verdict: Novelty
    number: int | None
    fact_id: str
    extra: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    must_relearn: bool = False
    reason: str = ""


def judge(
    new: NewFact, fact_id: str, answer_digest: bytes, named: Holder | None, holders: Mapping[str, Holder]
) -> Standing:
    """Return how a fact stands to those held.

    Args:
        new: The fact that comes in.
        fact_id: Its id.
        answer_digest: Digest of its answer.
        named: The fact that is held under this id.
        holders: Which of its wordings are questions of facts of its kind, and whose.

    Returns:
        The first conflict there is, by id, question and paraphrases in this order; else what the fact adds.
    """
    against = _conflict(new, answer_digest, named, holders)
    if against is not None:
        holder, reason = against
        return Standing(Novelty.CONFLICT, holder.number, holder.id, reason=reason)
    held = named or holders.get(new.question)
    wordings = distinct_questions([new.question, *new.paraphrases])
    extra = tuple(text for text in wordings if text not in holders)
    shared = tuple(text for text in wordings if text in holders and holders[text] != held)
    if held is None:
        return Standing(Novelty.NEW, None, fact_id, extra[1:], shared)
    verdict = Novelty.EXTENDED if extra else Novelty.UNCHANGED
    return Standing(verdict, held.number, held.id, extra, shared, held.state is not FactState.MEMORISED)


def _conflict(
    new: NewFact, answer_digest: bytes, named: Holder | None, holders: Mapping[str, Holder]
) -> tuple[Holder, str] | None:
    if named is not None and named.kind is not new.kind:
        return named, f"the id {named.id!r} is that of a {named.kind}, and this is a {new.kind}; {_RENAME}"
    if named is not None and named.answer_digest != answer_digest:
        if holders.get(new.question) == named:
            return named, f"fact {named.id!r} answers this question otherwise{_quoted(named)}; {_REWORD}"
        return named, f"the id {named.id!r} is that of a fact with another answer{_quoted(named)}; {_RENAME}"
    for text in distinct_questions([new.question, *new.paraphrases]):
        holder = holders.get(text)
        if holder is not None and holder.answer_digest != answer_digest:
            place = "this question" if text == new.question else f"the paraphrase {text!r:.200}"
            return holder, f"fact {holder.id!r} answers {place} otherwise{_quoted(holder)}; {_REWORD}"
    return None


def _quoted(holder: Holder) -> str:
    return "" if holder.answer is None else f", with {holder.answer!r:.200}"
