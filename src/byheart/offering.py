"""What each route has to offer a question whose answer is known: the numbers that joint training learns from.

Owns how recalls, hits and the reader's likelihoods become arrays. They are made once and cached by the caller: the
networks behind them do not change while the small parts are trained. Part of the composition root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from byheart.decisions import Evidence
from byheart.facts import Facts
from byheart.interfaces import Encoder, Floats, Reader, Reading
from byheart.library import Library
from byheart.reader.wording import answer_key
from byheart.reports import Progress
from byheart.text.question_keys import question_key
from byheart.types import Fact, Kind, Passage, Question, Recall

BATCH = 16
_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Offer:
    """What the routes offer one question.

    Attributes:
        query: The question's vector. Shape `width`.
        evidence: What the gate sees.
        scores: Log-odds of each candidate fact against *not known*, as calibrated now. Shape `candidates`.
        gaps: How much farther each lies than the nearest, in cosine. Shape `candidates`.
        is_right: Whether its answer is the right one. Shape `candidates`.
        grounds: Natural-log likelihoods of the right answer beside the words that route *both* reads. Shape `grounds`.
        near: Cosines of the facts these are of. Shape `grounds`.
        passage_ids: Passages that retrieval offers.
        vectors: Their vectors. Shape `passages width`.
        lexical: Their share of the BM25 score the question could reach. Shape `passages`.
        reads: Natural-log likelihoods of the right answer beside each. Shape `passages`.
    """

    query: Floats
    evidence: Evidence
    scores: Floats
    gaps: Floats
    is_right: Floats
    grounds: Floats
    near: Floats
    passage_ids: tuple[str, ...]
    vectors: Floats
    lexical: Floats
    reads: Floats


@dataclass(frozen=True, slots=True)
class Offering:
    """Makes offers from one knowledge base.

    Attributes:
        facts: Facts and their slots.
        library: Passages and their index.
        encoder: Gives the encoder.
        reader: Gives the reader.
        evidence: Gives the gate's evidence, inside an open transaction.
        n_passages: Passages read per question.
        n_grounds: Passages of facts read per question.
    """

    facts: Facts
    library: Library
    encoder: Callable[[], Encoder]
    reader: Callable[[], Reader]
    evidence: Callable[[Sequence[Question], Sequence[Recall]], list[Evidence]]
    n_passages: int
    n_grounds: int

    def offers(
        self, questions: Sequence[Question], gold: Sequence[Sequence[str]], hide: Sequence[bool], progress: Progress
    ) -> list[Offer]:
        """Return what the routes offer questions.

        Args:
            questions: Questions and claims.
            gold: Accepted answers of each, at least one.
            hide: Whether memory is to answer each as if it had never learned the question's own fact: leave-one-out.
            progress: Told of every batch.

        Returns:
            Offers in order.
        """
        found: list[Offer] = []
        for first in range(0, len(questions), BATCH):
            part = slice(first, first + BATCH)
            found += self._batch(questions[part], gold[part], hide[part])
            progress(len(found), len(questions), "questions read for training")
        return found

    def _batch(self, questions: Sequence[Question], gold: Sequence[Sequence[str]], hide: Sequence[bool]) -> list[Offer]:
        queries = self.encoder().encode_queries([question.text for question in questions])
        with self.library.hold():
            recalls, hidden = self._recalled(questions, gold, queries, hide)
            held = [[self.facts.ledger.fact(share.fact_id) for share in recall.shares] for recall in recalls]
            evidence = self.evidence(questions, recalls)
            words = self.facts.grounds(questions, queries, recalls, self.n_grounds, hidden)
            hits = self.library.search(questions, queries, self.n_passages)
            passages = [self.library.passages([hit.passage_id for hit in of_one]) for of_one in hits]
            vectors = [self.library.index.fetch([hit.passage_id for hit in of_one]) for of_one in hits]
            most = [{c.passage_id: c.share for c in of_one} for of_one in self.library.candidates(questions, queries)]
        reads = self._likelihoods(questions, gold, passages)
        grounds = self._likelihoods(questions, gold, [[passage for passage, _ in of_one] for of_one in words])
        width = queries.shape[1]
        return [
            Offer(
                query=queries[i],
                evidence=evidence[i],
                scores=_floats(math.log((s.probability + _LEAST) / (recalls[i].not_known + _LEAST)) for s in shares),
                gaps=_floats(max(s.cosine for s in shares) - share.cosine for share in shares),
                is_right=_floats(_is_right(fact, gold[i]) for fact in held[i]),
                grounds=grounds[i],
                near=_floats(cosine for _, cosine in words[i]),
                passage_ids=tuple(hit.passage_id for hit in hits[i]),
                vectors=np.stack([one.dense for one in vectors[i]]) if hits[i] else np.zeros((0, width), np.float32),
                lexical=_floats(most[i].get(hit.passage_id, 0.0) for hit in hits[i]),
                reads=reads[i],
            )
            for i, shares in enumerate(recall.shares for recall in recalls)
        ]

    def _recalled(
        self, questions: Sequence[Question], gold: Sequence[Sequence[str]], queries: Floats, hide: Sequence[bool]
    ) -> tuple[list[Recall], list[list[int]]]:
        """Return what memory says, and which facts it was not to see: those that hidden questions are about."""
        recalls = self.facts.recall_held(questions, queries)
        hidden: list[list[int]] = [[] for _ in questions]
        again = [i for i, out in enumerate(hide) if out]
        while again:  # another fact with the answer may move up
            own = {i: self._own(questions[i], gold[i], recalls[i]) for i in again}
            again = [i for i in again if own[i]]
            for i in again:
                hidden[i] += own[i]
            said = self.facts.recall_held([questions[i] for i in again], queries[again], [hidden[i] for i in again])
            anew = dict(zip(again, said, strict=True))
            recalls = [anew.get(i, recall) for i, recall in enumerate(recalls)]
        return recalls, hidden

    def _own(self, question: Question, gold: Sequence[str], recall: Recall) -> list[int]:
        """Return the facts a question is about: those it stands in, or, of a question, those with its answer."""
        ledger, key = self.facts.ledger, question_key(question.text)
        facts = [ledger.fact(share.fact_id) for share in recall.shares]
        is_claim = question.kind is Kind.CLAIM  # other claims share the verdict, and are not it
        return [
            ledger.number(fact.id)
            for fact in facts
            if key in {question_key(text) for text in fact.questions} or (not is_claim and _is_right(fact, gold))
        ]

    def _likelihoods(
        self, questions: Sequence[Question], gold: Sequence[Sequence[str]], passages: Sequence[Sequence[Passage]]
    ) -> list[Floats]:
        """Return the likelihood of the likeliest right answer, passage by passage; nothing where nothing is read."""
        rows = [i for i, of_one in enumerate(passages) if of_one]
        readings = [Reading(questions[i], tuple(passages[i]), (0.0,) * len(passages[i])) for i in rows]
        found = self.reader().score(readings, [gold[i] for i in rows]) if rows else []
        best: dict[int, Floats] = {i: scores.max(axis=1) for i, scores in zip(rows, found, strict=True)}
        return [best.get(i, np.zeros(0, np.float32)) for i in range(len(questions))]


def _is_right(fact: Fact, gold: Sequence[str]) -> bool:
    return fact.answer is not None and answer_key(fact.answer) in {answer_key(text) for text in gold}


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, np.float32)
