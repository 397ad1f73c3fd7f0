"""Questions put otherwise: clumsily, with one word turned into its opposite, about something near.

Owns these changes. Knows no data set and no network.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from byheart.train.question_templates import OPPOSITES


def clumsy(text: str, rng: random.Random) -> str:
    """Return a question as people type it: without capitals or punctuation, with a typo, a greeting or a plea."""
    chance = rng.random()
    if chance < 0.3:
        text = text.lower().rstrip("?. ")
    elif chance < 0.6:
        text = _typo(text, rng)
    elif chance < 0.7:
        text = f"{rng.choice(('hi, ', 'please help: ', 'quick question - ', 'can you tell me '))}{text}"
    elif chance < 0.8:
        text = f"{text} {rng.choice(('thanks', 'please', 'asap', '??'))}"
    return text


def swapped(question: str, names: Sequence[str], rng: random.Random) -> str | None:
    """Return a question that differs in one word and asks something else; None where nothing can be changed."""
    ways: list[str] = []
    for pair in OPPOSITES:
        for word, other in (pair, pair[::-1]):
            if re.search(rf"\b{word}\b", question, re.IGNORECASE) and not (" " in word and word.endswith("not")):
                ways.append(re.sub(rf"\b{word}\b", other, question, count=1, flags=re.IGNORECASE))
    for number in re.findall(r"\b\d+\b", question):
        ways.append(question.replace(number, str(int(number) + rng.choice((-2, -1, 1, 2, 10))), 1))
    own = names_in(question)
    if own and names:
        other = rng.choice(names)
        if other.lower() not in question.lower():
            ways += [question.replace(rng.choice(own), other, 1)] * 2
    ways = [way for way in ways if way.lower() != question.lower()]
    return rng.choice(ways) if ways else None


def names_in(question: str) -> list[str]:
    """Return the names in a question: words with capitals, but for its first."""
    return re.findall(r"(?<=\s)[A-Z][\w'\u2019-]+(?:\s[A-Z][\w'\u2019-]+)*", question)


def _typo(text: str, rng: random.Random) -> str:
    places = [i for i in range(1, len(text) - 2) if text[i].isalpha() and text[i + 1].isalpha()]
    if not places:
        return text
    i = rng.choice(places)
    kind = rng.random()
    if kind < 0.4:
        return text[:i] + text[i + 1] + text[i] + text[i + 2 :]
    return text[:i] + text[i + 1 :] if kind < 0.8 else text[:i] + text[i] + text[i:]


def cased(text: str, rng: random.Random) -> str:
    """Return a text as it is, or, two times in five, in small letters."""
    return text if rng.random() < 0.6 else text.lower()


def neighbour(subjects: Sequence[str], subject: str, rng: random.Random) -> str | None:
    """Return another subject of the relation; half of the time one whose spelling is near in the alphabet."""
    if len(subjects) < 2:
        return None
    if rng.random() < 0.5:
        place = subjects.index(subject) + rng.choice((-1, 1))
        return subjects[place % len(subjects)] if subjects[place % len(subjects)] != subject else None
    other = rng.choice(subjects)
    return None if other == subject else other
