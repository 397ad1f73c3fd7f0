"""What joint training is offered: numbers of memory, of its words and of retrieval, the own fact seen and hidden."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from byheart.config import TrainConfig
from byheart.decisions import Route, Wishes
from byheart.errors import ConfigError, FormatError, VectorIndexError
from byheart.fakes import WIDTH, FakeEncoder, FakeReader
from byheart.folder import init
from byheart.gate.gate import Gate
from byheart.knowledge import KnowledgeBase
from byheart.offering import Offer
from byheart.reports import no_progress
from byheart.retrieval.adapter import QueryAdapter
from byheart.train.joint import laid_out, objective, starting_parts
from byheart.types import Document, Kind, NewFact, Question

OPEN, CLOSE = "When does the library of Korva open?", "When does the library of Korva close?"
CLAIM, OTHER = "The tower of Tarn is tall.", "The tower of Tarn is old."
FACTS = [
    NewFact(OPEN, "At nine.", evidence="The library of Korva opens at nine.", id="open"),
    NewFact(CLOSE, "At six.", id="close"),
    NewFact(CLAIM, "SUPPORTS", evidence="The tall tower of Tarn has 90 steps.", id="tall", kind=Kind.CLAIM),
    NewFact(OTHER, "SUPPORTS", id="old", kind=Kind.CLAIM),
]
TEXTS = ("The library of Korva opens at nine.", "Puffins nest in April.", "The ferry to Ostrel leaves at seven.")


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeBase]:
    with init(tmp_path_factory.mktemp("offering") / "kb", encoder=FakeEncoder(), reader=FakeReader()) as made:
        assert len(made.learn(FACTS).memorised) == len(FACTS)
        made.add_documents([Document(f"d{i}", "", text) for i, text in enumerate(TEXTS)])
        yield made


def offer(kb: KnowledgeBase, question: Question, *gold: str) -> Offer:
    return kb.asking.offers([question], [gold], no_progress)[0]


def test_an_offers_scores_are_memorys_own_probabilities(kb: KnowledgeBase) -> None:
    question = Question(OPEN)
    found, recall = offer(kb, question, "At nine."), kb.recall_many([question])[0]
    slots = objective(
        starting_parts(WIDTH, TrainConfig()),
        laid_out([found], TrainConfig(leave_one_out=0.0)),
        TrainConfig(),
        0.7,
        None,
    ).slots
    shares = [*(share.probability for share in recall.shares), recall.not_known]
    assert slots[0].tolist() == pytest.approx(shares, abs=1e-4)
    assert found.evidence[0].probability == pytest.approx(recall.probability, abs=1e-4)
    assert (found.is_right[0], found.is_own[0], found.gaps[0]) == (1, 1, 0)
    assert (found.gaps >= 0).all()


def test_hidden_the_own_fact_leaves_its_rivals_and_not_known_in_their_shares(kb: KnowledgeBase) -> None:
    found = offer(kb, Question(OPEN), "At nine.")
    seen, hidden = found.evidence
    assert hidden.candidates == seen.candidates - 1
    assert hidden.probability < 0.5 < seen.probability
    assert seen.cited
    assert not hidden.cited  # the neighbour that closes has no words
    odds = [math.exp(s) for s, own in zip(found.scores, found.is_own, strict=True) if not own]
    assert hidden.probability == pytest.approx(max([0.0, *odds]) / (1 + sum(odds)), abs=1e-4)
    assert hidden.known_terms == seen.known_terms


def test_a_question_is_about_the_fact_with_its_answer_and_a_claim_about_itself_only(kb: KnowledgeBase) -> None:
    reworded = offer(kb, Question("library of Korva opening time"), "at nine")
    assert reworded.is_own.tolist() == reworded.is_right.tolist()
    claim = offer(kb, Question(CLAIM, Kind.CLAIM), "SUPPORTS")
    assert claim.is_own.sum() == 1  # the other claim has the same verdict, and is another claim
    assert claim.is_right.sum() == len(claim.is_right)
    assert claim.evidence[1].candidates == len(claim.is_own) - 1
    assert offer(kb, Question("The tower of Tarn is a tall one.", Kind.CLAIM), "SUPPORTS").is_own.sum() == 0


def test_the_words_of_a_fact_are_read_and_those_of_a_hidden_one_are_not(kb: KnowledgeBase) -> None:
    found = offer(kb, Question(CLAIM, Kind.CLAIM), "SUPPORTS")
    assert len(found.grounds) == len(found.owners) == 1
    assert found.is_own[found.owners[0]] == 1
    hidden = laid_out([found], TrainConfig(leave_one_out=1.0))
    assert not hidden.has_grounds.any()
    assert not hidden.is_open[0, 1]


def test_retrieval_offers_what_search_finds_with_the_likelihood_of_the_best_right_answer(kb: KnowledgeBase) -> None:
    question = Question("When does the ferry to Ostrel leave?")
    found, hits = offer(kb, question, "nowhere", "at seven"), kb.search(question.text, k=kb.config.reader.passages)
    assert list(found.passage_ids) == [hit.passage_id for hit, _ in hits]
    best = found.passage_ids.index(next(p.id for _, p in hits if "seven" in p.text))
    assert found.reads[best] == pytest.approx(math.log(0.95), abs=1e-5)  # both words are there
    weight = kb.asking.dense_weight()
    fused = weight * found.vectors @ found.query + (1 - weight) * found.lexical
    assert fused == pytest.approx(np.array([hit.score for hit, _ in hits]), abs=1e-4)


def test_offers_are_the_same_alone_and_in_a_batch_and_progress_is_told(kb: KnowledgeBase) -> None:
    questions = [Question(OPEN), Question("xyzzy plugh"), Question(CLAIM, Kind.CLAIM)] * 7
    gold, told = [["At nine."], ["x"], ["SUPPORTS"]] * 7, list[int]()
    together = kb.asking.offers(questions, gold, lambda done, total, what: told.append(done))
    assert told == [16, 21]
    for question, given, batched in zip(questions[:3], gold, together, strict=False):
        alone = offer(kb, question, *given)
        assert alone.passage_ids == batched.passage_ids
        for name in ("query", "scores", "gaps", "is_right", "is_own", "grounds", "vectors", "lexical", "reads"):
            assert getattr(alone, name) == pytest.approx(getattr(batched, name), abs=0.05)
    assert kb.asking.offers([], [], no_progress) == []


def test_decisions_are_those_of_asking_and_nothing_is_read(kb: KnowledgeBase) -> None:
    questions = [Question(OPEN), Question("When does the ferry to Ostrel leave?")]
    decisions, refused = kb.asking.decide_many(questions, [Wishes(), Wishes(risk=0.01)])
    assert isinstance(decisions, list)
    assert isinstance(refused, ConfigError)
    answers = kb.ask_many(questions)
    assert [decision.route for decision in decisions] == [Route.MEMORY, Route.RETRIEVAL]
    assert [a.decision.chances for a in answers if a.decision] == [decision.chances for decision in decisions]


def test_installed_parts_are_one_epoch_and_an_old_promise_is_gone(tmp_path: Path) -> None:
    adapter = QueryAdapter(np.eye(WIDTH, 2, dtype=np.float32), np.ones((2, WIDTH), np.float32))
    with init(tmp_path / "kb", encoder=FakeEncoder(), reader=FakeReader()) as kb:
        kb.add_documents([Document(f"d{i}", "", text) for i, text in enumerate(TEXTS)])
        before, scores = kb.epoch, [hit.score for hit, _ in kb.search("ferry to Ostrel")]
        assert kb.asking.install(Gate.default(), adapter, (1.0, 0.0, 0.0)) == before + 1
        held = kb.asking.adapter()
        assert held is not None
        assert held.to_json() == adapter.to_json()
        assert [hit.score for hit, _ in kb.search("ferry to Ostrel")] != scores
        kb.asking.install(Gate.default(), None, (1.0, 0.0, 0.0))
        assert kb.asking.adapter() is None
        assert [hit.score for hit, _ in kb.search("ferry to Ostrel")] == scores


def test_an_adapter_comes_back_bit_for_bit_and_a_damaged_or_wrong_one_is_named() -> None:
    rng = np.random.default_rng(3)
    adapter = QueryAdapter(*(rng.normal(size=shape).astype(np.float32) for shape in ((8, 2), (2, 8))))
    text = adapter.to_json()
    back = QueryAdapter.from_json(text, 8)
    assert back.down.tobytes() == adapter.down.tobytes()
    assert back.up.tobytes() == adapter.up.tobytes()
    with pytest.raises(FormatError, match="length 8, the encoder gives 9"):
        QueryAdapter.from_json(text, 9)
    held = json.loads(text)
    for damaged in ("{", "[]", "{}", json.dumps({**held, "rank": 3}), json.dumps({**held, "up": "AAAA"})):
        with pytest.raises(FormatError, match="cannot be read"):
            QueryAdapter.from_json(damaged, 8)
    with pytest.raises(VectorIndexError, match="NaN"):
        QueryAdapter(adapter.down, np.full((2, 8), np.nan, np.float32))
