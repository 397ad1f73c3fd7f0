"""The analyzer: every script keeps its words, and the version stands for fixed terms."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.retrieval.analyzer import ANALYZER_VERSION, analyze, analyze_passage, strip_accents
from byheart.types import Passage


@pytest.mark.parametrize("text", ["", "  ", "\n\t", "the who of it", "...", "!?", "\x00", "\ud800"])
def test_text_without_words_has_no_terms(text: str) -> None:
    assert analyze(text) == []


def test_this_version_gives_exactly_these_terms() -> None:
    """A change here, also one that a new stemmer brings, needs a new ANALYZER_VERSION."""
    assert ANALYZER_VERSION == 1
    assert analyze("The runners were running easily; nationality generously skies") == [
        "runner",
        "run",
        "easili",
        "nation",
        "generous",
        "sky",
    ]
    assert analyze("Лучшие собаки бегали") == ["лучш", "собак", "\u0431\u0435\u0433\u0430"]
    assert analyze("الكتاب والمدرسة") == ["كتاب", "مدرس"]
    assert analyze("東京都に行く 한국어를") == ["東京", "京都", "都に", "に行", "行く", "한국", "국어", "어를"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("C++ or C#, F#?", ["c++", "c#", "f#"]),
        ("COVID-19", ["covid", "19", "covid19"]),
        ("mother-in-law", ["mother", "law"]),
        ("3.5 1,000 1,234,567 3,5", ["3.5", "1000", "1234567", "3.5"]),
        ("U.S. u.k.", ["us", "uk"]),
        ("don't can't Einstein\u2019s", ["einstein"]),
        ("the end.Next", ["end", "next"]),
        ("\u0663\u066b\u0665 १२", ["3.5", "12"]),
        ("\uff21\uff22\uff23 ﬁne", ["abc", "fine"]),
        ("a\x00b snake_case", ["b", "snake", "case"]),
    ],
)
def test_numbers_names_and_signs_are_terms_of_their_own(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Beyoncé", "BEYONCE"),
        ("Straße", "STRASSE"),
        ("Αθήνα", "αθηνα"),
        ("ёлка", "елка"),
        ("İstanbul", "istanbul"),
        ("كِتَابٌ", "كتاب"),
        ("ｶﾞｲﾄﾞ", "ガイド"),
    ],
)
def test_spelling_variants_meet(one: str, other: str) -> None:
    assert analyze(one) == analyze(other) != []


@pytest.mark.parametrize("word", ["й", "ї", "が", "ぱ", "한국", "हिन्दी", "ไทย", "أ", "தமிழ்", "ў"])
def test_marks_that_make_another_letter_survive(word: str) -> None:
    assert strip_accents(word) == unicodedata.normalize("NFC", word)


def test_lone_characters_and_vowel_signs_stay_whole() -> None:
    assert analyze("猫") == ["猫"]
    assert analyze("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert "ไทย"[:2] in analyze("ภาษาไทย")


def test_no_part_of_an_overlong_word_is_lost() -> None:
    terms = analyze("x" * 200 + "7")
    assert all(len(term) <= 64 for term in terms)
    assert "".join(terms) == "x" * 200 + "7"


def test_the_title_counts_more_than_the_text() -> None:
    passage = Passage("p:0-3", "p", "Zebra", ("Stripes",), "horse", 0, 5)
    assert analyze_passage(passage) == ["zebra", "stripe"] * 3 + ["hors"]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
def test_composed_and_decomposed_text_give_the_same_terms(text: str) -> None:
    assert analyze(unicodedata.normalize("NFD", text)) == analyze(unicodedata.normalize("NFC", text))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
def test_terms_are_never_blank_and_can_be_stored(text: str) -> None:
    for term in analyze(text):
        assert term.strip() == term != ""
        term.encode("utf-8")


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec="ascii"), max_size=60))
def test_the_fast_path_for_ascii_gives_the_terms_of_the_general_one(text: str) -> None:
    assert analyze(f"{text} \u00b7") == analyze(text)


def test_a_megabyte_without_spaces_takes_no_more_than_a_moment() -> None:
    for text in ("x" * 1_000_000, "1." * 300_000, "a." * 300_000, "x-" * 300_000, "京" * 300_000, "é-" * 300_000):
        started = time.process_time()
        assert analyze(text)
        assert time.process_time() - started < 5
