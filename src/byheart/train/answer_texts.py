"""What the answer codec learns from: answers and names of the public data, invented numbers and dates, other scripts.

Owns the choice and the inventions. Nothing of the support desk, of `test_nq`, of the NQ questions that are reported on
or of the ParaRel facts that are held out is read. Knows no tokens.
"""

from __future__ import annotations

import calendar
import random
from collections.abc import Callable
from pathlib import Path

from byheart.corpus.datasets import medquad, multihop_training, nq_gold, popqa, question_pairs, squad
from byheart.corpus.pararel import training_statements
from byheart.corpus.splits import is_nq_training

MEDICAL = 6000  # first sentences of long medical answers
MEDICAL_LENGTH = 200  # characters
INVENTED = 12_000
PER_SCRIPT = 100  # strings of 2 to 10 characters
MONTHS = tuple(calendar.month_name)[1:]
QUANTITIES = ("people", "years", "days", "hours", "minutes", "points", "pages")
UNITS = ("km", "m", "kg", "mg", "ml", "mm", "°C", "°F", "mph", "GB", *QUANTITIES)
# First and last code points of scripts that the public data hardly hold, and how much more of each is wanted.
SCRIPTS = (
    (0x00C0, 0x024F, 2),  # accented Latin
    (0x0391, 0x03C9, 1),
    (0x0410, 0x044F, 1),
    (0x05D0, 0x05EA, 1),
    (0x0621, 0x064A, 1),
    (0x0905, 0x0939, 1),
    (0x0E01, 0x0E3A, 1),
    (0x3041, 0x3096, 1),
    (0x30A1, 0x30FA, 1),
    (0x4E00, 0x9FA5, 6),  # two tokens per character instead of three
    (0xAC00, 0xD7A3, 3),
    (0x2010, 0x2027, 1),
    (0x2190, 0x22FF, 1),
    (0x1F300, 0x1F64F, 1),
)


def answer_texts(data: Path, seed: int) -> list[str]:
    """Return distinct answers, names and sentences to learn from, in order.

    Args:
        data: Folder of the public data sets.
        seed: Chooses among the medical answers.

    Returns:
        The texts, sorted.
    """
    held = [answer for row in nq_gold(data) if is_nq_training(row.id, data) for answer in row.answers]
    held += [answer for row in question_pairs(data, "train_nq_nogold") for answer in row.answers]
    held += [text for row in popqa(data) for text in (row.subject, row.answer, *row.answers)]
    held += [asked.answer for context in squad(data) for asked in context.questions]
    held += [answer for row in multihop_training(data) for answer in row.answers]
    held += [text for row in training_statements(data) for text in (row.subject, row.answer)]
    medical = medquad(data)
    held += [row.focus for row in medical]
    chosen = random.Random(seed).sample(medical, min(MEDICAL, len(medical)))
    held += [row.answer.split(". ")[0][:MEDICAL_LENGTH] for row in chosen]
    return sorted({text for text in held if text})


def invented_texts(seed: int) -> list[str]:
    """Return what answers are made of besides words: dates, times, amounts, ranges, addresses, and other scripts."""
    rng = random.Random(seed)
    kinds: tuple[Callable[[random.Random], str], ...] = (_date, _number, _amount, _address)
    found = [rng.choice(kinds)(rng) for _ in range(INVENTED)]
    for first, last, share in SCRIPTS:
        for _ in range(PER_SCRIPT * share):
            found.append("".join(chr(rng.randint(first, last)) for _ in range(rng.randint(2, 10))))
    return found


def _date(rng: random.Random) -> str:
    year, month, day = rng.randint(1000, 2100), rng.randint(1, 12), rng.randint(1, 31)
    name = MONTHS[month - 1]
    return rng.choice(
        (
            f"{name} {day}, {year}",
            f"{day} {name} {year}",
            f"{name} {year}",
            f"{year}-{month:02}-{day:02}",
            f"{day:02}/{month:02}/{year}",
            f"{year}",
            f"{year}\N{EN DASH}{year + rng.randint(1, 30)}",
            f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}",
            f"{rng.randint(1, 12)}:{rng.randint(0, 59):02} {rng.choice(('a.m.', 'p.m.', 'AM', 'PM'))}",
        )
    )


def _number(rng: random.Random) -> str:
    number = rng.random() * 10 ** rng.randint(0, 9)
    return rng.choice(
        (f"{number:.0f}", f"{number:,.0f}", f"{number:,.2f}", f"{number:.1f}", f"{number:.3g}", f"-{number:.2f}")
    )


def _amount(rng: random.Random) -> str:
    number = _number(rng)
    return rng.choice(
        (
            f"{rng.randint(0, 1000) / 10:g}%",
            f"{rng.choice('$€£')}{number}",
            f"{number} {rng.choice(UNITS)}",
            f"{number} {rng.choice(('million', 'billion', 'thousand'))}",
            f"{rng.randint(1, 20)} to {rng.randint(20, 99)} {rng.choice(UNITS)}",
        )
    )


def _address(rng: random.Random) -> str:
    word = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 9)))
    digits = "".join(rng.choice("0123456789") for _ in range(10))
    return rng.choice(
        (
            f"https://www.{word}.org/{word[::-1]}.html",
            f"{word}@{word[::-1]}.com",
            f"({digits[:3]}) {digits[3:6]}-{digits[6:]}",
            f"+{digits[:2]} {digits[2:5]} {digits[5:]}",
            f"version {digits[0]}.{digits[1]}.{digits[2]}",
            f"{word}_{word[::-1]}({digits[0]}, {word[0]}={digits[1:3]})",
        )
    )
