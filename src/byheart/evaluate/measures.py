"""KILT's measures of one question, to the official scorer bit for bit, and our stricter exact match beside them.

Owns what one answer and one ranking of pages are worth; means and intervals come second, elsewhere. Knows no file
format, no system and no suite.
Source: Petroni et al. 2021, "KILT: a Benchmark for Knowledge Intensive Language Tasks", section 4.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from byheart.evaluate.rouge import rouge_l

Evidence = Sequence[frozenset[str]]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_LEADING_ARTICLE = re.compile(r"^(?:a|an|the) (?=\S)")
_MEANT_MARKS = frozenset("#%&@")  # punctuation by Unicode's table, part of a name or an amount to a reader


@dataclass(frozen=True, slots=True)
class Gold:
    """What is right for one question.

    Attributes:
        answers: Accepted answers; may be empty, then no answer is right.
        evidence: Sets of pages, each of them enough; may be empty, then no ranking is right.
    """

    answers: tuple[str, ...] = ()
    evidence: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Guess:
    """What a system said.

    Attributes:
        answer: The answer, None where it abstained.
        pages: Pages it rests on, best first.
    """

    answer: str | None = None
    pages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scores:
    """What one guess is worth, each from 0 to 1.

    Attributes:
        accuracy: KILT's: the answer is one of the right ones, letter for letter.
        em: KILT's normalised exact match.
        f1: Words shared with the nearest answer.
        rougel: ROUGE-L with the nearest answer.
        strict_em: Our exact match, which tells C++ from C# and 3.5 from 35.
        rprec: R-precision by page, of the best evidence set.
    """

    accuracy: float
    em: float
    f1: float
    rougel: float
    strict_em: float
    rprec: float

    @property
    def kilt(self) -> tuple[float, float, float, float]:
        """Accuracy, EM, F1 and ROUGE-L, counted only where the pages are right too."""
        return (self.accuracy, self.em, self.f1, self.rougel) if self.rprec == 1 else (0.0, 0.0, 0.0, 0.0)


def score(gold: Gold, guess: Guess) -> Scores:
    """Return what a guess is worth.

    Args:
        gold: What is right.
        guess: What was said; an abstention scores 0 on every measure of answers.

    Returns:
        One number per measure.
    """
    rprec = r_precision(gold.evidence, guess.pages)
    if guess.answer is None:
        return Scores(0.0, 0.0, 0.0, 0.0, 0.0, rprec)
    said, answers = guess.answer.strip(), [answer.strip() for answer in gold.answers if answer.strip()]
    return Scores(
        accuracy=float(said in answers),
        em=_best(exact_match, said, answers),
        f1=_best(f1, said, answers),
        rougel=_best(rouge_l, said, answers),
        strict_em=_best(strict_em, said, answers),
        rprec=rprec,
    )


def normalised(text: str) -> str:
    """Return a text as KILT compares it: lower case, without ASCII punctuation, articles and superfluous blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(guess: str, answer: str) -> float:
    """Return 1 where two answers are the same once KILT has normalised them; "The" and "A" are, both being empty."""
    return float(normalised(guess) == normalised(answer))


def f1(guess: str, answer: str) -> float:
    """Return the harmonic mean of precision and recall of the words, after KILT's normalisation."""
    said, wanted = normalised(guess).split(), normalised(answer).split()
    n_shared = (Counter(said) & Counter(wanted)).total()
    if n_shared == 0:
        return 0.0
    precision, recall = n_shared / len(said), n_shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def strict_em(guess: str, answer: str) -> float:
    """Return 1 where two answers are the same to a reader: see `strictly_normalised`."""
    return float(strictly_normalised(guess) == strictly_normalised(answer))


def strictly_normalised(text: str) -> str:
    """Return a text without what a reader ignores: case, spelling in Unicode, outer blanks, idle punctuation.

    Args:
        text: An answer.

    Returns:
        NFC, casefolded. Symbols and `# % & @` stay; a mark between digits stays, and so does a minus before one. A
        leading article goes unless it is all there is. A text of idle punctuation alone is kept as it is.
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    kept = "".join(_kept(folded, place) for place in range(len(folded)))
    words = " ".join(kept.split())
    return _LEADING_ARTICLE.sub("", words) or " ".join(folded.split())


def _kept(text: str, place: int) -> str:
    """Return what remains of one character: itself, nothing, or a blank for a dash between words."""
    character = text[place]
    kind = unicodedata.category(character)
    if not kind.startswith("P") or character in _MEANT_MARKS:
        return "-" if character == "\N{MINUS SIGN}" else character
    before, after = text[place - 1 : place] if place else "", text[place + 1 : place + 2]
    is_sign = kind == "Pd" and not before.isalnum()
    if after.isdigit() and (before.isdigit() or is_sign):
        return "-" if kind == "Pd" else character
    return " " if kind == "Pd" or character == "/" else ""


def r_precision(evidence: Evidence, pages: Sequence[str]) -> float:
    """Return the share of an evidence set found among as many first pages, for the set that fits best.

    Args:
        evidence: Sets of pages, each of them enough.
        pages: Guessed pages, best first; a page named twice counts once.

    Returns:
        A number from 0 to 1; 0 where there is no evidence set or no guess.
    """
    ranking = list(dict.fromkeys(pages))
    return max(
        (len(wanted.intersection(ranking[: len(wanted)])) / len(wanted) for wanted in evidence if wanted), default=0.0
    )


def recall_at(k: int, evidence: Evidence, pages: Sequence[str]) -> float:
    """Return the share of evidence sets that are complete within the first `k` places: see `places`.

    Args:
        k: Places looked at.
        evidence: Sets of pages; equal ones count once.
        pages: Guessed pages, best first.

    Returns:
        A number from 0 to 1; 0 where there is no evidence set.
    """
    n_sets = len({wanted for wanted in evidence if wanted})
    return sum(places(evidence, pages)[:k]) / n_sets if n_sets else 0.0


def precision_at(k: int, evidence: Evidence, pages: Sequence[str]) -> float:
    """Return the share of the first `k` places that complete an evidence set."""
    return sum(places(evidence, pages)[:k]) / k


def success_at(k: int, evidence: Evidence, pages: Sequence[str]) -> float:
    """Return 1 where an evidence set is complete within the first `k` places."""
    return float(any(places(evidence, pages)[:k]))


def places(evidence: Evidence, pages: Sequence[str]) -> list[bool]:
    """Return KILT's ranking, in which an evidence set takes one place: that of its page found last.

    Args:
        evidence: Sets of pages; equal ones count once.
        pages: Guessed pages, best first; a page named twice counts once.

    Returns:
        One entry per place: whether a set is complete there. A page of no set takes a place of its own.
    """
    sets = list(dict.fromkeys(wanted for wanted in evidence if wanted))
    ranking = list(dict.fromkeys(pages))
    events: list[int | None] = []
    for page in ranking:
        holders: list[int | None] = [number for number, wanted in enumerate(sets) if page in wanted]
        events += holders or [None]
    last = {number: event for event, number in enumerate(events)}
    found = frozenset(ranking)
    return [
        number is not None and sets[number] <= found
        for event, number in enumerate(events)
        if number is None or last[number] == event
    ]


def _best(measure: Callable[[str, str], float], said: str, answers: Sequence[str]) -> float:
    return max((measure(said, answer) for answer in answers), default=0.0)
