"""The Protocols: every part of byheart, on one page.

Owns no behaviour. A part implements one of these; `engine` and `knowledge` know nothing else of it.
Dimension names are the same everywhere: batch tokens width passages vocab.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from byheart.decisions import Decision
from byheart.reports import Progress, no_progress
from byheart.types import Draft, Hit, Passage, Question, Recall

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SparseVector:
    """BM25 weights of a passage, or inverse document frequencies of a question.

    Attributes:
        terms: Term numbers, ascending, without repetition. Shape `vocab'`.
        weights: One weight per term, finite and positive. Shape `vocab'`.
    """

    terms: Integers
    weights: Floats


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A passage as an engine sees it.

    Attributes:
        passage_id: Id of the passage.
        dense: Unit vector. Shape `width`.
        sparse: BM25 weights.
    """

    passage_id: str
    dense: Floats
    sparse: SparseVector


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader is given for one question.

    Attributes:
        question: What is asked.
        passages: What retrieval returned, best first; may be empty (closed book).
        scores: Fused retrieval scores, one per passage.
    """

    question: Question
    passages: tuple[Passage, ...] = ()
    scores: tuple[float, ...] = ()


class Encoder(Protocol):
    """Turns text into unit vectors."""

    @property
    def name(self) -> str:
        """Name of the model, as in the configuration."""

    @property
    def fingerprint(self) -> str:
        """Hash of the weights, the tokenizer and the pooling: two encoders with one fingerprint agree."""

    @property
    def width(self) -> int:
        """Length of a vector."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, special tokens included."""

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one unit vector per question. Shape `batch width`."""

    def encode_passages(self, texts: Sequence[str], progress: Progress = no_progress) -> Floats:
        """Return one unit vector per passage. Shape `batch width`."""


class VectorIndex(Protocol):
    """Stores a dense and a sparse vector per passage and multiplies; knows no text and no BM25."""

    def add(self, entries: Sequence[IndexEntry]) -> None:
        """Store the entries; an id that is there already is replaced."""

    def remove(self, passage_ids: Sequence[str]) -> None:
        """Delete the entries; ids that are not there are ignored."""

    def fetch(self, passage_ids: Sequence[str]) -> list[IndexEntry]:
        """Return the entries with these ids, in this order; PassageError names one that is missing."""

    def search_dense(self, queries: Floats, k: int) -> list[list[tuple[str, float]]]:
        """Return per query up to `k` ids by falling inner product, ties by id. `queries` has shape `batch width`."""

    def search_sparse(self, queries: Sequence[SparseVector], k: int) -> list[list[tuple[str, float]]]:
        """Return per query up to `k` ids with an inner product above zero, falling, ties by id."""

    def ids(self) -> list[str]:
        """Return all ids, ascending."""


class Retriever(Protocol):
    """Ranks passages for questions."""

    def search(self, questions: Sequence[Question], queries: Floats, k: int) -> list[tuple[Hit, ...]]:
        """Return per question up to `k` hits, best first. `queries` has shape `batch width`."""


class Reader(Protocol):
    """Answers from passages, and gives the probability of a given answer."""

    @property
    def name(self) -> str:
        """Name of the reader, as in the configuration."""

    def read(self, readings: Sequence[Reading]) -> list[Draft]:
        """Return one draft per reading; what it cites is a subset of what it used."""

    def score(self, readings: Sequence[Reading], answers: Sequence[Sequence[str]]) -> list[Floats]:
        """Return natural-log probabilities of given answers. Shapes `passages answers`, closed book `1 answers`."""


@runtime_checkable
class Limited(Protocol):
    """A reader that cannot take every question."""

    def check(self, questions: Sequence[Question]) -> None:
        """Raise QuestionError for the first question that it cannot read, before anything is paid for."""


class Memory(Protocol):
    """Recalls facts; call it while an epoch is held."""

    def recall_held(self, questions: Sequence[Question], queries: Floats) -> list[Recall]:
        """Return one recall per question, with citations. `queries` has shape `batch width`."""

    def grounds(
        self, questions: Sequence[Question], queries: Floats, recalls: Sequence[Recall], n: int
    ) -> list[tuple[tuple[Passage, float], ...]]:
        """Return per question up to `n` passages that facts rest on, what is recalled first, with cosines."""


class Router(Protocol):
    """Decides which way questions go; call it while an epoch is held."""

    def route(self, questions: Sequence[Question], recalls: Sequence[Recall]) -> list[Decision]:
        """Return one decision per question, from numbers alone: nothing is retrieved or generated for it."""


class Passages(Protocol):
    """Looks passages up by id."""

    def passages(self, passage_ids: Sequence[str]) -> list[Passage]:
        """Return the passages with these ids, in this order; PassageError names one that is missing."""
