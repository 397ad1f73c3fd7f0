"""Text to sentences, and how many words a stretch of text is worth, in any script.

Owns counting and the smallest pieces a passage is built from. Knows no documents.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

# Scripts that put no space between words, and Hangul: Thai, Lao, Burmese, Khmer, kana, Han, Hangul syllables.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U000323af]"
)
UNSPACED_CHARACTERS_PER_WORD = 2
LONG_WORD = 24  # characters from which a word counts as several: addresses, hashes, tables of data
LONG_WORD_UNIT = 12
BLOCK = 8_000  # characters handed to the fine splitter at once: its time grows with the square


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence, or a part of one that is too long.

    Attributes:
        start: First character in the text, no white space.
        end: One past the last character.
        words: What it counts for.
        ends_paragraph: Whether an empty line follows.
    """

    start: int
    end: int
    words: float
    ends_paragraph: bool = False


def count_words(text: str) -> float:
    """Return how many words `text` counts for: two characters of an unspaced script, or one spaced word.

    Args:
        text: Any text.

    Returns:
        The number, above 0 unless `text` is blank.
    """
    unspaced = 0
    if not text.isascii():
        text, unspaced = UNSPACED.subn(" ", text)
    words = text.split()
    extra = sum(len(word) / LONG_WORD_UNIT - 1 for word in words if len(word) > LONG_WORD)
    return len(words) + extra + unspaced / UNSPACED_CHARACTERS_PER_WORD


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without white space at either side; an empty span when there is nothing else."""
    stretch = text[start:end]
    start += len(stretch) - len(stretch.lstrip())
    return start, max(start, start + len(stretch.strip()))


def units(text: str, start: int, end: int, longest: float) -> Iterator[Unit]:
    """Yield the sentences of `text[start:end]`, cut at lines, words or characters where they exceed `longest` words.

    Args:
        text: The document's text.
        start: First character.
        end: One past the last character.
        longest: Words a unit may have.

    Yields:
        Units in order; all that is between them is white space.
    """
    spans = list(_sentences(text, start, end))
    for number, (first, after) in enumerate(spans):
        following = spans[number + 1][0] if number + 1 < len(spans) else end
        ends_paragraph = following == end or text.count("\n", after, following) > 1
        words = count_words(text[first:after])
        if words <= longest:
            yield Unit(first, after, words, ends_paragraph)
        else:
            yield from _fine(text, first, after, words / longest)


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    from sentencex import segment  # type: ignore[import-untyped]

    at = start
    # The language only picks a list of abbreviations; sentence marks of all scripts are known in each.
    for sentence in segment("en", text[start:end]):
        first, after = trim(text, at, min(at + len(sentence), end))
        if first < after:
            yield first, after
        at += len(sentence)
    first, after = trim(text, min(at, end), end)
    if first < after:
        yield first, after


def _fine(text: str, start: int, end: int, n_parts: float) -> Iterator[Unit]:
    """Yield even parts of a sentence that is too long, cut at lines, else words, else characters."""
    from semantic_text_splitter import TextSplitter

    splitter = TextSplitter(max(1, math.ceil((end - start) / math.ceil(n_parts))), trim=False)
    while start < end:
        block_end = _block_end(text, start, end)
        for offset, chunk in splitter.chunk_indices(text[start:block_end]):
            first, after = trim(text, start + offset, start + offset + len(chunk))
            if first < after:
                yield Unit(first, after, count_words(text[first:after]))
        start = block_end


def _block_end(text: str, start: int, end: int) -> int:
    """Return where a block ends: at white space near its full length, else between two characters."""
    limit = start + BLOCK
    if limit >= end:
        return end
    space = max(text.rfind(" ", limit - BLOCK // 4, limit), text.rfind("\n", limit - BLOCK // 4, limit))
    if space > start:
        return space
    # A mark or joiner belongs to the character before it.
    while limit > start + BLOCK // 2 and (unicodedata.combining(text[limit]) or text[limit] in "\u200d\ufe0f"):
        limit -= 1
    return limit
