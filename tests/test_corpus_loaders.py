"""Each format becomes readable text under the right headings."""

import io
import json
import time
import unicodedata
import uuid
from pathlib import Path

import pytest

from byheart.config import CorpusConfig
from byheart.corpus.files import load
from byheart.corpus.markdown import split_front_matter, without_marks
from byheart.corpus.passages import split
from byheart.corpus.source import clean
from byheart.errors import DocumentError
from byheart.types import Document

CONFIG = CorpusConfig()
NOT_NFC = "cafe\u0301"


def loaded(folder: Path, name: str, content: str | bytes) -> list[Document]:
    path = folder / name
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return load(path, name, CONFIG)


def under(document: Document) -> dict[tuple[str, ...], str]:
    """Return the text of each section by its headings."""
    ends = [section.start for section in document.sections[1:]] + [len(document.text)]
    pairs = zip(document.sections, ends, strict=True)
    return {section.headings: document.text[section.start : end].strip() for section, end in pairs}


MARKDOWN = """---
layout: help
title: 'Wombats: a guide'
---
{% include banner.html %}
Wombats **dig** [burrows]({{ site.url }}/burrows).

{: .list}

* one
* two
  1. two *a*

## Food {:.wide}

| plant | amount |
|---|---|
| grass | 2 kg |

```jinja
{% keep this %}
```

## Empty

### Deep

<div markdown="1">Inside <b>HTML</b><br>next</div>

## Last
"""


def test_markdown_becomes_readable_text_under_its_headings(tmp_path):
    (document,) = loaded(tmp_path, "w.md", MARKDOWN)
    assert document.title == "Wombats: a guide"
    assert document.media_type == "text/markdown"
    assert document.text.startswith("Wombats dig burrows.\n\n- one\n- two\n  1. two a\n\nplant | amount")
    sections = under(document)
    assert sections[("Food",)] == "plant | amount\ngrass | 2 kg\n\n{% keep this %}"
    assert sections[("Empty", "Deep")] == "Inside HTML\nnext"
    assert sections[()] == "Last"  # a heading with nothing below it stays as text


def test_the_first_heading_is_the_title_where_front_matter_gives_none(tmp_path):
    (document,) = loaded(tmp_path, "w.md", "# Wombats\n\nThey dig.\n\n## Food\n\nGrass.")
    assert document.title == "Wombats"
    assert under(document) == {(): "They dig.", ("Food",): "Grass."}


def test_the_file_name_is_the_title_of_last_resort(tmp_path):
    assert loaded(tmp_path, "notes.md", "They dig.\n\n# Later\n\nMore.")[0].title == "notes"
    assert loaded(tmp_path, "notes.txt", "They dig.")[0].title == "notes"


def test_a_document_of_one_heading_keeps_its_words(tmp_path):
    (document,) = loaded(tmp_path, "w.md", "# Wombats dig burrows")
    assert document.text == "Wombats dig burrows"


@pytest.mark.parametrize(
    ("text", "title", "body"),
    [
        ('---\ntitle: "A \\"b\\""\n---\nx', 'A "b"', "x"),
        ("---\ntitle: >-\n  two\n  lines\nkind: a\n---\nx", "two lines", "x"),
        ("---\nkind: a\n---\nx", "", "x"),
        ("---\n\nA line, then text\n\n---\nx", "", None),
        ("no front matter", "", None),
    ],
)
def test_front_matter_gives_the_title_and_leaves_the_text(text, title, body):
    found = split_front_matter(text)
    assert found[0] == title
    if body is not None:
        assert found[1] == body


def test_marks_inside_code_stay():
    assert without_marks("`{% a %}` {% b %} {{ c }} {:d}") == "`{% a %}`   "
    fenced = "{:a}\n```x\n{:b}\n```` \n{:c}\n- ~~~\n{:d}\n```\n{:e}"
    assert without_marks(fenced) == "\n```x\n{:b}\n```` \n\n- ~~~\n{:d}\n```\n{:e}"


@pytest.mark.parametrize("part", ["```a\n", "{% ", "{{", "` ``", "{: "])
def test_marks_that_never_end_take_no_longer_than_others(part):
    started = time.perf_counter()
    without_marks(part * 20_000)
    assert time.perf_counter() - started < 5


HTML = """<!DOCTYPE html><html><head><title>Wombats &amp; co</title><style>p{}</style></head><body>
<nav><a href="/">Home</a></nav><main><h1>Wombats &amp; co</h1><p>They
 dig   <em>deep</em>ly.</p><script>track()</script><!-- no -->
<h2><button>Food</button></h2><ul><li>grass<li>roots <ol><li>fine</li></ol></ul>
<table><tr><th>plant</th><th>kg</th></tr><tr><td><p>grass</p></td><td>2</td></tr></table>
<pre>a  b
  c</pre></main><footer>imprint</footer></body></html>"""


def test_html_loses_its_furniture_and_keeps_headings_lists_tables_and_code(tmp_path):
    (document,) = loaded(tmp_path, "w.html", HTML)
    assert document.title == "Wombats & co"
    food = "- grass\n- roots\n  1. fine\n\nplant | kg\ngrass | 2\n\na  b\n  c"
    assert under(document) == {(): "They dig deeply.", ("Food",): food}


def test_html_is_known_by_its_content_too(tmp_path):
    (document,) = loaded(tmp_path, "page.txt", HTML)
    assert document.media_type == "text/html"


def test_html_nested_ten_thousand_deep_is_read(tmp_path):
    (document,) = loaded(tmp_path, "deep.html", "<div>" * 10_000 + "dig" + "</div>" * 10_000)
    assert document.text == "dig"


def test_a_page_that_is_all_furniture_is_kept(tmp_path):
    assert loaded(tmp_path, "w.html", "<body><nav>Wombats dig</nav></body>")[0].text == "Wombats dig"


def test_a_table_that_lays_out_a_page_keeps_its_headings(tmp_path):
    page = "<table><tr><td>menu</td><td><h2>Food</h2><p>Grass.</p></td></tr></table>"
    (document,) = loaded(tmp_path, "w.html", page)
    assert "Grass." in document.text
    assert document.title == "w"
    assert under(document)[("Food",)] == "Grass."


def make_pdf(pages: list[tuple[str, str]], password: str = "") -> bytes:
    """Return a PDF with a bookmark and a text on each page; a page without text stays white."""
    from fpdf import FPDF

    pdf = FPDF()
    pdf.set_title("Wombat manual")
    pdf.set_font("helvetica", size=11)
    if password:
        pdf.set_encryption(owner_password=password, user_password=password)
    for heading, text in pages:
        pdf.add_page()
        if heading:
            pdf.start_section(heading)
        if text:
            pdf.multi_cell(0, 6, text)
    return bytes(pdf.output())


def test_pdf_gives_sheets_headings_and_a_title(tmp_path):
    raw = make_pdf([("Digging", "Before.\nDigging\nThey dig."), ("", ""), ("Food", "Food\nGrass.")])
    (document,) = loaded(tmp_path, "w.pdf", raw)
    assert document.title == "Wombat manual"
    passages, notices = split(document, CONFIG, lambda texts: [1] * len(texts))
    found = [(passage.sheet, passage.headings, passage.text) for passage in passages]
    assert found == [(1, (), "Before."), (1, ("Digging",), "They dig."), (3, ("Food",), "Grass.")]
    assert notices == ["w.pdf: no text on page 2; if it is a picture, run OCR and add it again"]


def test_two_hundred_printed_pages_are_read_and_split_in_seconds(tmp_path):
    raw = make_pdf([(f"Chapter {n}", f"Wombat number {n} digs its burrow well. " * 40) for n in range(1, 201)])
    started = time.perf_counter()
    (document,) = loaded(tmp_path, "book.pdf", raw)
    passages, _ = split(document, CONFIG, lambda texts: [1] * len(texts))
    assert time.perf_counter() - started < 20
    assert {passage.sheet for passage in passages} == set(range(1, 201))
    assert all(f"number {passage.sheet} digs" in " ".join(passage.text.split()) for passage in passages)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (make_pdf([("", "secret")], password="dig"), "is encrypted; remove the password"),
        (make_pdf([("", "")]), "holds no text on any of its 1 pages, it is probably scanned"),
        (b"%PDF-1.7 and then nothing of the kind", "is a broken PDF"),
        (b"just text", "is no PDF or is broken, it begins with b'just tex'"),
    ],
)
def test_a_pdf_that_cannot_be_read_says_why(tmp_path, raw, message):
    with pytest.raises(DocumentError, match=message):
        loaded(tmp_path, "w.pdf", raw)


def make_docx() -> bytes:
    import docx

    word = docx.Document()
    word.core_properties.title = "Wombat manual"
    word.add_heading("Wombat manual", 0)
    word.add_paragraph("They dig.")
    word.add_heading("Food", 1)
    word.add_paragraph("grass", style="List Bullet")
    table = word.add_table(rows=2, cols=2)
    for cell, text in zip([c for row in table.rows for c in row.cells], ["plant", "kg", "grass", "2"], strict=True):
        cell.text = text
    stream = io.BytesIO()
    word.save(stream)
    return stream.getvalue()


def test_docx_gives_headings_tables_and_a_title(tmp_path):
    (document,) = loaded(tmp_path, "w.docx", make_docx())
    assert document.title == "Wombat manual"
    assert under(document) == {(): "They dig.", ("Food",): "- grass\n\nplant | kg\ngrass | 2"}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (make_docx()[:3000], "is no DOCX or is broken"),
        (b"\xd0\xcf\x11\xe0 old", "is an old or encrypted Office file; save it as .docx"),
    ],
)
def test_a_docx_that_cannot_be_read_says_why(tmp_path, raw, message):
    with pytest.raises(DocumentError, match=message):
        loaded(tmp_path, "w.docx", raw)


def test_records_keep_their_ids_whatever_their_type(tmp_path):
    ids = [7, "seven", str(uuid.UUID(int=7)), "008", -1, "日本", "a:0-4"]
    lines = "".join(json.dumps({"id": value, "text": "t", "extra": [1]}) + "\n" for value in ids)
    assert [document.page for document in loaded(tmp_path, "r.jsonl", lines)] == [str(value) for value in ids]


def test_records_without_id_are_named_by_file_and_line(tmp_path):
    lines = '{"title": "A", "text": "same"}\n\n{"title": "A", "contents": "same"}\n{"page": "p", "text": "same"}\n'
    documents = loaded(tmp_path, "r.jsonl", lines)
    assert [document.page for document in documents] == ["r.jsonl#1", "r.jsonl#3", "p"]
    assert [document.text for document in documents] == ["same"] * 3


def test_records_may_hold_markdown_and_headings(tmp_path):
    lines = '{"title": "T", "body_markdown": "## H\\n\\n[x](y)"}\n{"text": "t", "headings": ["A", " B "]}'
    first, second = loaded(tmp_path, "r.jsonl", lines)
    assert (first.title, under(first)) == ("T", {("H",): "x"})
    assert under(second) == {("A", "B"): "t"}


def test_records_may_be_packed(tmp_path):
    import gzip

    assert loaded(tmp_path, "r.jsonl.gz", gzip.compress(b'{"text": "dig"}'))[0].page == "r.jsonl.gz#1"


def test_a_blank_record_is_a_document_without_passages(tmp_path):
    documents = loaded(tmp_path, "r.jsonl", '{"id": 1, "text": "  "}\n{"id": 2, "text": "dig"}')
    assert split(documents[0], CONFIG, lambda texts: [1] * len(texts))[1] == ["1 is blank; no passage was made of it"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"text": "a"}\n{"text": ', "r.jsonl, line 2 is not valid JSON"),
        ('\n["a"]', "line 2 is list, not an object"),
        ('{"title": "a", "body": "b"}', "line 1 has none of the fields text, .* it has 'title', 'body'"),
        ('{"text": 3}', "line 1: text must be a string, got 3"),
        ('{"id": true, "text": "a"}', "id must be a string or an integer, got True"),
        ('{"id": " ", "text": "a"}', "id ' ' is blank"),
        ('{"id": "\\ud800", "text": "a"}', "lone surrogate"),
        ('{"headings": "a", "text": "a"}', "headings must be a list of strings, got 'a'"),
        ('{"id": 7, "text": "a"}\n{"id": "7", "text": "b"}', "line 2: id '7' stands in line 1 too"),
        ("[" * 100_000, "line 1 is not valid JSON"),
    ],
)
def test_a_record_that_cannot_be_read_is_named_by_its_line(tmp_path, lines, message):
    with pytest.raises(DocumentError, match=message):
        loaded(tmp_path, "r.jsonl", lines)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", NOT_NFC),
        ("a.md", NOT_NFC),
        ("a.html", f"<p>{NOT_NFC}</p>"),
        ("a.jsonl", json.dumps({"text": NOT_NFC})),
    ],
)
def test_every_format_comes_out_nfc(tmp_path, name, content):
    (document,) = loaded(tmp_path, name, content)
    assert document.text == unicodedata.normalize("NFC", NOT_NFC) == "café"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252", "shift_jis", "cp1251"])
def test_text_is_read_in_other_encodings(tmp_path, encoding):
    text = {
        "shift_jis": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。" * 5,
        "cp1251": "Все счастливые семьи похожи друг на друга, каждая по-своему. " * 5,  # noqa: RUF001
    }.get(encoding, "Où est le café ? Là-bas, près du marché, à côté de l'église. " * 5).strip()
    assert loaded(tmp_path, "a.txt", text.encode(encoding))[0].text == text


def test_html_says_its_encoding(tmp_path):
    page = '<html><meta charset="iso-8859-2"><p>Žluťoučký kůň</p></html>'
    assert loaded(tmp_path, "a.html", page.encode("iso-8859-2"))[0].text == "Žluťoučký kůň"


def test_cleaning_leaves_only_what_can_be_written():
    assert clean("a\r\nb\rc\u2028d\x00e\ud800f\x1bg\u00adh\ufeff") == "a\nb\nc\nde\ufffdf gh"
    assert clean("👩‍👩‍👧 שלום ۀ") == unicodedata.normalize("NFC", "👩‍👩‍👧 שלום ۀ")


def test_an_office_file_that_unpacks_without_bounds_is_refused(tmp_path):
    import zipfile

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("word/document.xml", b" " * 20_000_000)
    with pytest.raises(DocumentError, match="unpacks from"):
        loaded(tmp_path, "bomb.docx", stream.getvalue())


def test_a_hyphen_that_only_breaks_a_printed_line_is_taken_out():
    from byheart.corpus.pdf import BROKEN_WORD

    assert BROKEN_WORD.sub("", "bur\ufffe\nrow") == BROKEN_WORD.sub("", "bur\x02\nrow") == "burrow"


@pytest.mark.parametrize(
    ("name", "package", "raw"),
    [
        ("a.pdf", "pypdfium2", b"%PDF-1.7"),
        ("a.docx", "mammoth", make_docx()),
        ("a.html", "bs4", b"<p>x"),
        ("a.md", "markdown_it", b"x"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(tmp_path, monkeypatch, name, package, raw):
    import sys

    from byheart.corpus.markdown import _renderer
    from byheart.errors import MissingExtraError

    _renderer.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'byheart\[documents\]'"):
        loaded(tmp_path, name, raw)
