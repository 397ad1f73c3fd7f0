"""Where in a document the words stand that support a fact.

Owns the search for evidence that was copied with other spaces, quotation marks, dashes or character forms. Pure
functions; knows no ledger and no knowledge base.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from byheart.text.scripts import UNSPACED
from byheart.types import Passage

_UNSPACED = re.compile(f"[{UNSPACED}]")
SHORTEST_ANSWER = 3  # characters; a shorter answer stands in a text by chance
# One character for one, so that places stay. An accent that stands alone is somebody's quotation mark.
_UNIFIED = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc\u00b4\u0060", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
)


@dataclass(frozen=True, slots=True)
class _Folded:
    """A text as evidence is compared.

    Attributes:
        text: Unified and NFKC.
        places: For every character, and for the end, where what it was made of begins in the original; None where
            nothing has moved.
    """

    text: str
    places: tuple[int, ...] | None

    def original(self, start: int, end: int) -> tuple[int, int] | None:
        """Return a stretch's place in the original; None where it begins or ends inside a character there."""
        if self.places is None:
            return start, end
        if (start and self.places[start] == self.places[start - 1]) or self.places[end] == self.places[end - 1]:
            return None
        return self.places[start], self.places[end]


def unified(text: str) -> str:
    """Return a text as evidence is compared: NFKC, one kind of quotation mark and dash, white space collapsed."""
    return " ".join(_normalised(text.translate(_UNIFIED)).split())


def locate(text: str, evidence: str, answer: str) -> tuple[int, int] | None:
    """Return the characters of a document that support a fact.

    Args:
        text: The document's text.
        evidence: Words of the document; may be empty.
        answer: The fact's answer; empty for a claim, whose verdict stands in no document.

    Returns:
        First character and one past the last: of the evidence letter by letter, else of the evidence as `unified`
        compares, else of the answer if it stands there exactly once, as whole words in any case, and is not too short.
        None when nothing is found.
    """
    evidence, answer = evidence.strip(), answer.strip()
    at = text.find(evidence) if evidence else -1
    if at >= 0:
        return at, at + len(evidence)
    folded = _folded(text)
    found = next(_occurrences(folded, evidence), None)
    if found is not None or len(answer) < SHORTEST_ANSWER:
        return found
    whole = (span for span in _occurrences(folded, answer, re.IGNORECASE) if _is_apart(text, *span))
    first_two = list(islice(whole, 2))
    return first_two[0] if len(first_two) == 1 else None


def covering(passages: Sequence[Passage], start: int, end: int) -> Passage | None:
    """Return the passage that holds most of a span of its document, the first of equals.

    Args:
        passages: Passages of one document.
        start: First character of the span.
        end: One past the last.

    Returns:
        The passage; None when none holds a character of the span.
    """

    def shared(passage: Passage) -> int:
        return min(passage.end, end) - max(passage.start, start)

    best = max(passages, key=shared, default=None)
    return best if best is not None and shared(best) > 0 else None


def _occurrences(folded: _Folded, wanted: str, flags: int = 0) -> Iterator[tuple[int, int]]:
    """Yield where the words of `wanted` follow one another, whatever the white space; places may overlap."""
    words = unified(wanted).split()
    if not words:
        return
    pattern = re.compile(r"\s+".join(map(re.escape, words)), flags)
    match = pattern.search(folded.text)
    while match:
        span = folded.original(*match.span())
        if span is not None:
            yield span
        match = pattern.search(folded.text, match.start() + 1)


def _is_apart(text: str, start: int, end: int) -> bool:
    """Return whether no word goes on across either end; where a script has no spaces, only a mark goes on."""
    return not (_goes_on(text[start - 1 : start], text[start]) or _goes_on(text[end - 1], text[end : end + 1]))


def _goes_on(before: str, after: str) -> bool:
    if not before or not after:
        return False
    if _is_mark(after):
        return True
    is_unspaced = _UNSPACED.search(before + after) is not None
    return not is_unspaced and (before.isalnum() or _is_mark(before)) and after.isalnum()


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _folded(text: str) -> _Folded:
    text = text.translate(_UNIFIED)
    if unicodedata.is_normalized("NFKC", text):
        return _Folded(text, None)
    pieces: list[str] = []
    places: list[int] = []
    for start, end in _stretches(text):
        pieces.append(_normalised(text[start:end]))
        places += [start] * len(pieces[-1])
    return _Folded("".join(pieces), (*places, len(text)))


def _stretches(text: str) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a text that normalise on their own; laid end to end they are the text."""
    start = 0
    for at in range(1, len(text)):
        if text[at].isascii() or not _joins(text, start, at):
            yield start, at
            start = at
    if text:
        yield start, len(text)


def _joins(text: str, start: int, at: int) -> bool:
    """Return whether a character combines with the stretch before it: as its accent, or as the rest of its letter."""
    character = text[at]
    if unicodedata.combining(unicodedata.normalize("NFKD", character)[0]):
        return True
    before = text[start:at]
    return _normalised(before + character) != _normalised(before) + _normalised(character)


def _normalised(text: str) -> str:
    return unicodedata.normalize("NFKC", text)
