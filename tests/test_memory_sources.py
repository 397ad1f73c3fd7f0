"""Where in a document a fact's words stand, whatever became of spaces, quotes and character forms in copying."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byheart.memory.sources import covering, locate, unified
from byheart.types import Passage, passage_id

TEXT = "The keeper\u2019s lamp \u201cHope\u201d burns\u00a0all night.\n\nIt was lit in 1871 \u2013 by Ada Brandt."


def found(text: str, evidence: str = "", answer: str = "") -> str | None:
    span = locate(text, evidence, answer)
    return None if span is None else text[span[0] : span[1]]


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ("It was lit in 1871", "It was lit in 1871"),
        ("  by Ada Brandt.\n", "by Ada Brandt."),
        ("The keeper's lamp", "The keeper\u2019s lamp"),
        ('"Hope" burns all  night', "\u201cHope\u201d burns\u00a0all night"),
        ("all night. It was lit", "all night.\n\nIt was lit"),
        ("in 1871 - by", "in 1871 \u2013 by"),
        ("The lamp was lit in 1899", None),
        ("it was lit", None),  # evidence is a quotation: case counts
        ("...", None),
    ],
)
def test_evidence_is_found_as_written_or_as_copied(evidence, expected):
    assert found(TEXT, evidence) == expected


@pytest.mark.parametrize(
    ("text", "evidence", "expected"),
    [
        ("the ﬁrst ﬂoor", "first floor", "ﬁrst ﬂoor"),
        ("the ﬁrst ﬂoor", "irst floor", None),  # begins inside a ligature
        ("up to 5½ m", "5", "5"),
        ("up to ½ m", "1", None),
        ("ＡＢＣ　１２３", "ABC 123", "ＡＢＣ　１２３"),  # noqa: RUF001
        ("Cafe\u0301 au lait…", "Café au lait...", "Cafe\u0301 au lait…"),
        ("q\u0323\u0307 then", "q\u0307\u0323 then", "q\u0323\u0307 then"),
        ("\u1112\u1161\u11ab\u1100\u1173\u11af x", "한글 x", "\u1112\u1161\u11ab\u1100\u1173\u11af x"),
        ("\u1112\u1161\u11ab x…", "하", None),  # the syllable goes on
        ("متى يفتح «الميناء»؟", 'يفتح "الميناء"', "يفتح «الميناء»"),
        ("家族は👩\u200d👩\u200d👧です…", "👩\u200d👩\u200d👧です...", "👩\u200d👩\u200d👧です…"),
        ("彼は「京都」に\u3000住む", "「京都」に 住む", "「京都」に\u3000住む"),
        ("", "x", None),
        ("x", "", None),
    ],
)
def test_evidence_in_other_character_forms_is_mapped_back(text, evidence, expected):
    assert found(text, evidence) == expected


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("Lit by ADA BRANDT, then.", "Ada Brandt", "ADA BRANDT"),
        ("Lit by Ada\n Brandt.", "Ada Brandt", "Ada\n Brandt"),
        ("Ada, and Ada again", "Ada", None),  # twice
        ("ha ha ha", "ha ha", None),  # twice, overlapping
        ("Adamant Ada", "Ada", "Ada"),
        ("Canada", "Ada", None),
        ("in 18 7", "18", None),  # too short
        ("in 1871, not 18711", "1871", "1871"),
        ("It costs $5.00 now", "$5.00", "$5.00"),
        ("Das ist in KÖLN.", "köln", "KÖLN"),
        ("彼は東京都に住む", "東京都", "東京都"),  # no spaces, no borders
        ("เขาอยู่ในกรุงเทพมานาน", "กรุงเทพ", "กรุงเทพ"),
        ("กุกกุกกุก", "กกก", None),
        ("वह हिन्दी बोलता है", "हिन्दी", "हिन्दी"),
        ("वह हिन्दी बोलता है", "हिन्द", None),  # the vowel sign belongs to the word
        ("Read snake_case_name once…", "snake_case_name", "snake_case_name"),
        ("", "Ada", None),
    ],
)
def test_an_answer_that_stands_there_once_as_words_is_found(text, answer, expected):
    assert found(text, answer=answer) == expected


def test_evidence_counts_before_the_answer_and_the_answer_where_evidence_is_not_found():
    assert found(TEXT, "lit in 1871", "Ada Brandt") == "lit in 1871"
    assert found(TEXT, "lit in 1899", "Ada Brandt") == "Ada Brandt"
    assert found(TEXT, "lit in 1899", "") is None


ALPHABET = "aé e\u0301ﬁ½'\u2019\u201c\"\u00b4\u00a0\n -\u2013…Ａ漢각\u1100\u1161\u11a8\u0301\u0f73\u200d👩.ß"
CHARACTERS = st.text(st.one_of(st.sampled_from(ALPHABET), st.characters(exclude_categories=["Cs"])), max_size=30)


@given(CHARACTERS, CHARACTERS)
def test_what_is_located_reads_as_the_evidence(text, evidence):
    span = locate(text, evidence, "")
    if span is not None:
        assert 0 <= span[0] < span[1] <= len(text)
        assert unified(text[slice(*span)]) == unified(evidence)


@given(CHARACTERS, st.text(ALPHABET, min_size=1, max_size=20), CHARACTERS)
def test_evidence_is_found_however_it_was_copied(before, evidence, after):
    text = unicodedata.normalize("NFC", f"{before}\n{evidence}\n{after}")
    copied = unified(evidence)
    if copied and not unicodedata.combining(copied[0]) and not unicodedata.combining(after[:1] or "x"):
        span = locate(text, copied, "")
        assert span is not None
        assert unified(text[slice(*span)]) == copied


def test_a_long_text_with_many_marks_is_read_in_time():
    text = "e" + "\u0301\u0323" * 50_000 + " … " + "が" * 50_000 + " the end…"
    assert found(text, "the end...") == "the end…"


def passage(start: int, end: int) -> Passage:
    return Passage(passage_id("p", start, end), "p", "", (), "x" * (end - start), start, end)


def test_the_passage_that_holds_most_of_a_span_is_taken():
    passages = [passage(0, 10), passage(10, 20), passage(21, 40)]
    assert covering(passages, 2, 5) == passages[0]
    assert covering(passages, 8, 15) == passages[1]
    assert covering(passages, 8, 12) == passages[0]  # a tie goes to the first
    assert covering(passages, 0, 40) == passages[2]
    assert covering(passages, 20, 21) is None  # between two
    assert covering(passages, 5, 5) is None
    assert covering([], 0, 5) is None
