"""The analyzer: text into index terms, the same for passages and questions.

Owns normalisation, word splitting, stop words, stems and n-grams, and their version. Knows no index and no weights.
Terms are NFKC and case-folded. Scripts written without spaces, and Hangul, whose particles stick to words, become
overlapping pairs of characters, so that no dictionary is needed to find a word inside a run.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Sequence

from byheart.text.scripts import UNSPACED, marks
from byheart.types import Passage

ANALYZER_VERSION = 1
"""Raised whenever a text may give other terms than before: an index built by another version must be rebuilt."""

_ENGLISH = (
    "a about after all also am an and any are as at be because been before being between both but by can could did do "
    "does doing during each for from had has have having he her hers him his how i if in into is it its itself just "
    "me might more most my no nor not of on only or other our ours own same she should so some such than that the "
    "their theirs them then there these they this those through to too very was we were what when where which while "
    "who whom whose why will with wo would you your yours"
)
STOP_WORDS = frozenset(_ENGLISH.split())

_TITLE_COPIES = 3  # measured on NQ: recall@1 .481 with one copy, .525 with two, .539 with three
_MAX_TERM = 64
_CONTRACTION = re.compile(r"(?:(?<!ca)n't|'(?:t|s|d|m|ll|re|ve))(?![^\W_])")
_ACCENT = re.compile("[\u0300-\u036f]")
_CYRILLIC_LETTER = re.compile("[\u0438\u0443]\u0306|\u0456\u0308")  # short i and u, and yi
_ARABIC_AND = re.compile("^[\u0648\u0641](?=\u0627\u0644.{3})")  # "and" written onto the article
_HYPHENS = "\u2010\u2011-"
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")


def analyze(text: str) -> list[str]:
    """Return the index terms of `text`, in order, with repetition.

    Args:
        text: Any text, blank and NUL included.

    Returns:
        Terms; empty for a text without words or with stop words only.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    folded = _CONTRACTION.sub(" ", folded.replace("\u2019", "'"))
    pattern = _splitter() if not folded.isascii() else _ascii_splitter()
    return [term for match in pattern.finditer(folded) for term in _terms(match)]


def analyze_passage(passage: Passage) -> list[str]:
    """Return the index terms of a passage; those of its title and headings count three times.

    Args:
        passage: The passage to index.

    Returns:
        Terms with repetition.
    """
    return analyze(passage.heading_path) * _TITLE_COPIES + analyze(passage.text)


@functools.cache
def _splitter() -> re.Pattern[str]:
    """Return the splitter for any text, compiled at the first use."""
    return _compile(
        rf"[^\W\d_{UNSPACED}]", rf"(?:[^\W_{UNSPACED}]|[{marks()}])++", rf"[{UNSPACED}][{UNSPACED}{marks()}]*+"
    )


@functools.cache
def _ascii_splitter() -> re.Pattern[str]:
    """Return the same splitter without the alternatives that ASCII text cannot match: several times as fast."""
    return _compile("[a-z]", "[a-z0-9]++", "(?!)")


def _compile(letter: str, word: str, run: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<acronym>(?<![^\W_])(?:{letter}\.){{2,}}(?![^\W_]))"
        r"|(?P<number>(?<![^\W_])\d+(?:[.,\u066b]\d+)+)"
        r"|(?P<symbol>(?<![^\W_])[a-z](?:\+\+|#)(?![^\W_]))"
        rf"|(?P<run>{run})"
        rf"|(?P<word>{word}(?:[{_HYPHENS}]{word})*+)"
    )


def _terms(match: re.Match[str]) -> Sequence[str]:
    kind, text = match.lastgroup, match.group()
    if kind == "word":
        return _word(text) if len(text) <= _MAX_TERM else _long_word(text)
    if kind == "run":
        return _pairs(text)
    return (_number(text) if kind == "number" else text.replace(".", ""),)


@functools.lru_cache(maxsize=1 << 18)
def _word(text: str) -> tuple[str, ...]:
    """Return the stems of the parts, and, where letters meet digits (covid-19), the whole without hyphens."""
    parts = re.split(f"[{_HYPHENS}]", text)
    stems = tuple(filter(None, (_stem(part) for part in parts if part not in STOP_WORDS)))
    is_mixed = len(parts) > 1 and any(c.isdigit() for c in text) and any(c.isalpha() for c in text)
    return (*stems, "".join(parts)) if is_mixed else stems


def _long_word(text: str) -> list[str]:
    """Cut what is longer than any real word into pieces, so that none of it is lost."""
    pieces = (text[start : start + _MAX_TERM].strip(_HYPHENS) for start in range(0, len(text), _MAX_TERM))
    return [term for piece in pieces for term in _word(piece)]


def _number(text: str) -> str:
    digits = _ascii_digits(text).replace("\u066b", ".")
    return digits.replace(",", "" if _THOUSANDS.fullmatch(digits) else ".")


def _ascii_digits(text: str) -> str:
    return text if text.isascii() else "".join(str(unicodedata.decimal(c, c)) for c in text)


def _pairs(run: str) -> list[str]:
    """Return overlapping pairs of characters, marks kept with their character; a lone one stands for itself."""
    characters: list[str] = []
    for character in run:
        if characters and unicodedata.category(character)[0] == "M":
            characters[-1] += character
        else:
            characters.append(character)
    if len(characters) == 1:
        return characters
    return [first + second for first, second in itertools.pairwise(characters)]


def _stem(word: str) -> str:
    """Return the stem of a word by its script; a new stemmer each time, since stemmers hold state between calls."""
    from snowballstemmer.arabic_stemmer import ArabicStemmer
    from snowballstemmer.english_stemmer import EnglishStemmer
    from snowballstemmer.russian_stemmer import RussianStemmer

    plain = strip_accents(_ascii_digits(word))
    first = next((c for c in plain if c.isalpha()), "")
    if "a" <= first <= "z":
        return str(EnglishStemmer().stemWord(plain))
    if "\u0400" <= first <= "\u052f":
        return str(RussianStemmer().stemWord(plain))
    if "\u0600" <= first <= "\u06ff" or "\u0750" <= first <= "\u077f":
        return str(ArabicStemmer().stemWord(_ARABIC_AND.sub("", plain)))
    return plain


def strip_accents(word: str) -> str:
    """Return `word` without Latin, Greek and Cyrillic accents.

    Args:
        word: A word in any script.

    Returns:
        The word, NFC. Letters of their own (й, ў, ї), Japanese voicing, Hangul, vowel signs and Arabic hamza stay.
    """
    if word.isascii():
        return word
    apart = _CYRILLIC_LETTER.sub(_recompose, unicodedata.normalize("NFD", word))
    return unicodedata.normalize("NFC", _ACCENT.sub("", apart))


def _recompose(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", match.group())
