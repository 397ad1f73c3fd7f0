"""The public corpora as documents with stable ids: what a suite's knowledge base holds.

Owns ids. A page of Wikipedia that gives several passages is `Title`, `Title#2`, … in the file's order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from byheart.corpus.datasets import TitledText, fever_sentences, help_articles, nq_passages
from byheart.corpus.markdown import document_from_markdown
from byheart.types import Document, passage_id

# These records are passages already: none is split. And what always answers is compared on all questions.
WHOLE = {
    "corpus.words": 400,
    "corpus.max_tokens": 8192,
    "reader.min_confidence": 0.0,
    "encoder.precision": "auto",
}


def nq_documents(data: Path) -> list[Document]:
    """Return the NQ corpus: 33,709 passages, each its own document."""
    return _numbered(nq_passages(data))


def fever_documents(data: Path) -> list[Document]:
    """Return FEVER's 7,100 evidence sentences, each its own document.

    Titles are part of the id only: they are known for dev claims' sentences alone, so a title that could be searched
    would tell which sentences are reported on.
    """
    named = [TitledText(found.title or "untitled", found.text) for found in fever_sentences(data)]
    return [Document(document.page, "", document.text) for document in _numbered(named)]


def support_documents(data: Path) -> list[Document]:
    """Return the English help articles."""
    return [
        document_from_markdown(article.body, article.id, article.title)
        for article in help_articles(data, language="en")
    ]


def whole_passage_id(document: Document) -> str:
    """Return the id of the one passage of a document that is not split."""
    stripped = document.text.strip()
    start = document.text.index(stripped) if stripped else 0
    return passage_id(document.page, start, start + len(stripped))


def page_title(page: str) -> str:
    """Return the title that a numbered page belongs to."""
    title, mark, number = page.rpartition("#")
    return title if mark and number.isdigit() else page


def _numbered(texts: Iterable[TitledText]) -> list[Document]:
    seen: Counter[str] = Counter()
    documents = []
    for found in texts:
        seen[found.title] += 1
        page = found.title if seen[found.title] == 1 else f"{found.title}#{seen[found.title]}"
        documents.append(Document(page, found.title, found.text))
    return documents
