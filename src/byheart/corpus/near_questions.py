"""Questions with ways to ask the same and near misses, from JSONL: what the memory is adapted on.

Owns the file format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from byheart.errors import InputError


@dataclass(frozen=True, slots=True)
class NearQuestions:
    """A question and its neighbours.

    Attributes:
        question: The question.
        same: Questions that ask the same.
        different: Questions that look alike and ask something else.
    """

    question: str
    same: tuple[str, ...]
    different: tuple[str, ...]


def read_near_questions(path: Path) -> Iterator[NearQuestions]:
    """Yield the records of a file.

    Args:
        path: JSONL of `{"question": …, "same": […], "different": […]}`.

    Yields:
        One record per line.

    Raises:
        InputError: The file is missing, or a line is not of this form; the message names the line.
    """
    if not path.is_file():
        raise InputError(f"{path} is no file; pass JSONL of {{question, same, different}}")
    for number, line in enumerate(path.read_text("utf-8-sig").splitlines(), start=1):
        if line.strip():
            yield _record(line, f"{path}, line {number}")


def _record(line: str, place: str) -> NearQuestions:
    try:
        record = json.loads(line)
        held = NearQuestions(record["question"], tuple(record.get("same", ())), tuple(record.get("different", ())))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{place}: {line[:80]!r} is not {{question, same, different}} ({error}); correct it"
        ) from error
    texts = (held.question, *held.same, *held.different)
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise InputError(f"{place}: question, same and different must be text, got {line[:80]!r}; correct it")
    return held
