"""What joint training is offered: numbers of memory, of its words and of retrieval, the own fact seen and hidden."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from byheart.config import Config, TrainConfig
from byheart.decisions import Route, Wishes
from byheart.errors import ConfigError, FormatError, VectorIndexError
from byheart.fakes import WIDTH, FakeEncoder, FakeReader
from byheart.folder import init
from byheart.gate.gate import Gate
from byheart.interfaces import Floats, Reading
from byheart.knowledge import KnowledgeBase
from byheart.offering import Offer
from byheart.reports import no_progress
from byheart.retrieval.adapter import QueryAdapter
from byheart.train.joint import objective, starting_parts
from byheart.train.questions import laid_out
from byheart.types import Document, Draft, Kind, NewFact, Passage, Question, Recall

OPEN, CLOSE = "When does the library of Korva open?", "When does the library of Korva close?"
MANY = "When does the library of Lindwick open?"  # asked in so many ways that its slots crowd out all others
WAYS = (
    *("opening time", "opening hours", "hours of opening", "first hour", "morning hour", "start of day", "opens when"),
    *("door opening", "reading room opening", "hour it opens at", "open from what time", "time of opening", "opening"),
)
CLAIM, OTHER = "The tower of Tarn is tall.", "The tower of Tarn is old."
FACTS = [
    NewFact(OPEN, "At nine.", evidence="The library of Korva opens at nine.", id="open"),
    NewFact(CLOSE, "At six.", id="close"),
    NewFact(CLAIM, "SUPPORTS", evidence="The tall tower of Tarn has 90 steps.", id="tall", kind=Kind.CLAIM),
    NewFact(OTHER, "SUPPORTS", id="old", kind=Kind.CLAIM),
    NewFact(
        MANY,
        "At two.",
        tuple(f"library of Lindwick {way}" for way in WAYS),
        evidence="Lindwick reads from two.",
        id="many",
    ),
    *(
        NewFact(f"When does the library of {town} open?", f"At {hour}.", evidence=f"{town} reads from {hour}.", id=town)
        for town, hour in (("Ostrel", "ten"), ("Tarn", "eight"), ("Brisk", "seven"), ("Ulmo", "eleven"))
    ),
]
TEXTS = ("The library of Korva opens at nine.", "Puffins nest in April.", "The ferry to Ostrel leaves at seven.")
ASKED = {
    "own question": ("open", Question(OPEN), "At nine."),
    "reworded": ("open", Question("library of Korva opening time"), "at nine"),
    "no words": ("close", Question(CLOSE), "At six."),
    "many slots": ("many", Question(MANY), "At two."),
    "claim": ("tall", Question(CLAIM, Kind.CLAIM), "SUPPORTS"),
}
own_facts = pytest.mark.parametrize(("fact_id", "question", "answer"), ASKED.values(), ids=ASKED)


class Listening(FakeReader):
    """A reader that keeps what it is given to read and to score."""

    def __init__(self) -> None:
        self.read_last: list[Reading] = []
        self.scored: list[Reading] = []

    def read(self, readings: Sequence[Reading]) -> list[Draft]:
        self.read_last = list(readings)
        return super().read(readings)

    def score(self, readings: Sequence[Reading], answers: Sequence[Sequence[str]]) -> list[Floats]:
        self.scored += readings
        return super().score(readings, answers)


def made(path: Path, facts: Sequence[NewFact]) -> KnowledgeBase:
    config = Config().replace("memory.precision", "fp32")
    kb = init(path, config, encoder=FakeEncoder(), reader=Listening())
    assert len(kb.learn(facts).memorised) == len(facts)
    kb.add_documents([Document(f"d{i}", "", text) for i, text in enumerate(TEXTS)])
    return kb


@pytest.fixture(scope="module")
def kb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeBase]:
    with made(tmp_path_factory.mktemp("offering") / "kb", FACTS) as held:
        yield held


@pytest.fixture(scope="module", params=["open", "close", "many", "tall"])
def unlearned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, KnowledgeBase]]:
    """A fact, and a knowledge base that never learned it."""
    facts = [fact for fact in FACTS if fact.id != request.param]
    with made(tmp_path_factory.mktemp("unlearned") / "kb", facts) as held:
        yield request.param, held


def offer(kb: KnowledgeBase, question: Question, *gold: str, hide: bool = False) -> Offer:
    return kb.asking.offers([question], [gold], [hide], no_progress)[0]


Said = tuple[Recall, list[tuple[str, float]], tuple[tuple[Passage, float], ...]]


def said(kb: KnowledgeBase, question: Question, *hidden: str) -> Said:
    """Return what memory recalls, what is near, and what words there are, facts hidden by their ids."""
    queries = kb.encoder.encode_queries([question.text])
    with kb._database.read():
        out = [[kb.memory.ledger.number(fact_id) for fact_id in hidden]] if hidden else None
        [recall] = kb.memory.recall_held([question], queries, out)
        [near] = kb.memory.slots.nearest([question], kb.memory.encode([question.text]), 15, out)
        [words] = kb.memory.grounds([question], queries, [recall], 3, out)
        facts = kb.memory.ledger.by_numbers([number for number, _ in near])
        return recall, [(facts[number].id, cosine) for number, cosine in near], words


def places(recall: Recall) -> list[str]:
    return [share.fact_id for share in recall.shares]


def read_by_both(kb: KnowledgeBase, question: Question) -> Reading:
    """Return what the reader is given where a question goes both ways."""
    reader = kb.asking.reader()
    assert isinstance(reader, Listening)
    kb.ask_many([question], route=Route.BOTH)
    [reading] = reader.read_last
    return reading


def scored_words(kb: KnowledgeBase, question: Question, answer: str, hide: bool) -> tuple[Offer, Reading]:
    """Return an offer and what was scored last for it: the words beside facts."""
    reader = kb.asking.reader()
    assert isinstance(reader, Listening)
    reader.scored.clear()
    found = offer(kb, question, answer, hide=hide)
    assert len(reader.scored[-1].passages) == len(found.grounds)  # after what was searched for
    return found, reader.scored[-1]


def test_an_offers_scores_are_memorys_own_probabilities(kb: KnowledgeBase) -> None:
    question = Question(OPEN)
    found, recall = offer(kb, question, "At nine."), kb.recall_many([question])[0]
    slots = objective(starting_parts(WIDTH, TrainConfig()), laid_out([found]), TrainConfig(), 0.7, None).slots
    shares = [*(share.probability for share in recall.shares), recall.not_known]
    assert slots[0].tolist() == pytest.approx(shares, abs=1e-4)
    assert found.evidence.probability == pytest.approx(recall.probability, abs=1e-4)
    assert (found.is_right[0], found.gaps[0]) == (1, 0)
    assert (found.gaps >= 0).all()


# Leave-one-out: a fact that is hidden, beside knowledge bases that never learned it.


def test_hidden_facts_are_as_if_they_had_never_been_learned(
    kb: KnowledgeBase, unlearned: tuple[str, KnowledgeBase]
) -> None:
    fact_id, other = unlearned
    for _, question, _ in ASKED.values():
        (recall, near, words), (expected, nearest, read) = said(kb, question, fact_id), said(other, question)
        assert recall.answer == expected.answer
        assert places(recall) == places(expected)
        shares, wanted = ([(s.probability, s.cosine) for s in one.shares] for one in (recall, expected))
        assert np.array(shares) == pytest.approx(np.array(wanted), abs=1e-4)
        assert recall.not_known == pytest.approx(expected.not_known, abs=1e-4)
        assert [name for name, _ in near] == [name for name, _ in nearest]
        assert [cosine for _, cosine in near] == pytest.approx([cosine for _, cosine in nearest], abs=1e-5)
        assert [passage for passage, _ in words] == [passage for passage, _ in read]


def test_the_offer_of_a_hidden_fact_is_that_of_a_base_that_never_learned_it(
    kb: KnowledgeBase, unlearned: tuple[str, KnowledgeBase]
) -> None:
    fact_id, other = unlearned
    for own, question, answer in ASKED.values():
        if own != fact_id:
            continue
        found, expected = offer(kb, question, answer, hide=True), offer(other, question, answer)
        assert astuple(found.evidence) == pytest.approx(astuple(expected.evidence), abs=1e-3)
        for name in ("query", "scores", "gaps", "is_right", "grounds", "near", "vectors", "lexical", "reads"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-3), name
        assert found.passage_ids == expected.passage_ids  # documents are not hidden


def test_hiding_nothing_changes_nothing(kb: KnowledgeBase) -> None:
    question = Question(OPEN)
    queries = kb.encoder.encode_queries([OPEN])
    with kb._database.read():
        ways: tuple[list[list[int]] | None, ...] = (None, [[]], [[10_000]])
        for out in ways:
            [recall] = kb.memory.recall_held([question], queries, out)
            assert places(recall) == places(said(kb, question)[0])


def test_each_question_of_a_batch_has_its_own_hidden_facts(kb: KnowledgeBase) -> None:
    questions = [Question(OPEN), Question(OPEN), Question(MANY)]
    queries = kb.encoder.encode_queries([question.text for question in questions])
    with kb._database.read():
        out = [[kb.memory.ledger.number("open")], [], [kb.memory.ledger.number("many")]]
        recalls = kb.memory.recall_held(questions, queries, out)
    alone = (said(kb, Question(OPEN), "open"), said(kb, Question(OPEN)), said(kb, Question(MANY), "many"))
    assert [places(recall) for recall in recalls] == [places(recall) for recall, *_ in alone]


def test_further_candidates_move_up_where_the_own_fact_is_hidden(kb: KnowledgeBase) -> None:
    shown, hidden = said(kb, Question(MANY))[0], said(kb, Question(MANY), "many")[0]
    assert places(shown) == ["many"]  # the others were out of its reach
    assert len(places(hidden)) == kb.config.memory.candidates
    assert "many" not in places(hidden)
    found = offer(kb, Question(MANY), "At two.", hide=True)
    assert found.evidence.candidates == len(found.scores) == kb.config.memory.candidates
    assert min(found.gaps) == 0  # measured from the nearest that is left
    general = Question("When does the library open?")
    first = places(said(kb, general)[0])
    assert len(first) == kb.config.memory.candidates
    after = places(said(kb, general, first[0])[0])
    assert set(first[1:]) < set(after)  # the fifth takes the place that is free
    assert len(after) == len(first)


@own_facts
def test_memory_does_not_know_the_question_of_a_hidden_fact(
    kb: KnowledgeBase, fact_id: str, question: Question, answer: str
) -> None:
    seen, hidden = offer(kb, question, answer), offer(kb, question, answer, hide=True)
    assert hidden.evidence.probability < 0.5 < seen.evidence.probability
    assert hidden.evidence.known_terms == seen.evidence.known_terms
    assert places(said(kb, question)[0])[0] == fact_id
    if question.kind is Kind.QUESTION:
        assert seen.is_right.any()
        assert not hidden.is_right.any()


def test_a_question_is_about_the_fact_with_its_answer_and_a_claim_about_itself_only(kb: KnowledgeBase) -> None:
    seen, hidden = (offer(kb, Question(CLAIM, Kind.CLAIM), "SUPPORTS", hide=hide) for hide in (False, True))
    assert seen.evidence.cosine > 0.99 > hidden.evidence.cosine
    assert hidden.is_right.tolist() == [1]  # the other claim has the same verdict, and is another claim
    reworded = Question("The tower of Tarn is a tall one.", Kind.CLAIM)
    seen, hidden = (offer(kb, reworded, "SUPPORTS", hide=hide) for hide in (False, True))
    assert seen.scores.tolist() == pytest.approx(hidden.scores.tolist())
    seen, hidden = (offer(kb, Question(OPEN), "Never.", hide=hide) for hide in (False, True))
    assert len(hidden.scores) < len(seen.scores)  # the question stands in it, whatever its answer


@own_facts
def test_the_words_read_for_training_are_those_that_both_routes_read(
    kb: KnowledgeBase, fact_id: str, question: Question, answer: str
) -> None:
    found, scored = scored_words(kb, question, answer, hide=False)
    reading = read_by_both(kb, question)
    assert scored.passages == reading.passages
    assert found.near.tolist() == pytest.approx(reading.scores, abs=1e-5)
    assert found.grounds == pytest.approx(FakeReader().score([reading], [[answer]])[0][:, 0], abs=1e-5)


def test_the_words_read_beside_a_hidden_fact_are_those_of_a_base_that_never_learned_it(
    kb: KnowledgeBase, unlearned: tuple[str, KnowledgeBase]
) -> None:
    fact_id, other = unlearned
    for own, question, answer in ASKED.values():
        if own == fact_id and question.kind is Kind.QUESTION:
            found, scored = scored_words(kb, question, answer, hide=True)
            reading = read_by_both(other, question)
            assert scored.passages == reading.passages
            assert found.near.tolist() == pytest.approx(reading.scores, abs=1e-5)


def test_words_of_a_hidden_fact_are_not_read(kb: KnowledgeBase) -> None:
    for question, answer, words in ((Question(OPEN), "At nine.", "Korva"), (Question(MANY), "At two.", "Lindwick")):
        shown, hidden = (scored_words(kb, question, answer, hide)[1].passages for hide in (False, True))
        assert any(words in passage.text for passage in shown)
        assert hidden
        assert not any(words in passage.text for passage in hidden)


def test_both_is_closed_where_the_best_fact_has_no_words_though_others_near_have(kb: KnowledgeBase) -> None:
    found = laid_out([offer(kb, Question(CLOSE), "At six."), offer(kb, Question(OPEN), "At nine.")])
    assert found.has_grounds.any(dim=1).tolist() == [True, True]
    assert found.is_open[:, :2].tolist() == [[1, 0], [1, 1]]


# Retrieval.


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
    gold, hide, told = [["At nine."], ["x"], ["SUPPORTS"]] * 7, [True, True, False, False, True, True, True] * 3, [0]
    together = kb.asking.offers(questions, gold, hide, lambda done, total, what: told.append(done))
    assert told == [0, 16, 21]
    for question, given, hidden, batched in zip(questions, gold, hide, together, strict=True):
        alone = offer(kb, question, *given, hide=hidden)
        assert alone.passage_ids == batched.passage_ids
        for name in ("query", "scores", "gaps", "is_right", "grounds", "near", "vectors", "lexical", "reads"):
            assert getattr(alone, name) == pytest.approx(getattr(batched, name), abs=1e-3)
    assert kb.asking.offers([], [], [], no_progress) == []


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
