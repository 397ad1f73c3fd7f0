"""What the memory suites learn and ask: facts, and queries that one of them answers or none does.

Owns which public data become facts, and which fact is right. Nothing here was trained on, but for the facts that are
only asked in their own words. File formats are `corpus.datasets`' business, but for what only evaluation reads.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart.corpus.datasets import nq_gold, popqa, records
from byheart.corpus.pararel import Statement, reported_statements
from byheart.corpus.splits import is_support_training, nq_reporting_ids, share
from byheart.errors import EvaluationError
from byheart.text.question_keys import question_key
from byheart.types import NewFact, Question

PARAPHRASE = "paraphrase"


@dataclass(frozen=True, slots=True)
class Query:
    """A question to a memory.

    Attributes:
        id: Unique in its suite.
        question: What is asked.
        fact: Id of the fact that answers it, None where no fact does.
        group: The fact it is about, whether or not that answers it; such queries are resampled together.
        kind: Style of asking, or kind of near miss.
        language: Language, where it is not English.
    """

    id: str
    question: Question
    fact: str | None
    group: str
    kind: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Statements:
    """ParaRel facts to learn, each in one wording, and others of the same templates that are not learned.

    Attributes:
        facts: Facts to learn.
        known: Each of them in another wording.
        unknown: As many facts that are not learned.
    """

    facts: tuple[NewFact, ...]
    known: tuple[Query, ...]
    unknown: tuple[Query, ...]


def near_miss_facts(data: Path) -> list[NewFact]:
    """Return the 200 facts of `question_pairs/test_nq` with their first answer; their paraphrases are what is asked."""
    return [_fact(row["id"], row["question"], row["answers"][0]) for row in _pairs(data)]


def near_miss_queries(data: Path) -> list[Query]:
    """Return the facts' paraphrases, which they answer, and their near misses, which none of them answers."""
    queries = []
    for row in _pairs(data):
        fact = str(row["id"])
        for i, text in enumerate(row["paraphrases"]):
            queries.append(Query(f"{fact}/paraphrase/{i}", Question.parse(text), fact, fact, PARAPHRASE))
        for i, miss in enumerate(row["near_misses"]):
            queries.append(Query(f"{fact}/near/{i}", Question.parse(miss["question"]), None, fact, str(miss["kind"])))
    return queries


def support_facts(data: Path) -> list[NewFact]:
    """Return the help desk's 132 facts, each with its article and the words that support it."""
    return [
        _fact(row["id"], row["question"], row["answer"], row["article"], row["evidence"])
        for row in records(data / "support/support_faq.jsonl")
    ]


def support_queries(data: Path) -> list[Query]:
    """Return the help desk's queries that were not trained on; a near miss is known where another fact answers it."""
    facts = {fact.id for fact in support_facts(data)}
    found = [_support_query(row, facts) for row in records(data / "support/support_queries.jsonl")]
    return [query for query in found if not is_support_training(query.group)]


def general_facts(data: Path) -> list[NewFact]:
    """Return NQ's questions but for `test_nq`, and PopQA's, in order of their hash: any first part is a random one."""
    reported = nq_reporting_ids(data)
    asked = [_fact(row.id, row.question, row.answers[0]) for row in nq_gold(data) if row.id not in reported]
    return _distinct([*asked, *(_fact(f"popqa-{row.id}", row.question, row.answer) for row in popqa(data))])


def written_facts(data: Path) -> list[NewFact]:
    """Return the facts of `general_facts` and of the help desk, without their articles, in order of their hash."""
    desk = [NewFact(fact.question, fact.answer, id=fact.id) for fact in support_facts(data)]
    return _distinct([*general_facts(data), *desk])


def statements(data: Path, n: int) -> Statements:
    """Return reported ParaRel facts in two wordings each that nothing was trained on.

    A pattern may be held out in one relation and trained on in another: such wordings are left out, as are facts one of
    whose wordings is another fact's too.

    Args:
        data: Folder of the data sets.
        n: Facts to learn at most; as many others are asked without being learned.

    Returns:
        Facts and queries, a random sample.
    """
    pairs = reported_statements(data)
    trained = {_pattern(wording, found) for found, _ in pairs for wording in found.wordings}
    taken: set[str] = set()
    chosen: list[tuple[Statement, str, str]] = []
    for found, wordings in pairs:
        fresh = [wording for wording in wordings if _pattern(wording, found) not in trained]
        if len(fresh) < 2:
            continue
        learned, asked = random.Random(found.id).sample(fresh, 2)
        keys = {question_key(learned), question_key(asked)}
        if not keys & taken:
            taken |= keys
            chosen.append((found, learned, asked))
    n = min(n, len(chosen) // 2)
    return Statements(
        tuple(_fact(found.id, learned, found.answer) for found, learned, _ in chosen[:n]),
        tuple(_statement_query(found, asked, found.id) for found, _, asked in chosen[:n]),
        tuple(_statement_query(found, asked, None) for found, _, asked in chosen[n : 2 * n]),
    )


def growing_facts(data: Path) -> list[NewFact]:
    """Return all reported ParaRel facts in up to two of their held-out wordings, in order of their hash."""
    return _distinct(
        [
            NewFact(wordings[0], _clean(found.answer), tuple(wordings[1:2]), id=found.id)
            for found, wordings in reported_statements(data)
        ]
    )


def _pairs(data: Path) -> list[dict[str, Any]]:
    return list(records(data / "question_pairs/test_nq.jsonl"))


def _support_query(row: Mapping[str, Any], facts: set[str]) -> Query:
    fact = row.get("fact") or row.get("answer_fact")
    if fact is not None and fact not in facts:
        raise EvaluationError(f"query {row['id']} asks for {fact!r}, which is no fact; fetch the data anew")
    group = fact or row.get("near") or row["id"]
    kind = row.get("style") or row.get("kind") or "other"
    return Query(str(row["id"]), Question.parse(row["query"]), fact, str(group), str(kind), str(row.get("lang") or ""))


def _statement_query(found: Statement, asked: str, fact: str | None) -> Query:
    return Query(found.id, Question.parse(asked), fact, found.id, found.relation)


def _pattern(wording: str, found: Statement) -> str:
    return question_key(wording.replace(found.subject, "[X]"))


def _distinct(facts: Sequence[NewFact]) -> list[NewFact]:
    """Return the facts in order of their hash, without those that have a question of an earlier one."""
    taken: set[str] = set()
    kept = []
    for fact in sorted(facts, key=lambda fact: share("order" + fact.id)):
        keys = {question_key(text) for text in (fact.question, *fact.paraphrases)}
        if not keys & taken:
            taken |= keys
            kept.append(fact)
    return kept


def _fact(fact_id: str, question: str, answer: str, source: str = "", evidence: str = "") -> NewFact:
    return NewFact(Question.parse(question).text, _clean(answer), source=source, evidence=evidence, id=str(fact_id))


def _clean(text: str) -> str:
    """Return an answer as the ledger keeps it: what is read back is compared with it as a string."""
    return unicodedata.normalize("NFC", text).strip()
