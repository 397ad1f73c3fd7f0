"""Which wordings are one answer, and where an answer stands in a text, in every script."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.reader.wording import answer_key, occurrences, same_answer, whole_address, words


@pytest.mark.parametrize(
    ("text", "cut", "whole"),
    [
        ("Write to labels@fernwick.example, please.", "fernwick", "labels@fernwick.example"),
        ("Write to labels@fernwick.example.", "labels@", "labels@fernwick.example"),
        ("See https://a.example/b?c=d. Then", "example", "https://a.example/b?c=d"),
        ("At 9 @ the pier", "9", "9"),
        ("Call 555, or a@b.example", "555", "555"),
    ],
)
def test_a_span_never_cuts_an_address(text: str, cut: str, whole: str) -> None:
    start = text.index(cut)
    first, last = whole_address(text, start, start + len(cut))
    assert text[first:last] == whole


def test_answers_are_found_as_whole_words_in_any_case():
    assert occurrences("nine", "Nine ships, ninety sailors, nine.") == [(0, 4), (28, 32)]
    assert occurrences("Ada Brandt.", "by ADA  Brandt, chemist") == [(3, 14)]
    assert occurrences("  ", "anything") == []
    assert occurrences("!?", "what!?") == []


@pytest.mark.parametrize(
    ("wanted", "text", "found"),
    [
        ("京都", "彼は京都に住んでいる。", ["京都"]),
        ("长城", "中国的长城很长。", ["长城"]),
        ("กรุงเทพ", "เขาอาศัยอยู่ในกรุงเทพมานาน", ["กรุงเทพ"]),
        ("ก", "กุ", []),  # a vowel sign belongs to its letter
        ("서울", "서울에서 만나요", ["서울"]),
        ("हिन", "हिन्दी", []),
        ("हिन्दी", "वह हिन्दी बोलता है", ["हिन्दी"]),
        ("Überfahrt", "Die ÜBERFAHRT dauert", ["ÜBERFAHRT"]),
    ],
)
def test_answers_are_found_in_scripts_with_and_without_spaces(wanted, text, found):
    assert [text[start:end] for start, end in occurrences(wanted, text)] == found


@pytest.mark.parametrize(
    ("wanted", "text", "found"),
    [
        ("C++", "C++ and C", ["C++"]),
        ("$5", "5 days for $5", ["$5"]),
        ("3.5", "3, 5 and 3.5", ["3.5"]),
        ("C++", "only C", ["C"]),
        ("C. S. Lewis", "by C.S. Lewis", ["C.S. Lewis"]),
    ],
)
def test_marks_of_an_answer_count_where_some_place_has_them(wanted, text, found):
    assert [text[start:end] for start, end in occurrences(wanted, text)] == found


@given(st.text(max_size=30), st.text(max_size=10), st.text(max_size=30))
def test_a_place_always_holds_the_words_that_are_looked_for(before, wanted, after):
    text = f"{before} {wanted} {after}"
    places = occurrences(wanted, text)
    assert all(words(text[start:end]) == words(wanted.strip(".,;:!?'\"()[] ")) for start, end in places)
    assert places or not words(wanted)


def test_answers_are_the_same_whatever_case_articles_and_outer_marks():
    assert same_answer("The Beatles", "beatles.")
    assert same_answer("\u201cNine\u201d", "nine")
    assert same_answer("\uff21\uff44\uff41", "ada")
    assert not same_answer("nine", "ninety")
    assert answer_key("the") == "the"


def test_kinds_of_answers_are_known_without_torch():
    code = "import sys, byheart.reader.windows as w; print(list(w.AnswerKind), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


def test_the_network_and_the_decoder_share_one_list_of_kinds():
    pytest.importorskip("torch")
    from byheart.reader import compact, compact_model, windows

    assert compact.AnswerKind is compact_model.AnswerKind is windows.AnswerKind
    assert not {"SPAN", "YES", "NO", "NONE"} & set(vars(compact))
