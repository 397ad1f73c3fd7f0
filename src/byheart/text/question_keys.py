"""When two questions are one, and the id of a fact that was given none.

Owns the form in which questions are compared: width, case, runs of white space, invisible marks and closing punctuation
do not count; every word and accent does. Knows no meaning: paraphrases have keys of their own.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable

from byheart.types import Kind

# Soft hyphen, zero-width space, direction marks and byte order mark. Joiners stay: they make letters and emoji.
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_CLOSING = " ?!.\u061f\u3002"  # also the Arabic question mark and the full stop of Chinese and Japanese


def question_key(text: str) -> str:
    """Return the key under which questions that differ in form only are one.

    Args:
        text: A question or a claim.

    Returns:
        NFKC, case-folded, white space collapsed, without `?`, `!` or `.` at the end; these stay where nothing else is.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    folded = " ".join(_INVISIBLE.sub("", folded).split())
    return folded.rstrip(_CLOSING) or folded


def distinct_questions(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts in order, each question once, in the wording that comes first."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(question_key(text), text)
    return tuple(found.values())


def fact_id(question: str, kind: Kind) -> str:
    """Return the id of a fact that was given none.

    Args:
        question: Its question; what `question_key` ignores changes nothing.
        kind: A question or a claim.

    Returns:
        `fact-` and 16 hexadecimal digits of a SHA-256: who can guess the question can check the guess.
    """
    content = f"{Kind(kind).value}\n{question_key(question)}"
    return f"fact-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
