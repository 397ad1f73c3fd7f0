"""What every `Reader` keeps, whichever it is: the fake, the compact one, a language model here or on a server."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from byheart.config import ReaderConfig
from byheart.errors import InputError
from byheart.fakes import FakeReader
from byheart.interfaces import Reader, Reading
from byheart.reader.causal_lm import CausalLMReader
from byheart.reader.compact import CompactReader
from byheart.reader.openai import OpenAIReader
from byheart.types import Kind, Passage, Question, passage_id
from test_reader_causal_lm import write_tiny_model
from test_reader_openai import FakeServer, chat, echo

pytest.importorskip("torch")


def passage(page: str, text: str, start: int = 0) -> Passage:
    return Passage(passage_id(page, start, start + len(text)), page, page.title(), (), text, start, start + len(text))


TOWER = passage("tower", "The tower of Tarn was completed in 1889. It stands by the harbour.", 400)
LAKE = passage("lake", "Lake Orm is 212 metres deep.")
WHEN = Question.parse("When was the tower of Tarn completed?")
CLAIM = Question.parse("The tower of Tarn was completed in 1889.", Kind.CLAIM)
OPEN, CLOSED = Reading(WHEN, (TOWER, LAKE), (0.7, 0.2)), Reading(WHEN)
READINGS = [OPEN, Reading(CLAIM, (LAKE, TOWER), (0.6, 0.5)), CLOSED, Reading(CLAIM)]
REAL = ["compact", "causal-lm", "openai"]


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Reader]]:
    server = FakeServer()
    server.replies = [lambda body: echo(body) if "prompt" in body else chat("1889 [1] [7]")]
    tiny = str(write_tiny_model(tmp_path_factory.mktemp("tiny")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield {
            "fake": FakeReader(),
            "compact": CompactReader(ReaderConfig(min_confidence=0.0)),
            "causal-lm": CausalLMReader(ReaderConfig(name="causal-lm", model=tiny, max_answer_tokens=4)),
            "openai": OpenAIReader(ReaderConfig(name="openai", model="m", url=server.url, timeout_seconds=5.0), None),
        }
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture(params=["fake", *REAL])
def reader(request: pytest.FixtureRequest, readers: dict[str, Reader]) -> Reader:
    return readers[request.param]


def test_what_is_cited_was_used_what_was_used_was_given_and_quotes_are_exact(reader: Reader) -> None:
    for given, draft in zip(READINGS, reader.read(READINGS), strict=True):
        texts = {p.id: (p.start, p.text) for p in given.passages}
        assert set(draft.used) <= set(texts)
        for citation in draft.citations:
            assert citation.passage_id in draft.used
            start, text = texts[citation.passage_id]
            assert text[citation.start - start : citation.end - start] == citation.text != ""


def test_a_draft_without_an_answer_cites_nothing_and_a_confidence_is_a_share(reader: Reader) -> None:
    for draft in reader.read(READINGS):
        assert draft.confidence is None or 0 <= draft.confidence <= 1
        assert draft.text is not None or draft.citations == ()


def test_a_claim_is_answered_by_a_verdict_or_not_at_all(reader: Reader) -> None:
    assert reader.read([READINGS[1]])[0].text in {"SUPPORTS", "REFUTES", None}


def test_nothing_to_read_is_no_draft_and_nothing_to_score_no_number(reader: Reader) -> None:
    assert (reader.read([]), reader.score([], [])) == ([], [])


def test_a_reading_alone_and_among_others_gives_the_same(reader: Reader) -> None:
    for given, batched in zip(READINGS, reader.read(READINGS), strict=True):
        (alone,) = reader.read([given])
        assert (alone.text, alone.used) == (batched.text, batched.used)
        assert [c.passage_id for c in alone.citations] == [c.passage_id for c in batched.citations]


def test_scores_are_log_probabilities_a_row_for_each_passage_and_one_for_a_closed_book(reader: Reader) -> None:
    scores = reader.score([OPEN, CLOSED, OPEN], [["1889", "1743", "212 metres"], ["1889"], []])
    assert [found.shape for found in scores] == [(2, 3), (1, 1), (2, 0)]
    for found in scores:
        assert found.dtype == np.float32
        assert np.isfinite(found).all()
        assert (found <= 0).all()


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("answers", [[], [["a"], ["b"]], [["a", " "]], ["1889"]])
def test_answers_that_do_not_fit_are_refused(readers: dict[str, Reader], name: str, answers: list[list[str]]) -> None:
    with pytest.raises(InputError):
        readers[name].score([OPEN], answers)


def test_the_compact_reader_refuses_to_score_a_verdict_that_is_none(readers: dict[str, Reader]) -> None:
    with pytest.raises(InputError, match="SUPPORTS or REFUTES"):
        readers["compact"].score([Reading(CLAIM, (TOWER,))], [["supports"]])
