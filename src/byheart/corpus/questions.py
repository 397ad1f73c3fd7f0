"""Questions with the passage or the answers they want, from JSONL: what retrieval and the gate are fitted on.

Owns the file format. Knows no knowledge base: whether a passage exists is checked by its user.
"""

from __future__ import annotations

import json
from pathlib import Path

from byheart.errors import InputError, QuestionError
from byheart.types import Kind, Question, Verdict


def read_gold_questions(path: Path) -> tuple[list[Question], list[str]]:
    """Return questions and, for each, the id of its passage.

    Args:
        path: JSONL file of `{"question": …, "passage": …}`.

    Returns:
        Questions and passage ids, in the file's order.

    Raises:
        InputError: The file is missing, empty, or a line is not of this form; the message names the line.
    """
    if not path.is_file():
        raise InputError(f"{path} is no file; pass JSONL of {{question, passage}}")
    questions: list[Question] = []
    passage_ids: list[str] = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            question, passage_id = _record(line, f"{path}, line {number}")
            questions.append(question)
            passage_ids.append(passage_id)
    if not questions:
        raise InputError(f"{path} holds no question; give at least a few dozen")
    return questions, passage_ids


def read_answered_questions(path: Path) -> tuple[list[Question], list[tuple[str, ...]]]:
    """Return questions and, for each, its accepted answers.

    Args:
        path: JSONL file of `{"question": …, "answers": […], "kind"?: …}`; no answers where only abstaining is right.

    Returns:
        Questions and answers, in the file's order.

    Raises:
        InputError: The file is missing, empty, or a line is not of this form; the message names the line.
    """
    if not path.is_file():
        raise InputError(f"{path} is no file; pass JSONL of {{question, answers}}")
    questions: list[Question] = []
    gold: list[tuple[str, ...]] = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if line.strip():
            question, answers = _answered(line, f"{path}, line {number}")
            questions.append(question)
            gold.append(answers)
    if not questions:
        raise InputError(f"{path} holds no question; give at least a few dozen")
    return questions, gold


def _answered(line: str, place: str) -> tuple[Question, tuple[str, ...]]:
    try:
        record = json.loads(line)
        text, answers, kind = record["question"], record["answers"], Kind(record.get("kind", Kind.QUESTION))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{place}: {line[:80]!r} is not {{question, answers}} ({error}); correct that line") from error
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in [text, *answers]):
        raise InputError(f"{place}: question must be text and answers a list of texts, got {line[:80]!r}; correct it")
    if any(not answer.strip() for answer in answers):
        raise InputError(
            f"{place}: an answer is blank, got {answers!r:.80}; answers are [] where only abstaining is right"
        )
    if kind is Kind.CLAIM and any(answer not in list(Verdict) for answer in answers):
        raise InputError(
            f"{place}: a claim's answers are {' or '.join(Verdict)}, got {answers!r:.80}; correct that line"
        )
    try:
        return Question.parse(text, kind), tuple(answers)
    except QuestionError as error:
        raise QuestionError(f"{place}: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from error


def _record(line: str, place: str) -> tuple[Question, str]:
    try:
        record = json.loads(line)
        question, passage_id = record["question"], record["passage"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise InputError(f"{place}: {line[:80]!r} is not {{question, passage}} ({error}); correct that line") from error
    if not isinstance(question, str) or not isinstance(passage_id, str):
        raise InputError(f"{place}: question and passage must be text, got {line[:80]!r}; correct that line")
    try:
        return Question.parse(question), passage_id
    except QuestionError as error:
        raise QuestionError(f"{place}: {error}") from error
