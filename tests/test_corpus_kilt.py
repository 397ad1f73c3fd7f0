"""KILT records are read and written without loss, also where they are odd."""

import json

import pytest

from byheart.corpus import kilt
from byheart.errors import EvaluationError
from byheart.types import Answer, Citation, Hit, Question, Route

GOLD = {
    "id": "q1",
    "input": "who digs",
    "output": [
        {"answer": "wombats", "provenance": [{"wikipedia_id": 12, "title": "Wombat", "start_paragraph_id": "3"}]},
        {"answer": "wombats"},
        {"provenance": [{"wikipedia_id": " 7 ", "section": 5, "end_paragraph_id": 9}, {"wikipedia_id": "7"}]},
    ],
}


def test_gold_records_give_answers_and_evidence_sets(tmp_path):
    (tmp_path / "gold.jsonl").write_text(json.dumps(GOLD))
    (record,) = kilt.read(tmp_path / "gold.jsonl")
    assert (record.id, record.input, record.answers) == ("q1", "who digs", ("wombats",))
    assert record.evidence_sets == (("12",), ("7",))
    assert record.outputs[0].provenance == (kilt.Provenance("12", "Wombat", start_paragraph=3),)


ODD = [{}, {"output": []}, {"output": None}, {"output": [{}]}, {"output": [{"answer": None}]}]


@pytest.mark.parametrize("fields", ODD)
def test_a_gold_item_without_answer_is_defined(tmp_path, fields):
    (tmp_path / "gold.jsonl").write_text(json.dumps({"id": 1, **fields}))
    (record,) = kilt.read(tmp_path / "gold.jsonl")
    assert (record.id, record.answers, record.evidence_sets) == (1, (), ())


def test_reading_what_was_written_gives_the_same_records(tmp_path):
    place = kilt.Provenance("12", "Wombat", "Food", 1, 2, 3, 4)
    records = [
        kilt.Record(1, "who digs", (kilt.Output("wömbats", (place,)), kilt.Output(None, (kilt.Provenance("7"),)))),
        kilt.Record("1", "", ()),
    ]
    kilt.write(tmp_path / "out.jsonl", records)
    assert kilt.read(tmp_path / "out.jsonl") == records


def test_a_guess_ranks_cited_pages_before_retrieved_ones():
    cited = Citation("b:0-9", "b", "Bees", 0, 4, "dig!")
    hits = tuple(Hit(name, 1.0, 1.0, 1.0) for name in ("a:0-9", "b:0-9", "x:y:3-5", "a:9-12"))
    answer = Answer(Question("who"), "wombats", Route.RETRIEVAL, citations=(cited,), hits=hits)
    (output,) = kilt.guess("q1", answer, {"a": "Ants"}).outputs
    assert output.answer == "wombats"
    assert [(place.page, place.title) for place in output.provenance] == [("b", "Bees"), ("a", "Ants"), ("x:y", "")]


def test_an_abstention_is_written_as_the_empty_answer(tmp_path):
    kilt.write(tmp_path / "out.jsonl", [kilt.guess(1, Answer(Question("who"), None, Route.ABSTAIN))])
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"id": 1, "input": "who", "output": [{"answer": ""}]}


BROKEN = ['{"input": "x"}', '{"id": true}', '{"id": 1, "output": "x"}', '{"id": 1, "output": ["x"]}', "{"]


@pytest.mark.parametrize("line", BROKEN)
def test_what_is_no_kilt_record_is_named(tmp_path, line):
    (tmp_path / "gold.jsonl").write_text('{"id": 0}\n' + line)
    with pytest.raises(EvaluationError, match=r"record 2|line 2"):
        kilt.read(tmp_path / "gold.jsonl")
