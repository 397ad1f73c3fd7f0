"""What the compact reader's network sees, a question beside a stretch of one or more passages, and the kinds it tells.

Owns how token ids are laid out and how a token finds back to a character of a passage. Cuts no text: a passage longer
than a window continues in the next one. Of a heading path it shows at most a quarter of a window. Knows no network.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from byheart.errors import ConfigError, QuestionError
from byheart.interfaces import Reading
from byheart.types import Kind, Passage, Question

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENS = 384
MAX_QUESTION_TOKENS = 256
OVERLAP_TOKENS = 32


class AnswerKind(enum.IntEnum):
    """What kind of answer a window gives; its columns in the network's kind head."""

    SPAN = 0
    YES = 1
    NO = 2
    NONE = 3


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a passage's own text, which an answer may begin or end with.

    Attributes:
        passage: Position of the passage in the reading.
        start: First character in the passage's text.
        end: One past the last character.
    """

    passage: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Window:
    """One row of the network's batch.

    Attributes:
        ids: Token ids: [CLS] question [SEP] passages [SEP].
        segments: 0 for the question's part, 1 for the passages'.
        tokens: Per token its place in a passage, None for question, titles and separators.
        passages: Positions of the passages that the window holds.
    """

    ids: tuple[int, ...]
    segments: tuple[int, ...]
    tokens: tuple[Token | None, ...]
    passages: tuple[int, ...]


class WindowBuilder:
    """Lays readings out for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Look up the special tokens.

        Args:
            tokenizer: A BERT-style tokenizer.
        """
        self.tokenizer = tokenizer
        self.cls, self.sep = (_special(tokenizer, name) for name in ("[CLS]", "[SEP]"))

    def build(self, reading: Reading) -> list[Window]:
        """Return the windows of a reading.

        A question gets one window per passage; a claim gets its passages side by side, for evidence adds up.

        Args:
            reading: Question and passages; without passages there is one window that holds the question alone.

        Returns:
            At least one window; every passage token is in one of them.

        Raises:
            QuestionError: The question is longer than a window allows.
        """
        question = self.question_ids(reading.question)
        pieces = [
            piece
            for position, passage in enumerate(reading.passages)
            for piece in self._pieces(position, passage, MAX_TOKENS - len(question) - 3)
        ]
        together = reading.question.kind is Kind.CLAIM
        groups = _pack(pieces, MAX_TOKENS - len(question) - 3) if together else [[piece] for piece in pieces]
        return [self._window(question, group) for group in groups or [[]]]

    def question_ids(self, question: Question) -> list[int]:
        """Return a question's token ids.

        Args:
            question: A question or claim.

        Returns:
            Ids without special tokens.

        Raises:
            QuestionError: The question is longer than a window allows.
        """
        ids: list[int] = self.tokenizer.encode(question.text, add_special_tokens=False).ids
        if len(ids) > MAX_QUESTION_TOKENS:
            raise QuestionError(
                f'the question "{question.text[:40]}…" has {len(ids)} tokens, the compact reader reads '
                f"{MAX_QUESTION_TOKENS}; shorten it, or set reader.name to causal-lm or openai"
            )
        return ids

    def _pieces(self, position: int, passage: Passage, room: int) -> list[_Piece]:
        """Return a passage's tokens in stretches of at most `room`, each led by the heading path."""
        title = self.tokenizer.encode(passage.heading_path, add_special_tokens=False).ids[: room // 4]
        encoding = self.tokenizer.encode(passage.text, add_special_tokens=False)
        ids, offsets = encoding.ids, encoding.offsets
        step = room - len(title) - 1
        pieces = []
        first = 0
        while True:
            places = [Token(position, *offset) for offset in offsets[first : first + step]]
            pieces.append(_Piece(position, [*title, *ids[first : first + step]], [*[None] * len(title), *places]))
            if first + step >= len(ids):
                return pieces
            first += step - OVERLAP_TOKENS

    def _window(self, question: list[int], group: list[_Piece]) -> Window:
        ids = [self.cls, *question, self.sep]
        n_question = len(ids)
        tokens: list[Token | None] = [None] * n_question
        for piece in group:
            ids += [*piece.ids, self.sep]
            tokens += [*piece.tokens, None]
        segments = [0] * n_question + [1] * (len(ids) - n_question)
        passages = tuple(dict.fromkeys(piece.passage for piece in group))
        return Window(tuple(ids), tuple(segments), tuple(tokens), passages)


@dataclass(frozen=True, slots=True)
class _Piece:
    passage: int
    ids: list[int]
    tokens: list[Token | None]


def _special(tokenizer: Tokenizer, name: str) -> int:
    number = tokenizer.token_to_id(name)
    if number is None:
        raise ConfigError(f"the tokenizer has no {name}; the compact reader needs a BERT-style model as its base")
    return number


def _pack(pieces: Sequence[_Piece], room: int) -> list[list[_Piece]]:
    """Return the pieces in order, as many to a group as fit, separators counted."""
    groups: list[list[_Piece]] = []
    used = room + 1
    for piece in pieces:
        size = len(piece.ids) + 1
        if used + size > room:
            groups.append([])
            used = 0
        groups[-1].append(piece)
        used += size
    return groups


def token_spans(window: Window, passage: int, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the token positions, first and last, that cover character spans of one passage.

    Args:
        window: The window.
        passage: Position of the passage in the reading.
        spans: Character starts and ends in the passage's text.

    Returns:
        One pair per span that lies whole in the window.
    """
    places = [(i, t) for i, t in enumerate(window.tokens) if t is not None and t.passage == passage]
    found = []
    for start, end in spans:
        inside = [i for i, t in places if t.start < end and t.end > start]
        if inside and dict(places)[inside[0]].start <= start and dict(places)[inside[-1]].end >= end:
            found.append((inside[0], inside[-1]))
    return found
