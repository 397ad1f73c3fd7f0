"""The public data sets byheart is trained and measured on, read from a folder: the files as dataclasses.

Owns file names and fields. Copies nothing, scores nothing, splits nothing (see `splits`).
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byheart.errors import EvaluationError
from byheart.types import Verdict

MEDQUAD = ("cancergov", "cdc", "gard", "ghr", "mplus_health_topics", "nhlbi", "niddk", "ninds", "seniorhealth")
BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "``": '"', "''": '"'}


@dataclass(frozen=True, slots=True)
class GoldQuestion:
    """A Natural Questions question with the passage its answer was found in.

    Attributes:
        id: `nq-<line>`.
        question: The question.
        answers: Accepted answers.
        title: Page of the gold passage.
        text: The gold passage.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class TitledText:
    """A passage with its page's title, empty where unknown."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A FEVER-like claim.

    Attributes:
        id: The set's own id, or `<file>-<line>`.
        claim: The claim.
        verdict: Gold verdict.
        evidence: Gold sentences.
        pages: Titles of the gold pages, where known.
    """

    id: str
    claim: str
    verdict: Verdict
    evidence: tuple[str, ...]
    pages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A SQuAD question with its one answer, a substring of the context."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Context:
    """A SQuAD passage and its questions."""

    title: str
    context: str
    questions: tuple[AskedQuestion, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One of the paragraphs beside a multi-hop question."""

    title: str
    text: str
    is_supporting: bool


@dataclass(frozen=True, slots=True)
class MultihopQuestion:
    """A HotpotQA or 2WikiMultihopQA question."""

    id: str
    question: str
    answers: tuple[str, ...]
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True, slots=True)
class AbstractQuestion:
    """A PubMedQA question: contexts of one abstract, decision yes, no or maybe."""

    id: str
    question: str
    contexts: tuple[str, ...]
    decision: str


@dataclass(frozen=True, slots=True)
class MedicalAnswer:
    """A MedQuAD question and its long answer."""

    id: str
    focus: str
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class MedicalType:
    """What kind of thing a MedQuAD question asks of which disease."""

    qtype: str
    focus: str


@dataclass(frozen=True, slots=True)
class Popular:
    """One PopQA row: relation, subject, object, and the subject's monthly page views."""

    id: str
    question: str
    relation: str
    subject: str
    answer: str
    answers: tuple[str, ...]
    views: int


@dataclass(frozen=True, slots=True)
class AskedOtherwise:
    """A question with hand-written paraphrases and near misses."""

    id: str
    question: str
    answers: tuple[str, ...]
    paraphrases: tuple[str, ...]
    near_misses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HelpArticle:
    """A login.gov help article in one language; `id` is the article's, the same in all languages."""

    id: str
    title: str
    body: str


def help_articles(data: Path, language: str) -> list[HelpArticle]:
    """Return the 55 help articles in a language: en, es, fr or zh."""
    return [
        HelpArticle(row["article"], row["title"], row["body_markdown"])
        for row in records(data / "logingov_help/help_articles.jsonl.gz")
        if row["lang"] == language
    ]


def plain(text: str) -> str:
    """Return FEVER-tokenised text with brackets and quotes as people write them."""
    for mark, character in BRACKETS.items():
        text = text.replace(mark, character)
    return text


def nq_gold(data: Path) -> list[GoldQuestion]:
    """Return the 2,655 questions with gold passages, in the file's order."""
    return [
        GoldQuestion(
            f"nq-{line}", row["question"], tuple(row["answers"]), row["ctxs"][0]["title"], row["ctxs"][0]["text"]
        )
        for line, row in enumerate(records(data / "nq_open/nq-open-oracle.jsonl.gz"))
    ]


def nq_without_gold(data: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Return the NQ-open questions that have no gold passage here, with their answers."""
    known = {row.question for row in nq_gold(data)}
    rows = records(data / "nq_open/NQ-open.dev.jsonl.gz")
    return [(row["question"], tuple(row["answer"])) for row in rows if row["question"] not in known]


def nq_passages(data: Path) -> list[TitledText]:
    """Return the NQ corpus: the gold passages in order of first use, then the distractors; 33,709 in all."""
    gold = [TitledText(row.title, row.text) for row in nq_gold(data)]
    parts = sorted((data / "wiki_distractors").glob("part*.jsonl.gz"))
    if not parts:
        raise EvaluationError(f"{data / 'wiki_distractors'} holds no part*.jsonl.gz; pass the data folder with --data")
    distractors = [TitledText(row["title"], row["text"]) for part in parts for row in records(part)]
    return list(dict.fromkeys(gold + distractors))


def fever_training_claims(data: Path) -> list[Claim]:
    """Return the 6,666 claims of FEVER-lite's test file: what reader and retriever may learn from."""
    return [
        Claim(f"feverlite-test-{line}", row["claim"], Verdict(row["label"]), tuple(map(plain, row["evidence"])))
        for line, row in enumerate(records(data / "fever/feverlite_test.jsonl.gz"))
    ]


def fever_claims(data: Path) -> list[Claim]:
    """Return the 6,666 dev claims with page titles: what is reported on."""
    return [
        Claim(
            str(row["id"]),
            row["claim"],
            Verdict(row["label"]),
            tuple(plain(sentence["text"]) for sentence in row["evidence"]),
            tuple(row["gold_pages"]),
        )
        for row in records(data / "fever/dev_with_titles_derived.jsonl.gz")
    ]


def fever_sentences(data: Path) -> list[TitledText]:
    """Return all evidence sentences of dev and test claims, ascending, each once, with a title where it is known."""
    titles: dict[str, str] = {}
    for row in records(data / "fever/dev_with_titles_derived.jsonl.gz"):
        for sentence in row["evidence"]:
            titles[plain(sentence["text"])] = sentence["title"] or titles.get(plain(sentence["text"]), "")
    texts = {text for claim in fever_training_claims(data) for text in claim.evidence} | titles.keys()
    return [TitledText(titles.get(text, ""), text) for text in sorted(texts)]


def fool_me_twice(data: Path) -> list[Claim]:
    """Return the 1,169 dev claims of Fool Me Twice with gold evidence."""
    return [
        Claim(
            str(row["id"]),
            row["text"],
            Verdict(row["label"]),
            tuple(sentence["text"] for sentence in row["gold_evidence"]),
            (row["wikipedia_page"],),
        )
        for row in records(data / "fool_me_twice/dev.jsonl.gz")
    ]


def squad(data: Path) -> list[Context]:
    """Return SQuAD 1.1 dev by passage."""
    path = data / "squad_dev/squad_val.json.gz"
    return [
        Context(
            row["title"], row["context"], tuple(AskedQuestion(q["question"], q["answer"]) for q in row["questions"])
        )
        for row in json.loads(_text(path))
    ]


def multihop_training(data: Path) -> list[MultihopQuestion]:
    """Return the 500 + 500 training questions of HotpotQA and 2WikiMultihopQA."""
    folder = data / "hotpot_2wiki_500"
    return [
        MultihopQuestion(
            str(row["id"]),
            row["question"],
            tuple(row["answers"]),
            tuple(Paragraph(p["title"], p["text"], p["is_supporting"]) for p in row["paragraphs"]),
        )
        for name in ("hotpotqa_train500", "2wikimultihopqa_train500")
        for row in records(folder / f"{name}.jsonl.gz")
    ]


def pubmedqa(data: Path) -> list[AbstractQuestion]:
    """Return the 1,000 expert-labelled PubMedQA questions."""
    rows = json.loads(_text(data / "pubmedqa/ori_pqal.json.gz"))
    return [
        AbstractQuestion(key, row["QUESTION"], tuple(row["CONTEXTS"]), row["final_decision"])
        for key, row in rows.items()
    ]


def medquad(data: Path) -> list[MedicalAnswer]:
    """Return the 16,407 question-answer pairs of MedQuAD."""
    return [
        MedicalAnswer(f"{name}-{row['qid']}", row["focus"] or "", row["question"], row["answer"])
        for name in MEDQUAD
        for row in records(data / f"medquad/{name}.jsonl.gz")
    ]


def medquad_types(data: Path) -> list[MedicalType]:
    """Return type and disease of every MedQuAD question that names both, each once."""
    rows = (row for name in MEDQUAD for row in records(data / f"medquad/{name}.jsonl.gz"))
    return [MedicalType(*key) for key in dict.fromkeys((r["qtype"] or "", r["focus"] or "") for r in rows) if all(key)]


def popqa(data: Path) -> list[Popular]:
    """Return the random 1,000 rows of PopQA."""
    found = []
    for row in records(data / "popqa/popqa_random1000.jsonl.gz"):
        about = row["metadata"]
        answers = tuple(row["golden_answers"])
        found.append(
            Popular(row["id"], row["question"], about["prop"], about["subj"], about["obj"], answers, about["s_pop"])
        )
    return found


def bank_queries(data: Path) -> list[tuple[str, str]]:
    """Return the training queries of BANKING77, each with its intent."""
    with gzip.open(data / "banking77/train.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return [(" ".join(row["text"].split()), row["category"]) for row in csv.DictReader(file)]


def question_pairs(data: Path, name: str) -> list[AskedOtherwise]:
    """Return one file of questions with paraphrases and near misses, such as `train_nq_0`."""
    return [
        AskedOtherwise(
            row["id"],
            row["question"],
            tuple(row.get("answers") or ()),
            tuple(row["paraphrases"]),
            tuple(miss["question"] for miss in row["near_misses"]),
        )
        for row in records(data / f"question_pairs/{name}.jsonl")
    ]


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file, plain or gzipped.

    Args:
        path: The file.

    Yields:
        One object per line that is not blank.

    Raises:
        EvaluationError: The file is missing or holds a line that is no JSON.
    """
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise EvaluationError(f"{path}, line {number}, is no JSON ({error}); fetch the file anew") from error


def _text(path: Path) -> str:
    if not path.is_file():
        raise EvaluationError(f"{path} is missing; pass the data folder with --data or BYHEART_DATA")
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
