"""KILT's measures, as the official scorer computes them, and our stricter match beside them."""

import gzip
import json
import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.errors import EvaluationError
from byheart.evaluate.kilt_files import Unit, means, score_files
from byheart.evaluate.measures import (
    Gold,
    Guess,
    exact_match,
    f1,
    normalised,
    places,
    precision_at,
    r_precision,
    recall_at,
    score,
    strict_em,
    success_at,
)
from byheart.evaluate.rouge import rouge_l

NFC, NFD = unicodedata.normalize("NFC", "Beyoncé"), unicodedata.normalize("NFD", "Beyoncé")
SMALL = '{}.jsonl vs gold2.jsonl retrieval ks=[1,5] rank_keys={} (input set to "")'
PAIRS = [
    ("guess1_1", "gold1", Unit.PAGE, "guess1_1.jsonl vs gold1.jsonl"),
    ("gold1", "gold1", Unit.PAGE, "gold1.jsonl vs gold1.jsonl"),
    ("nq400.guess", "nq400.gold", Unit.PAGE, "nq400.guess.jsonl vs nq400.gold.jsonl"),
    ("guess3_1", "gold3", Unit.PAGE, "guess3_1.jsonl vs gold3.jsonl (_calculate_metrics, no input check)"),
    ("nq400.guess", "nq400.gold", Unit.PAGE, "nq400 retrieval ks=[1,5,10,20] rank_keys=[wikipedia_id]"),
    *(
        (guess, "gold2", unit, SMALL.format(guess, keys))
        for guess in ("guess2_1", "guess2_2")
        for unit, keys in (
            (Unit.PAGE, ["wikipedia_id"]),
            (Unit.SECTION, ["wikipedia_id", "section"]),
            (Unit.PARAGRAPHS, ["wikipedia_id", "start_paragraph_id", "end_paragraph_id"]),
        )
    ),
]
NOT_OURS = ("entity", "answer_in", "answer_and")  # measures of passage text, which no KILT guess here carries


def pages(*names: str) -> frozenset[str]:
    return frozenset(names)


def official_scores(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "official_scores.json").read_text("utf-8"))
    return found


@pytest.fixture
def scorer() -> Path:
    folder = Path(os.environ.get("BYHEART_DATA", "no-data")) / "kilt_scorer"
    if not folder.is_dir():
        pytest.skip("set BYHEART_DATA to the folder of the data sets to compare with the official scorer's numbers")
    return folder


@pytest.mark.parametrize(("guess", "gold", "unit", "key"), PAIRS)
def test_every_measure_equals_the_official_scorers(scorer: Path, guess: str, gold: str, unit: Unit, key: str) -> None:
    printed = official_scores(scorer)[key]
    groups = printed.values() if "kilt" in printed else [printed]
    official = {name: value for group in groups for name, value in group.items() if not name.startswith(NOT_OURS)}
    ours = means(score_files(scorer / f"{gold}.jsonl", scorer / f"{guess}.jsonl", unit))
    assert {name: ours[name] for name in official} == pytest.approx(official, abs=1e-9)
    assert len(official) >= 5


def test_every_pair_that_the_official_scorer_printed_is_compared(scorer: Path) -> None:
    assert {key for _, _, _, key in PAIRS} == official_scores(scorer).keys()


def test_accuracy_is_letter_for_letter_and_em_is_not() -> None:
    scores = score(Gold(("Yale University",)), Guess("the yale university."))
    assert (scores.accuracy, scores.em, scores.f1) == (0.0, 1.0, 1.0)
    assert score(Gold((" Yale University ",)), Guess("Yale University\n")).accuracy == 1.0


@pytest.mark.parametrize(("left", "right"), [("The", "A"), ("3.5", "35"), ("C++", "C#")])
def test_what_the_official_match_confuses_the_strict_one_tells_apart(left: str, right: str) -> None:
    assert exact_match(left, right) == 1.0
    assert strict_em(left, right) == 0.0


def test_spellings_of_one_name_differ_officially_and_are_equal_strictly() -> None:
    assert exact_match(NFC, NFD) == 0.0
    assert strict_em(NFC, NFD) == 1.0


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("The Beatles", "beatles", True),
        ("Straße", "STRASSE", True),
        ("“Hey Jude”", "Hey Jude", True),
        ("U.S.", "US", True),
        ("Spider-Man", "spider man", True),
        ("Paris.", "paris", True),
        ("-5", "5", False),
        ("\N{MINUS SIGN}5 °C", "-5 °C", True),
        ("1,000", "1000", False),
        ("1914\N{EN DASH}18", "1914-18", True),
        ("10:30", "1030", False),
        ("5 %", "5", False),
        ("$5", "5", False),
        ("?", "!", False),
        ("", "the", False),
    ],
)
def test_the_strict_match_ignores_what_a_reader_ignores(left: str, right: str, same: bool) -> None:
    assert strict_em(left, right) == float(same)


def test_an_abstention_scores_nothing_even_where_an_empty_answer_would() -> None:
    gold = Gold(("The",))
    assert score(gold, Guess("a")).em == 1.0
    assert score(gold, Guess(None)).em == 0.0


@pytest.mark.parametrize("gold", [Gold(), Gold(("  ",)), Gold((), (frozenset(),))])
def test_a_gold_item_without_answer_or_evidence_scores_zero(gold: Gold) -> None:
    scores = score(gold, Guess("anything", ("1", "2")))
    assert (scores.accuracy, scores.em, scores.f1, scores.rougel, scores.strict_em, scores.rprec) == (0.0,) * 6
    assert recall_at(5, gold.evidence, ("1",)) == precision_at(5, gold.evidence, ("1",)) == 0.0


def test_f1_counts_a_word_as_often_as_both_have_it() -> None:
    assert f1("paris paris france", "paris in france") == pytest.approx(2 * (2 / 3) * (2 / 3) / (4 / 3))
    assert f1("the", "the") == 0.0  # nothing is left to share
    assert normalised("The  Cat, a dog!") == "cat dog"


def test_rouge_l_of_equal_texts_is_just_below_one() -> None:
    assert rouge_l("suicide", "suicide") == pytest.approx(0.999999995, abs=1e-12)
    assert rouge_l("a b c", "a c d") == pytest.approx(2 * (2 / 3) * (2 / 3) / (4 / 3 + 1e-8), abs=1e-12)


def test_rouge_l_splits_at_full_stops_and_counts_distinct_words() -> None:
    assert rouge_l("a b. c d", "c d. a b") == pytest.approx(1.0, abs=1e-8)
    assert rouge_l("go go go", "go") == pytest.approx(1.0, abs=1e-8)
    assert rouge_l("a. ", "a") == pytest.approx(2 * (1 / 2) / (3 / 2 + 1e-8), abs=1e-12)  # a blank sentence is a word


@pytest.mark.parametrize(("left", "right"), [("", "x"), ("x", ""), ("...", "x"), ("", "")])
def test_rouge_l_of_a_text_without_a_sentence_is_zero(left: str, right: str) -> None:
    assert rouge_l(left, right) == 0.0


@given(st.text("ab. ", max_size=12), st.text("ab. ", max_size=12))
def test_measures_of_two_texts_stay_between_zero_and_one(left: str, right: str) -> None:
    for measure in (rouge_l, f1, exact_match, strict_em):
        assert 0.0 <= measure(left, right) <= 1.0
    assert exact_match(left, left) == strict_em(left, left) == 1.0


def test_r_precision_takes_the_best_evidence_set() -> None:
    evidence = (pages("1", "2"), pages("5"), pages("7", "9", "11"))
    assert r_precision(evidence, ("2", "5", "7")) == 0.5
    assert r_precision(evidence, ("5",)) == 1.0
    assert r_precision(evidence, ("1", "1", "2")) == 1.0  # a page named twice counts once
    assert r_precision((pages("5"),), ("1", "5")) == 0.0


def test_recall_counts_evidence_sets_and_not_pages() -> None:
    evidence = (pages("1", "2"), pages("5"), pages("7", "9", "11"))
    ranking = ("2", "5", "7", "33", "1", "9", "44")
    assert places(evidence, ranking) == [True, False, True, False, False]
    assert recall_at(5, evidence, ranking) == pytest.approx(2 / 3)
    assert recall_at(1, evidence, ranking) == pytest.approx(1 / 3)  # the half-found set gave its place up
    assert precision_at(5, evidence, ranking) == pytest.approx(2 / 5)
    assert success_at(1, evidence, ranking) == 1.0


def test_equal_evidence_sets_count_once() -> None:
    evidence = (pages("1"), pages("1"), frozenset())
    assert recall_at(1, evidence, ("1",)) == 1.0
    assert places(evidence, ("1", "1", "2")) == [True, False]


def test_kilt_measures_count_only_where_the_pages_are_right() -> None:
    gold = Gold(("suicide",), (pages("1"),))
    assert score(gold, Guess("suicide", ("1", "2"))).kilt[:3] == (1.0, 1.0, 1.0)
    assert score(gold, Guess("suicide", ("2", "1"))).kilt == (0.0, 0.0, 0.0, 0.0)
    assert score(gold, Guess("suicide")).kilt == (0.0, 0.0, 0.0, 0.0)


def written(path: Path, *records: dict[str, object]) -> Path:
    text = "".join(json.dumps(record) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_files_are_paired_by_id_in_any_order_and_scored_per_question(tmp_path: Path) -> None:
    right = {"answer": "x", "provenance": [{"wikipedia_id": 7}]}
    gold = written(tmp_path / "gold.jsonl", {"id": 1, "input": "a", "output": [right]}, {"id": "b", "output": []})
    said = {"answer": "X", "provenance": [{"wikipedia_id": "7"}]}
    guesses = written(tmp_path / "guess.jsonl", {"id": "b", "output": []}, {"id": "1", "output": [said]})
    items = score_files(gold, guesses)
    assert [item.id for item in items] == ["1", "b"]
    assert (items[0].scores.em, items[0].scores.accuracy, items[0].scores.rprec) == (1.0, 0.0, 1.0)
    assert means(items, ks=(1,)) == pytest.approx(
        {"accuracy": 0, "em": 0.5, "f1": 0.5, "rougel": 0, "strict_em": 0.5, "Rprec": 0.5, "KILT-accuracy": 0}
        | {"KILT-em": 0.5, "KILT-f1": 0.5, "KILT-rougel": 0, "precision@1": 0.5, "recall@1": 0.5, "success_rate@1": 0.5}
    )


def test_a_missing_guess_a_doubled_id_and_an_empty_file_are_named(tmp_path: Path) -> None:
    gold = written(tmp_path / "gold.jsonl", {"id": "q9", "output": []})
    with pytest.raises(EvaluationError, match="'q9'"):
        score_files(gold, written(tmp_path / "guess.jsonl", {"id": "q8", "output": []}))
    with pytest.raises(EvaluationError, match="twice"):
        score_files(gold, written(tmp_path / "twice.jsonl", {"id": 1, "output": []}, {"id": "1", "output": []}))
    with pytest.raises(EvaluationError, match="no item"):
        means(())
