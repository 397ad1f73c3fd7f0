"""Documents to passages: sentences, packed into stretches of about the same number of words.

Owns where a passage begins and ends. Every visible character of a document is in exactly one passage. Knows no file
formats and no encoder: tokens are counted by whoever is asked to.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from byheart.config import CorpusConfig
from byheart.corpus.sentences import Unit, count_words, trim, units
from byheart.types import Document, Passage, Section, passage_id

CountTokens = Callable[[Sequence[str]], list[int]]

SPLITTER_VERSION = 1  # part of the content hash: raise it when passages come out differently
SLACK = 1.5  # a section this many times too long stays whole, rather than leave a tail
ROUGHNESS = 0.05  # price of a border inside a paragraph, in squared shares of the ideal length
COUNTED_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of one document that is about to become a passage."""

    document: int
    section: Section
    start: int
    end: int


def content_hash(document: Document) -> str:
    """Return the SHA-256 of all that makes a document's passages, but for the page: copies of a text hash alike."""
    sections = [(section.start, section.headings, section.sheet) for section in document.sections]
    content = [SPLITTER_VERSION, document.title, document.text, sections]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def split(document: Document, config: CorpusConfig, count_tokens: CountTokens) -> tuple[list[Passage], list[str]]:
    """Return the passages of one document, and notices; for many documents `split_many` is much faster.

    Args:
        document: What to split.
        config: How long passages should be.
        count_tokens: Returns the number of encoder tokens of each text.

    Returns:
        Passages in order of `start`, and what a user should know.
    """
    return split_many([document], config, count_tokens)[0]


def split_many(
    documents: Sequence[Document], config: CorpusConfig, count_tokens: CountTokens
) -> list[tuple[list[Passage], list[str]]]:
    """Return passages and notices of each document; tokens are counted over all documents in large batches.

    Args:
        documents: What to split.
        config: A passage has about `words` words; a section of up to 1.5 times as many stays whole. No passage has more
            than `max_tokens` tokens.
        count_tokens: Returns the number of encoder tokens of each text.

    Returns:
        Per document: passages in order of `start`, none empty, none across a section's border; and notices.
    """
    pending = [piece for number, document in enumerate(documents) for piece in _first_pieces(number, document, config)]
    finished: list[list[_Piece]] = [[] for _ in documents]
    n_too_long = [0] * len(documents)
    while pending:
        too_long = []
        for piece, n_tokens in zip(pending, _count(pending, documents, count_tokens), strict=True):
            if n_tokens <= config.max_tokens or piece.end - piece.start == 1:
                finished[piece.document].append(piece)
            else:
                n_too_long[piece.document] += 1
                too_long += _cut_further(piece, documents[piece.document].text, n_tokens, config.max_tokens)
        pending = too_long
    return [
        (_passages(document, pieces), _notices(document, pieces, n, config.max_tokens))
        for document, pieces, n in zip(documents, finished, n_too_long, strict=True)
    ]


def _count(pieces: Sequence[_Piece], documents: Sequence[Document], count_tokens: CountTokens) -> Iterator[int]:
    for first in range(0, len(pieces), COUNTED_AT_ONCE):
        batch = pieces[first : first + COUNTED_AT_ONCE]
        yield from count_tokens([documents[piece.document].text[piece.start : piece.end] for piece in batch])


def _first_pieces(number: int, document: Document, config: CorpusConfig) -> Iterator[_Piece]:
    for section, end in _stretches(document):
        start, end = trim(document.text, section.start, end)
        for span in _cut(document.text, start, end, ideal=config.words, longest=config.words * SLACK):
            yield _Piece(number, section, *span)


def _stretches(document: Document) -> Iterator[tuple[Section, int]]:
    """Yield each section with its end; text before the first section stands under no heading."""
    sections = list(document.sections)
    if not sections or sections[0].start > 0:
        sections.insert(0, Section(0))
    ends = [later.start for later in sections[1:]] + [len(document.text)]
    yield from zip(sections, ends, strict=True)


def _cut_further(piece: _Piece, text: str, n_tokens: int, max_tokens: int) -> list[_Piece]:
    words = count_words(text[piece.start : piece.end])
    ideal, longest = words / math.ceil(n_tokens / max_tokens), words * max_tokens / n_tokens * 0.95
    spans = _cut(text, piece.start, piece.end, ideal, longest)
    if len(spans) < 2:  # one grapheme of very many characters
        middle = (piece.start + piece.end) // 2
        spans = [(piece.start, middle), (middle, piece.end)]
        spans = [trim(text, *span) for span in spans]  # never blank: a span begins and ends with a visible character
    return [_Piece(piece.document, piece.section, *span) for span in spans]


def _cut(text: str, start: int, end: int, ideal: float, longest: float) -> list[tuple[int, int]]:
    """Return the spans that `text[start:end]` falls into, trimmed and in order."""
    if start == end:
        return []
    if count_words(text[start:end]) <= longest:
        return [(start, end)]
    parts = list(units(text, start, end, ideal))
    borders = _best_borders(parts, ideal, longest)
    return [(parts[first].start, parts[after - 1].end) for first, after in pairwise(borders)]


def _best_borders(parts: Sequence[Unit], ideal: float, longest: float) -> list[int]:
    """Return where to cut so that all lengths together are nearest to the ideal.

    Source: breaking paragraphs into lines by dynamic programming (Knuth and Plass 1981), with words for points.
    """
    costs, origins = [0.0], [0]
    for after in range(1, len(parts) + 1):
        words, best, origin = 0.0, math.inf, after - 1
        for first in range(after - 1, -1, -1):
            words += parts[first].words
            if words > longest and first < after - 1:
                break
            cost = costs[first] + ((words - ideal) / ideal) ** 2
            if cost < best:
                best, origin = cost, first
        costs.append(best + (0.0 if parts[after - 1].ends_paragraph else ROUGHNESS))
        origins.append(origin)
    borders = [len(parts)]
    while borders[-1] > 0:
        borders.append(origins[borders[-1]])
    return borders[::-1]


def _passages(document: Document, pieces: Sequence[_Piece]) -> list[Passage]:
    return [
        Passage(
            id=passage_id(document.page, piece.start, piece.end),
            page=document.page,
            title=document.title,
            headings=piece.section.headings,
            text=document.text[piece.start : piece.end],
            start=piece.start,
            end=piece.end,
            sheet=piece.section.sheet,
        )
        for piece in sorted(pieces, key=lambda piece: piece.start)
    ]


def _notices(document: Document, pieces: Sequence[_Piece], n_too_long: int, max_tokens: int) -> list[str]:
    notices = []
    if not pieces:
        notices.append(f"{document.page} is blank; no passage was made of it")
    if n_too_long:
        notices.append(
            f"{document.page}: {n_too_long} passages of more than {max_tokens} encoder tokens were split further; "
            "no text was left out"
        )
    read = {piece.section.sheet for piece in pieces}
    empty = {section.sheet for section in document.sections if section.sheet and section.sheet not in read}
    if empty and pieces:
        numbers = ", ".join(str(sheet) for sheet in sorted(filter(None, empty)))
        notices.append(f"{document.page}: no text on page {numbers}; if it is a picture, run OCR and add it again")
    return notices
