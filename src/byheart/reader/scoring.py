"""Windows as the compact reader's network sees them: batches of like length, and the best spans of a window.

Owns how windows are batched and how spans are read off two rows of log-probabilities. Knows no answers and no verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from byheart.interfaces import Floats
from byheart.reader.windows import AnswerKind, Window

if TYPE_CHECKING:
    from byheart.reader.compact_model import CompactModel

SPANS_PER_WINDOW = 10
BATCH = 16
PADDING = 1.25  # the longest window of a batch is at most so many times as long as the shortest
Row = tuple[int, int, int, Window]  # length, reading, window within the reading


@dataclass(frozen=True, slots=True)
class Scored:
    """The network's view of one window, as arrays.

    Attributes:
        window: The window.
        start: Log-probability per token. Shape `tokens`.
        end: Log-probability per token. Shape `tokens`.
        kind: Log-probability per answer kind. Shape `4`.
    """

    window: Window
    start: Floats
    end: Floats
    kind: Floats


def scored_windows(model: CompactModel, rows: list[Row]) -> dict[tuple[int, int], Scored]:
    """Return a network's view of windows, by reading and by window within the reading."""
    import torch

    scored: dict[tuple[int, int], Scored] = {}
    for batch in _of_like_length(sorted(rows, key=lambda item: item[:3])):
        with torch.inference_mode():
            logits = model([item[3] for item in batch])
        start, end, kind = (t.cpu().numpy() for t in (logits.start, logits.end, logits.kind))
        for row, (length, i, j, window) in enumerate(batch):
            scored[i, j] = Scored(window, start[row, :length], end[row, :length], kind[row])
    return scored


def _of_like_length(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield rows in batches with little padding; they come shortest first."""
    batch: list[Row] = []
    for row in rows:
        if batch and (len(batch) == BATCH or row[0] > PADDING * batch[0][0]):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def best_spans(scored: Scored, max_tokens: int) -> list[tuple[int, int, int, float]]:
    """Return the window's best spans: passage, first character, one past the last, probability within the window."""
    length = len(scored.start)
    joint = scored.start[:, None] + scored.end[None, :]
    offset = np.arange(length)[None, :] - np.arange(length)[:, None]
    owners = np.array([-1 if token is None else token.passage for token in scored.window.tokens[:length]])
    is_within = (owners[:, None] == owners[None, :]) & (owners >= 0)[:, None]
    joint[(offset < 0) | (offset >= max_tokens) | ~is_within] = -np.inf
    best = np.argsort(-joint, axis=None, kind="stable")[:SPANS_PER_WINDOW]
    spans = []
    for first, last in zip(*np.unravel_index(best, joint.shape), strict=True):
        begin, finish = scored.window.tokens[first], scored.window.tokens[last]
        if begin is not None and finish is not None and np.isfinite(joint[first, last]):
            probability = math.exp(float(joint[first, last] + scored.kind[AnswerKind.SPAN]))
            spans.append((begin.passage, begin.start, finish.end, probability))
    return spans
