"""Result files and the log that lets a killed run continue."""

import dataclasses
import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.errors import EvaluationError
from byheart.evaluate.resume import ResultLog, fingerprint
from byheart.evaluate.rows import Row, merge, origin, read, table

ROW = Row(
    "nq", "reporting", "hybrid", "recall@1", "share", 0.63, 2_655, 0.61, 0.65, 7,
    "byheart evaluate nq --data DIR", "abc123", "2026-12-01T00:00:00+00:00", "a processor",
)  # fmt: skip


def changed(**fields: Any) -> Row:
    return dataclasses.replace(ROW, **fields)


def test_a_result_file_is_a_list_of_rows_with_the_promised_fields(tmp_path: Path) -> None:
    merge(tmp_path / "deep" / "nq.json", [ROW])
    (fields,) = json.loads((tmp_path / "deep" / "nq.json").read_text("utf-8"))
    assert list(fields) == [
        "suite", "split", "system", "measure", "unit", "value", "n", "low", "high", "seed", "command", "commit",
        "date", "cpu",
    ]  # fmt: skip
    assert read(tmp_path / "deep" / "nq.json") == [ROW]


def test_a_figure_measured_anew_replaces_the_old_one_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "nq.json"
    other = changed(system="bm25", low=None, high=None)
    merge(path, [ROW, other])
    assert merge(path, [changed(value=0.7, high=0.8)]) == [changed(value=0.7, high=0.8), other]
    assert read(path) == [changed(value=0.7, high=0.8), other]
    assert [file.name for file in tmp_path.iterdir()] == ["nq.json"]


def test_a_row_that_is_not_valid_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "nq.json"
    merge(path, [ROW])
    before = path.read_bytes()
    with pytest.raises(EvaluationError, match="finite"):
        merge(path, [changed(measure="em"), changed(value=math.nan)])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"n": -1}, "whole numbers"),
        ({"n": 1.5}, "whole numbers"),
        ({"low": None}, "interval"),
        ({"low": 0.9}, "interval"),
        ({"value": None}, "finite"),
        ({"value": "0.6"}, "finite"),
        ({"suite": ""}, "not empty"),
        ({"extra": 1}, "exactly the fields"),
    ],
)
def test_a_wrong_row_is_named_when_the_file_is_read(tmp_path: Path, fields: dict[str, Any], complaint: str) -> None:
    path = tmp_path / "nq.json"
    path.write_text(json.dumps([dataclasses.asdict(ROW), dataclasses.asdict(ROW) | fields]), "utf-8")
    with pytest.raises(EvaluationError, match=f"row 2.*{complaint}"):
        read(path)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[{}]", "[{"])
def test_a_file_that_is_no_list_of_rows_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nq.json"
    path.write_text(text, "utf-8")
    with pytest.raises(EvaluationError, match=r"nq\.json"):
        read(path)


def test_a_table_has_measures_down_systems_across_and_an_interval_in_every_cell() -> None:
    rows = [
        ROW,
        changed(system="bm25", value=0.479, low=0.46, high=0.498),
        changed(measure="seconds_p50", unit="seconds", value=0.09, n=200, low=None, high=None),
        changed(split="all"),
    ]
    assert table(rows).split("\n") == [
        "**nq, reporting**",
        "",
        "| measure | n | hybrid | bm25 |",
        "| --- | ---: | ---: | ---: |",
        "| recall@1 | 2,655 | 0.630 (0.610 to 0.650) | 0.479 (0.460 to 0.498) |",
        "| seconds_p50 (seconds) | 200 | 0.090 |  |",
        "",
        "**nq, all**",
        "",
        "| measure | n | hybrid |",
        "| --- | ---: | ---: |",
        "| recall@1 | 2,655 | 0.630 (0.610 to 0.650) |",
    ]
    assert table([]) == ""


def test_an_origin_names_commit_processor_and_time() -> None:
    found = origin("byheart evaluate nq --data DIR")
    assert found.command == "byheart evaluate nq --data DIR"
    assert found.commit
    assert found.cpu
    assert found.date.endswith("+00:00")


def finished(path: Path, settings: dict[str, object]) -> dict[str, Any]:
    with ResultLog(path, settings) as held:
        return dict(held.done)


def test_a_second_run_under_the_same_settings_finds_what_was_finished(tmp_path: Path) -> None:
    path, settings = tmp_path / "deep" / "bm25.jsonl", {"suite": "nq", "epoch": 3}
    with ResultLog(path, settings) as held:
        held.add({"nq-0": {"text": "Zürich\r\n"}, "nq-1": {"text": None}})
    with ResultLog(path, {"epoch": 3, "suite": "nq"}) as held:
        assert held.notice == ""
        held.add({"nq-2": {"text": "x"}})
    assert finished(path, settings) == {"nq-0": {"text": "Zürich\r\n"}, "nq-1": {"text": None}, "nq-2": {"text": "x"}}


def test_a_log_cut_at_any_byte_keeps_whole_lines_and_takes_more(tmp_path: Path) -> None:
    path, settings = tmp_path / "log.jsonl", {"suite": "nq"}
    with ResultLog(path, settings) as held:
        held.add({"a": {"text": "one"}, "b": {"text": "two"}})
    whole = path.read_bytes()
    ends = [place for place, byte in enumerate(whole, start=1) if byte == ord("\n")]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        n_whole = sum(end <= cut for end in ends[1:])
        with ResultLog(path, settings) as held:
            assert list(held.done) == ["a", "b"][:n_whole]
            assert held.notice == ""
            held.add({"c": {"text": "three"}})
        assert list(finished(path, settings)) == [*["a", "b"][:n_whole], "c"]


def test_other_settings_start_anew_and_say_which_differ(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "bm25.jsonl"
    with ResultLog(path, {"suite": "nq", "epoch": 3}) as held:
        held.add({"a": {}})
    with caplog.at_level(logging.WARNING), ResultLog(path, {"suite": "nq", "epoch": 4}) as held:
        assert held.done == {}
        assert "1 finished questions were measured under another epoch; starting anew" in held.notice
    assert held.notice in caplog.text
    assert finished(path, {"suite": "nq", "epoch": 4}) == {}


def test_a_file_that_is_no_log_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "bm25.jsonl"
    path.write_text('[1]\n{"id": "a", "output": {}}\n', "utf-8")
    assert finished(path, {"suite": "nq"}) == {}


def test_a_question_answered_twice_and_an_output_that_is_no_json_are_named(tmp_path: Path) -> None:
    with ResultLog(tmp_path / "log.jsonl", {}) as held:
        held.add({"a": {}})
        with pytest.raises(EvaluationError, match="'a'"):
            held.add({"a": {}})
        with pytest.raises(EvaluationError, match="nan"):
            held.add({"b": {"confidence": math.nan}})
    assert list(finished(tmp_path / "log.jsonl", {})) == ["a"]


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.none() | st.text(max_size=3), max_size=4))
def test_a_fingerprint_depends_on_content_and_not_on_order(settings: dict[str, object]) -> None:
    backwards = dict(reversed(settings.items()))
    assert fingerprint(settings) == fingerprint(backwards)
    assert fingerprint(settings) != fingerprint({**settings, "more": 1})
