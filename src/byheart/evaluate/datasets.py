"""What each suite asks, with what is right: the public data sets as tasks.

Owns which document answers which question. File formats are `corpus.datasets`' business, but for the help desk's
queries, which only evaluation reads; splits are `corpus.splits`'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart.corpus.datasets import Claim, GoldQuestion, fever_claims, fever_training_claims, nq_gold, plain, records
from byheart.errors import EvaluationError
from byheart.evaluate.measures import Gold
from byheart.types import Document, Kind, Question

SUPPORT_STYLES = ("plain", "terse", "typo", "long", "frustrated")


@dataclass(frozen=True, slots=True)
class Task:
    """One question of a suite.

    Attributes:
        id: Unique in its suite.
        question: What is asked.
        gold: Right answers, and the pages that KILT scores.
        sources: Documents of the knowledge base that hold the evidence; any of them counts as found.
    """

    id: str
    question: Question
    gold: Gold
    sources: frozenset[str]


def nq_tasks(data: Path, documents: Sequence[Document]) -> list[Task]:
    """Return the NQ questions that have a gold passage.

    Args:
        data: Folder of the data sets.
        documents: The suite's corpus; a title that repeats has several documents, KILT scores the title.

    Returns:
        Tasks in the file's order.

    Raises:
        EvaluationError: A gold passage is not in the corpus.
    """
    pages = {(document.title, document.text): document.page for document in documents}
    return [_nq_task(row, pages) for row in nq_gold(data)]


def fever_tasks(data: Path, documents: Sequence[Document]) -> list[Task]:
    """Return the dev claims, each with the sentences that decide it; those that are in no corpus can't be found."""
    return _claim_tasks(fever_claims(data), documents)


def fever_training_tasks(data: Path, documents: Sequence[Document]) -> list[Task]:
    """Return the claims that may be learned from, each with the sentences that decide it."""
    return _claim_tasks(fever_training_claims(data), documents)


def support_tasks(data: Path) -> dict[str, list[Task]]:
    """Return the help desk's answerable queries by split.

    Args:
        data: Folder of the data sets.

    Returns:
        `facts` (all English queries for a fact), one split per style, `retrieval_only`, `languages`, one per language.

    Raises:
        EvaluationError: A query names a fact that is not in the list of facts.
    """
    facts = {row["id"]: row for row in records(data / "support/support_faq.jsonl")}
    splits: dict[str, list[Task]] = {name: [] for name in ("facts", *SUPPORT_STYLES, "retrieval_only", "languages")}
    for row in records(data / "support/support_queries.jsonl"):
        names = _support_splits(row)
        if names:
            task = _support_task(row, facts)
            for name in names:
                splits.setdefault(name, []).append(task)
    return {name: tasks for name, tasks in splits.items() if tasks}


def _nq_task(row: GoldQuestion, pages: Mapping[tuple[str, str], str]) -> Task:
    page = pages.get((row.title, row.text))
    if page is None:
        raise EvaluationError(f"the gold passage of {row.id} ({row.title!r}) is not in the corpus; fetch the data anew")
    gold = Gold(row.answers, (frozenset({row.title}),))
    return Task(row.id, Question.parse(row.question), gold, frozenset({page}))


def _claim_tasks(claims: Sequence[Claim], documents: Sequence[Document]) -> list[Task]:
    pages = {document.text: document.page for document in documents}
    return [
        Task(
            claim.id,
            Question.parse(plain(claim.claim), Kind.CLAIM),
            Gold((claim.verdict.value,), tuple(frozenset({page}) for page in claim.pages)),
            frozenset(pages[sentence] for sentence in claim.evidence if sentence in pages),
        )
        for claim in claims
    ]


def _support_splits(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the splits a query belongs to; none for near misses and for what is out of scope."""
    if row.get("lang"):
        return ("languages", f"language {row['lang']}")
    if row.get("kind") == "retrieval_only":
        return ("retrieval_only",)
    return ("facts", str(row["style"])) if row.get("fact") and row.get("style") else ()


def _support_task(row: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]]) -> Task:
    fact = row if row.get("article") else facts.get(row["fact"])
    if fact is None:
        raise EvaluationError(f"query {row['id']} asks for {row['fact']!r}, which is no fact; fetch the data anew")
    article = str(fact["article"])
    gold = Gold((str(fact["answer"]),), (frozenset({article}),))
    return Task(str(row["id"]), Question.parse(row["query"]), gold, frozenset({article}))
