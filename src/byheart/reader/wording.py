"""When two wordings are the same answer, and where an answer's words stand in a text.

Owns the words of a text as readers compare them, and the reading of spans for training and scoring. Case, width and
punctuation do not count; a script without spaces is compared character by character. Knows no model and no passage.
"""

from __future__ import annotations

import functools
import re
import unicodedata

from byheart.text.scripts import UNSPACED, marks

Span = tuple[int, int]

_OUTER = " \t\r\n.,;:!?\"'()[]\u201c\u201d\u2018\u2019\u3002\u3001\uff0c\uff01\uff1f\u300c\u300d"
_ARTICLES = frozenset({"the", "a", "an"})
_ASCII_WORD = re.compile(r"\w+", re.ASCII)

_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|https?://[^\s<>\"]*[\w/]")


def words(text: str) -> list[str]:
    """Return the words of a text, folded for comparing; characters where a script has no spaces."""
    return [_folded(match[0]) for match in _splitter(text).finditer(text)]


def occurrences(wanted: str, text: str) -> list[Span]:
    """Return where the words of `wanted` follow one another in a text, whatever the case and punctuation.

    Args:
        wanted: Words to look for.
        text: Where to look.

    Returns:
        Places in the text, in order; none when `wanted` has no words. Where marks belong to what is wanted (C++, $5)
        and some places have them, only these.
    """
    wanted = wanted.strip(_OUTER)
    needle, places = words(wanted), list(_splitter(text).finditer(text))
    hay = [_folded(match[0]) for match in places]
    n = len(needle)
    starts = [i for i in range(len(hay) - n + 1) if hay[i : i + n] == needle] if n else []
    loose = [(places[i].start(), places[i + n - 1].end()) for i in starts]
    return _as_written(wanted, text, loose) or loose


def same_answer(text: str, other: str) -> bool:
    """Return whether two answers differ by case, articles and outer punctuation at most."""
    return answer_key(text) == answer_key(other)


def answer_key(text: str) -> str:
    """Return a key under which answers that differ by case, articles or punctuation at the ends are one."""
    found = _folded(text).strip(_OUTER).split()
    return " ".join(found[1:] if len(found) > 1 and found[0] in _ARTICLES else found)


def _as_written(wanted: str, text: str, places: list[Span]) -> list[Span]:
    """Return the places where `wanted` stands to the letter, marks at its ends included."""
    found = list(_splitter(wanted).finditer(wanted))
    before, after = (found[0].start(), len(wanted) - found[-1].end()) if found else (0, 0)
    wider = [(start - before, end + after) for start, end in places if start >= before]
    return [(start, end) for start, end in wider if _folded(text[start:end]) == _folded(wanted)]


def _splitter(text: str) -> re.Pattern[str]:
    return _ASCII_WORD if text.isascii() else _any_word()


@functools.cache
def _any_word() -> re.Pattern[str]:
    """Return the pattern of a word in any script, compiled at the first use."""
    return re.compile(rf"[{UNSPACED}][{marks()}]*+|(?:[^\W{UNSPACED}]|[{marks()}])++")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def whole_address(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span, extended over the mail address or link that it cuts: half of one is of no use to anybody."""
    if "@" in text or "://" in text:
        for found in _ADDRESS.finditer(text):
            if found.start() < end and start < found.end():
                start, end = min(start, found.start()), max(end, found.end())
    return start, end
