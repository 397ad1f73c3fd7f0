"""A small, fast, exact stand-in for every Protocol: for tests, examples and trying byheart out without torch.

Owns behaviour that a reader can predict by hand: texts are alike when they share words. Knows only words and contract.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from byheart.decisions import Chance, Decision
from byheart.errors import PassageError
from byheart.interfaces import Floats, IndexEntry, Reading, SparseVector
from byheart.reports import Progress, no_progress
from byheart.types import Citation, Draft, Fact, FactShare, Hit, Kind, Passage, Question, Recall, Route, Verdict

T = TypeVar("T")
WIDTH = 32
_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_ENGLISH = "a an and are at by do does for how in is it of on or the to was what when where who why"
_FUNCTION_WORDS = frozenset(_ENGLISH.split())


def stems(text: str) -> list[str]:
    """Return the words of `text` in lower case without common English endings; function words are left out.

    Args:
        text: Any text.

    Returns:
        Stems in order, with repetition.
    """
    words = (word for word in _WORD.findall(text.casefold()) if word not in _FUNCTION_WORDS)
    return [re.sub(r"(?<=\w{3})(ies|ing|ed|es|s|e|y)$", "", word) for word in words]


class FakeEncoder:
    """An `Encoder` whose vectors are sums of one pseudo-random direction per stem: shared words make texts near."""

    def __init__(self, seed: str = "") -> None:
        """Choose the directions.

        Args:
            seed: Encoders of different seeds disagree, and have different fingerprints.
        """
        self.seed = seed

    @property
    def name(self) -> str:
        """`fake`."""
        return "fake"

    @property
    def fingerprint(self) -> str:
        """A hash of the seed."""
        return hashlib.sha256(f"fake {WIDTH} {self.seed}".encode()).hexdigest()[:16]

    @property
    def width(self) -> int:
        """Length of a vector, 32."""
        return WIDTH

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of words and marks of each text, and two special tokens."""
        return [len(re.findall(r"\w+|[^\w\s]", text)) + 2 for text in texts]

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one unit vector per question. Shape `batch width`."""
        return self._encode(texts)

    def encode_passages(self, texts: Sequence[str], progress: Progress = no_progress) -> Floats:
        """Return one unit vector per passage. Shape `batch width`."""
        vectors = self._encode(texts)
        progress(len(texts), len(texts), "passages encoded")
        return vectors

    def _encode(self, texts: Sequence[str]) -> Floats:
        rows = [self._vector(text) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, WIDTH), np.float32)

    def _vector(self, text: str) -> Floats:
        total = np.zeros(WIDTH, np.float64)
        for stem in stems(text) or [""]:
            digest = hashlib.blake2b(f"{self.seed} {stem}".encode(), digest_size=WIDTH).digest()
            total += np.frombuffer(digest, np.uint8) - 127.5
        unit: Floats = (total / np.linalg.norm(total)).astype(np.float32)
        return unit


class FakeIndex:
    """A `VectorIndex` that multiplies every entry, one after the other: the slow, obvious reference."""

    def __init__(self) -> None:
        """Start empty."""
        self.entries: dict[str, IndexEntry] = {}

    def add(self, entries: Sequence[IndexEntry]) -> None:
        """Store the entries; an id that is there already is replaced."""
        self.entries |= {entry.passage_id: entry for entry in entries}

    def remove(self, passage_ids: Sequence[str]) -> None:
        """Delete the entries; ids that are not there are ignored."""
        for passage_id in passage_ids:
            self.entries.pop(passage_id, None)

    def fetch(self, passage_ids: Sequence[str]) -> list[IndexEntry]:
        """Return the entries with these ids, in this order; PassageError names one that is missing."""
        return [_found(self.entries, passage_id) for passage_id in passage_ids]

    def search_dense(self, queries: Floats, k: int) -> list[list[tuple[str, float]]]:
        """Return per query up to `k` ids by falling inner product, ties by id. `queries` has shape `batch width`."""
        return [_best({i: float(e.dense @ query) for i, e in self.entries.items()}, k) for query in queries]

    def search_sparse(self, queries: Sequence[SparseVector], k: int) -> list[list[tuple[str, float]]]:
        """Return per query up to `k` ids with an inner product above zero, falling, ties by id."""
        rankings = []
        for query in queries:
            scores = {i: _product(entry.sparse, query) for i, entry in self.entries.items()}
            rankings.append(_best({i: score for i, score in scores.items() if score > 0}, k))
        return rankings

    def ids(self) -> list[str]:
        """Return all ids, ascending."""
        return sorted(self.entries)


class FakeRetriever:
    """A `Retriever`, and `Passages`, over a few passages: a hit shares words with the question."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        """Keep the passages.

        Args:
            passages: What can be found.
        """
        self.by_id = {passage.id: passage for passage in passages}

    def search(self, questions: Sequence[Question], queries: Floats, k: int) -> list[tuple[Hit, ...]]:
        """Return per question up to `k` hits, best first: the share of the question's words in the passage."""
        return [self._ranked(question, k) for question in questions]

    def passages(self, passage_ids: Sequence[str]) -> list[Passage]:
        """Return the passages with these ids, in this order; PassageError names one that is missing."""
        return [_found(self.by_id, passage_id) for passage_id in passage_ids]

    def _ranked(self, question: Question, k: int) -> tuple[Hit, ...]:
        shares = {i: _overlap(question.text, passage.indexed_text) for i, passage in self.by_id.items()}
        best = _best({i: share for i, share in shares.items() if share > 0}, k)
        return tuple(Hit(passage_id, share, share, share) for passage_id, share in best)


class FakeReader:
    """A `Reader` whose answer is the sentence that shares most words with the question."""

    @property
    def name(self) -> str:
        """`fake`."""
        return "fake"

    def check(self, questions: Sequence[Question]) -> None:
        """Take every question."""

    def read(self, readings: Sequence[Reading]) -> list[Draft]:
        """Return one draft per reading: a sentence, word for word, or none when no word is shared.

        Args:
            readings: Questions and claims with their passages.

        Returns:
            Drafts in order; a claim is supported by a sentence that holds all its words.
        """
        return [_draft(reading) for reading in readings]

    def score(self, readings: Sequence[Reading], answers: Sequence[Sequence[str]]) -> list[Floats]:
        """Return natural-log probabilities of given answers. Shapes `passages answers`, closed book `1 answers`."""
        return [
            np.array(
                [[math.log(0.05 + 0.9 * _overlap(answer, text)) for answer in given] for text in _texts(reading)]
            ).astype(np.float32)
            for reading, given in zip(readings, answers, strict=True)
        ]


def _texts(reading: Reading) -> list[str]:
    return [passage.text for passage in reading.passages] or [""]


def _draft(reading: Reading) -> Draft:
    used = tuple(passage.id for passage in reading.passages)
    n_tokens = sum(len(passage.text.split()) for passage in reading.passages)
    cited = max(_citations(reading), key=lambda pair: pair[0], default=(0.0, None))
    share, citation = cited
    if citation is None or share == 0:
        return Draft(None, 0.0, (), used, n_tokens)
    text = citation.text
    if reading.question.kind is Kind.CLAIM:
        text = (Verdict.SUPPORTS if share == 1 else Verdict.REFUTES).value
    return Draft(text, share, (citation,), used, n_tokens)


def _citations(reading: Reading) -> Iterator[tuple[float, Citation]]:
    for passage in reading.passages:
        for match in _SENTENCE.finditer(passage.text):
            sentence = match.group().strip()
            start = passage.start + match.start() + match.group().find(sentence)
            place = (passage.title, start, start + len(sentence), sentence, passage.sheet)
            yield _overlap(reading.question.text, sentence), Citation(passage.id, passage.page, *place)


def _overlap(wanted: str, text: str) -> float:
    """Return the share of the distinct stems of `wanted` that `text` holds."""
    needed = set(stems(wanted))
    return len(needed & set(stems(text))) / len(needed) if needed else 0.0


def _best(scores: dict[str, float], k: int) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


def _product(passage: SparseVector, query: SparseVector) -> float:
    weights = dict(zip(passage.terms.tolist(), passage.weights.tolist(), strict=True))
    asked = zip(query.terms.tolist(), query.weights.tolist(), strict=True)
    return float(sum(weights.get(term, 0.0) * weight for term, weight in asked))


def _found(held: dict[str, T], passage_id: str) -> T:
    if passage_id not in held:
        raise PassageError(f"there is no passage {passage_id!r}; search again for its new id")
    return held[passage_id]


class FakeMemory:
    """Recalls a fact when it is asked letter by letter, whatever the case."""

    def __init__(self, facts: Sequence[Fact], citations: Sequence[Citation] = ()) -> None:
        """Keep the facts.

        Args:
            facts: Facts with texts.
            citations: Where they stand; a fact is cited by those of its page.
        """
        self.facts, self.citations = tuple(facts), tuple(citations)

    def recall_held(self, questions: Sequence[Question], queries: Floats) -> list[Recall]:
        """Return one recall per question.

        Args:
            questions: What is asked.
            queries: Not looked at. Shape `batch width`.

        Returns:
            Probability .98 for the fact whose question this is, 1 for *not known* where there is none.
        """
        return [self._recall(question) for question in questions]

    def grounds(
        self, questions: Sequence[Question], queries: Floats, recalls: Sequence[Recall], n: int
    ) -> list[tuple[tuple[Passage, float], ...]]:
        """Return what recalled facts are cited with, as passages."""
        return [
            tuple(
                (Passage(c.passage_id, c.page, c.title, (), c.text, c.start, c.end), 1.0) for c in recall.citations[:n]
            )
            for recall in recalls
        ]

    def _recall(self, question: Question) -> Recall:
        wanted = question.text.casefold()
        found = next((fact for fact in self.facts if wanted in {text.casefold() for text in fact.questions}), None)
        if found is None:
            return Recall(question, None, 0.0, 1.0)
        places = tuple(place for place in self.citations if place.page == found.source.page)
        return Recall(question, found.answer, 0.98, 0.02, (FactShare(found.id, 0.98, 1.0),), found, places)


class FakeRouter:
    """Takes memory's word where it is sure, and looks up everything else."""

    def __init__(self, threshold: float = 0.5) -> None:
        """Keep the threshold.

        Args:
            threshold: Least probability at which memory answers.
        """
        self.threshold = threshold

    def route(self, questions: Sequence[Question], recalls: Sequence[Recall]) -> list[Decision]:
        """Return one decision per question.

        Args:
            questions: What is asked.
            recalls: What memory says.

        Returns:
            Memory or retrieval.
        """
        sure = [recall.probability >= self.threshold for recall in recalls]
        return [
            Decision(
                Route.MEMORY if is_sure else Route.RETRIEVAL,
                (Chance(Route.MEMORY, recall.probability, 0.0), Chance(Route.RETRIEVAL, 0.7, 1.0)),
            )
            for recall, is_sure in zip(recalls, sure, strict=True)
        ]
