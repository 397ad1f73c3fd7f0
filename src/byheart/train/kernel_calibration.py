"""Calibrating the memory's judgement where it is used: held-out questions asked of a memory full of facts.

Owns the three numbers: slope and offset of the kernel's log-odds, and how much a fact loses that lies farther from the
question than the nearest one. The kernel was trained on near misses; among facts that are merely near, the cosine knows
better which one is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from byheart.corpus.datasets import question_pairs
from byheart.corpus.splits import is_pair_held_out
from byheart.interfaces import Floats
from byheart.memory.codes import Codes
from byheart.memory.kernel import Kernel, States
from byheart.memory.reader import padded

CANDIDATES = 4
BATCH = 64


@dataclass(frozen=True, slots=True)
class Trial:
    """Held-out questions with their candidates.

    Attributes:
        odds: The kernel's log-odds. Shape `questions candidates`.
        gaps: How much farther each lies than the nearest, in cosine. Shape `questions candidates`.
        own: Which candidate is the right fact; `candidates` where none is. Shape `questions`.
    """

    odds: Tensor
    gaps: Tensor
    own: Tensor


def calibrate(trial: Trial) -> tuple[float, float, float]:
    """Return slope, offset and gap weight of least loss, each candidate and *not known* sharing the probability.

    Args:
        trial: Held-out questions.

    Returns:
        The three numbers. Source: Platt 1999, section 2.2, for several candidates.
    """
    line = torch.tensor([1.0, 0.0, 10.0], requires_grad=True)
    optimizer = torch.optim.LBFGS([line], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        scores = line[0] * trial.odds + line[1] - line[2] * trial.gaps
        whole = torch.cat([scores, torch.zeros(len(scores), 1)], dim=1)
        found = torch.nn.functional.cross_entropy(whole, trial.own)
        found.backward()  # type: ignore[no-untyped-call]
        return found

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    slope, offset, weight = line.detach().tolist()
    return slope, offset, max(weight, 0.0)


def trial(
    kernel: Kernel, data: Path, written: Sequence[str], tokens: Callable[[str, str], list[int]],
    keys: Callable[[Sequence[str]], Floats],
) -> Trial:  # fmt: skip
    """Return the held-out questions beside the nearest of all facts with hand-written pairs.

    Args:
        kernel: The trained kernel.
        data: Folder of the data sets.
        written: The sets of hand-written pairs.
        tokens: Token ids of a question, or of a question and its answer.
        keys: Unit keys of questions. Shape `batch key_width`.

    Returns:
        What the kernel says of them.
    """
    rows = [row for name in written for row in question_pairs(data, name)]
    held = [i for i, row in enumerate(rows) if is_pair_held_out(row.id)]
    asked = [(text, i) for i in held for text in rows[i].paraphrases]
    asked += [(text, -1) for i in held for text in rows[i].near_misses]
    cosines = keys([text for text, _ in asked]) @ keys([row.question for row in rows]).T
    near = np.argsort(-cosines, axis=1)[:, :CANDIDATES]
    facts = {int(i): tokens(rows[i].question, rows[i].answers[0] if rows[i].answers else "") for i in np.unique(near)}
    values = _values(kernel, facts)
    odds = [
        _odds(kernel, tokens(text, ""), [values[int(i)] for i in of_one])
        for (text, _), of_one in zip(asked, near, strict=True)
    ]
    best = np.take_along_axis(cosines, near, axis=1)
    own = np.array([i for _, i in asked])[:, None] == near
    return Trial(
        torch.stack(odds),
        torch.from_numpy(best[:, :1] - best),
        torch.from_numpy(np.where(own.any(axis=1), own.argmax(axis=1), CANDIDATES)),
    )


def _values(kernel: Kernel, facts: dict[int, list[int]]) -> dict[int, Floats]:
    """Return facts' values as slots keep them."""
    found: dict[int, Floats] = {}
    numbers = sorted(facts, key=lambda i: len(facts[i]))
    with torch.inference_mode():
        for first in range(0, len(numbers), BATCH):
            some = numbers[first : first + BATCH]
            values = kernel.compress(kernel.lower([facts[i] for i in some], 1)).float().numpy()
            found |= {i: Codes.of(row[: len(facts[i])]).vectors for i, row in zip(some, values, strict=True)}
    return found


def _odds(kernel: Kernel, question: list[int], values: Sequence[Floats]) -> Tensor:
    with torch.inference_mode():
        lower = kernel.lower([question], 0)
        states = States(lower.states.expand(len(values), -1, -1), lower.mask.expand(len(values), -1))
        return kernel.match(states, *padded(values)).clone()
