"""Documents become passages: nothing lost, nothing twice, nothing too long."""

import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.config import CorpusConfig
from byheart.corpus.passages import content_hash, split, split_many
from byheart.corpus.sentences import count_words
from byheart.corpus.source import clean
from byheart.types import Document, Passage, Section, passage_id

CONFIG = CorpusConfig()
WOMBATS = "A wombat digs burrows with its teeth and claws. Dr. Smith saw 1.5 of them near St. Ives. "


def count_pairs(texts: Sequence[str]) -> list[int]:
    """Count a token for every two characters: hard on long words, as byte-pair encodings are."""
    return [2 + len(text) // 2 for text in texts]


def count_by_space(texts: Sequence[str]) -> list[int]:
    return [2 + len(text.split()) for text in texts]


def assert_whole(document: Document, passages: Sequence[Passage]) -> None:
    """Check the law of splitting: each visible character in exactly one passage, spans exact."""
    seen = [False] * len(document.text)
    for passage in passages:
        assert passage.text == document.text[passage.start : passage.end] == passage.text.strip() != ""
        assert passage.id == passage_id(passage.page, passage.start, passage.end)
        assert not any(seen[passage.start : passage.end])
        seen[passage.start : passage.end] = [True] * (passage.end - passage.start)
    lost = [c for c, is_seen in zip(document.text, seen, strict=True) if not is_seen and not c.isspace()]
    assert lost == []


ODD_TEXTS = [
    WOMBATS,
    WOMBATS * 9,
    "x" * 700,
    "今日は雨です。" * 60,
    "ไม่มีช่องว่าง" * 40,
    "👩‍👩‍👧 " * 30,
    "\n\n",
    "e\u0301" * 99,
    "z" + "\u0301" * 300,
]
texts = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.sampled_from(ODD_TEXTS),
    ),
    max_size=8,
).map(lambda parts: clean("".join(parts)))


@given(text=texts, borders=st.lists(st.integers(0, 3000), max_size=4), max_tokens=st.sampled_from([32, 100, 8192]))
@settings(max_examples=120, deadline=None)
def test_every_visible_character_is_in_exactly_one_passage_that_is_short_enough(text, borders, max_tokens):
    sections = tuple(Section(start, (f"h{n}",)) for n, start in enumerate(sorted(b for b in borders if b <= len(text))))
    document = Document("p", "t", text, sections)
    passages, _ = split(document, CorpusConfig(words=20, max_tokens=max_tokens), count_pairs)
    assert_whole(document, passages)
    assert all(count <= max_tokens for count in count_pairs([passage.text for passage in passages]))
    for passage in passages:
        assert not any(passage.start < section.start < passage.end for section in sections)


def test_a_long_text_becomes_passages_of_about_the_wanted_length_that_end_with_sentences():
    document = Document("p", "t", WOMBATS * 60)
    passages, notices = split(document, CONFIG, count_by_space)
    lengths = [len(passage.text.split()) for passage in passages]
    assert notices == []
    assert 75 <= min(lengths) <= max(lengths) <= 125
    assert all(passage.text.endswith(("claws.", "Ives.")) for passage in passages)
    assert_whole(document, passages)


@pytest.mark.parametrize("n_words", [1, 100, 110, 130, 150])
def test_a_ready_passage_stays_whole(n_words):
    document = Document("7", "t", " ".join(["word"] * n_words) + ".")
    passages, notices = split(document, CONFIG, count_by_space)
    assert [passage.id for passage in passages] == [f"7:0-{len(document.text)}"]
    assert notices == []


def test_a_text_a_little_too_long_is_halved_rather_than_left_with_a_tail():
    document = Document("p", "t", "Five words in a sentence. " * 32)
    lengths = [len(passage.text.split()) for passage in split(document, CONFIG, count_by_space)[0]]
    assert lengths == [80, 80]


def test_a_border_between_paragraphs_is_preferred():
    document = Document("p", "t", "One two three four five. " * 17 + "\n\n" + "Six seven eight nine ten. " * 15)
    passages, _ = split(document, CONFIG, count_by_space)
    assert [passage.text.split()[0] for passage in passages] == ["One", "Six"]


def test_a_passage_of_too_many_tokens_is_split_further_and_the_user_is_told():
    document = Document("p", "t", "Long sentences of plain words end here. " * 14)
    passages, notices = split(document, CorpusConfig(max_tokens=64), count_by_space)
    assert len(passages) == 2
    assert_whole(document, passages)
    assert notices == ["p: 1 passages of more than 64 encoder tokens were split further; no text was left out"]


def test_a_word_of_ten_thousand_characters_is_split_without_loss():
    document = Document("p", "t", "before " + "x" * 10_000 + " after")
    passages, _ = split(document, CONFIG, count_by_space)
    assert_whole(document, passages)
    assert len(passages) > 5
    assert max(len(passage.text) for passage in passages) <= 2_000


def test_one_grapheme_of_very_many_characters_is_split_too():
    document = Document("p", "t", "a" + "\u0316" * 5_000)
    passages, _ = split(document, CONFIG, lambda batch: [len(text) for text in batch])
    assert_whole(document, passages)
    assert max(len(passage.text) for passage in passages) <= CONFIG.max_tokens


UNSPACED = ["今日は天気がいいです。", "这是一个关于袋熊的句子。", "날씨가좋습니다.", "ภาษาไทยไม่มีช่องว่าง "]


@pytest.mark.parametrize("sentence", UNSPACED)
def test_scripts_without_spaces_get_passages_of_about_two_hundred_characters(sentence):
    document = Document("p", "t", clean(sentence * 150))
    passages, _ = split(document, CONFIG, lambda batch: [1] * len(batch))
    assert_whole(document, passages)
    assert all(120 <= len(passage.text) <= 310 for passage in passages)


SPACED = ["مرحبا بكم في الصحراء. ", "שלום לכם מן המדבר. ", "Смит видел вомбата. ", "🦘👩‍🚀 hop. "]


@pytest.mark.parametrize("sentence", SPACED)
def test_right_to_left_cyrillic_and_emoji_keep_exact_spans(sentence):
    document = Document("p", "t", sentence * 120)
    passages, _ = split(document, CONFIG, count_by_space)
    assert len(passages) > 1
    assert_whole(document, passages)


def test_headings_are_borders_and_travel_with_the_passage():
    document = Document("p", "t", "Intro.\n\nBody.\n\nMore.", (Section(8, ("A",)), Section(15, ("A", "B"), 2)))
    passages, _ = split(document, CONFIG, count_by_space)
    found = [(passage.text, passage.headings, passage.sheet) for passage in passages]
    assert found == [("Intro.", (), None), ("Body.", ("A",), None), ("More.", ("A", "B"), 2)]


@pytest.mark.parametrize("text", ["", "  ", "\n\n\t\n"])
def test_a_blank_document_has_no_passages_and_says_so(text):
    assert split(Document("p", "t", text), CONFIG, count_by_space) == ([], ["p is blank; no passage was made of it"])


def test_a_printed_page_without_text_is_named():
    document = Document("p", "t", "One.\n\nThree.", (Section(0, (), 1), Section(4, (), 2), Section(4, (), 3)))
    _, notices = split(document, CONFIG, count_by_space)
    assert notices == ["p: no text on page 2; if it is a picture, run OCR and add it again"]


def test_splitting_many_equals_splitting_each():
    documents = [Document(str(n), "t", WOMBATS * n) for n in range(12)]
    each = [split(document, CONFIG, count_pairs) for document in documents]
    assert split_many(documents, CONFIG, count_pairs) == each


def test_ids_do_not_change_when_a_document_is_split_again():
    document = Document("docs/a.md", "t", WOMBATS * 40)
    first, second = (split(document, CONFIG, count_by_space)[0] for _ in range(2))
    assert first == second
    assert len({passage.id for passage in first}) == len(first)


def test_the_hash_changes_with_all_that_makes_passages_and_nothing_else():
    document = Document("p", "t", "text", (Section(0, ("h",)),))
    others = [
        Document("p", "u", "text", (Section(0, ("h",)),)),
        Document("p", "t", "texts", (Section(0, ("h",)),)),
        Document("p", "t", "text", (Section(0, ("i",)),)),
        Document("p", "t", "text", (Section(0, ("h",), 1),)),
    ]
    assert len({content_hash(d) for d in [document, *others]}) == 5
    assert content_hash(document) == content_hash(Document("another/page", "t", "text", (Section(0, ("h",)),)))


def test_words_are_counted_in_every_script():
    assert count_words("two words") == 2
    assert count_words("今日は雨") == 2
    assert count_words("x" * 1200) == 100
    assert count_words(" ") == 0


def test_thirty_thousand_ready_passages_and_a_book_are_split_in_seconds():
    started = time.perf_counter()
    ready = split_many([Document(str(n), "t", WOMBATS * 5) for n in range(33_700)], CONFIG, count_by_space)
    book = Document("book", "t", (WOMBATS * 5 + "\n\n") * 800)
    passages, _ = split(book, CONFIG, count_by_space)
    assert time.perf_counter() - started < 20
    assert all(len(found) == 1 for found, _ in ready)
    assert_whole(book, passages)


def test_one_line_of_a_million_characters_is_split_in_seconds():
    document = Document("p", "t", "word " * 100_000 + "x" * 500_000)
    started = time.perf_counter()
    passages, _ = split(document, CONFIG, count_by_space)
    assert time.perf_counter() - started < 20
    assert_whole(document, passages)
