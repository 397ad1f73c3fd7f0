"""Whether a confidence is a probability: the expected calibration error.

Owns the bins. Knows no gate and no reader; it is given confidences and whether each answer was right.
Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 2.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from byheart.errors import EvaluationError
from byheart.evaluate.intervals import Interval, Picks, Values, bootstrap

BINS = 15


def calibration_error(confidences: npt.ArrayLike, right: npt.ArrayLike, rng: np.random.Generator) -> Interval:
    """Return the mean gap between confidence and accuracy over 15 equal bins, with its bootstrap interval.

    Args:
        confidences: Probability of being right of each answer, 0 to 1. Shape `questions`.
        right: Whether each answer was right. Shape `questions`.
        rng: Draws the questions.

    Returns:
        The error. Resampling adds noise to every bin, so the interval can lie above the value where that is near 0.

    Raises:
        EvaluationError: There is no answer, or a confidence is no number from 0 to 1.
    """
    said, held = np.asarray(confidences, np.float64), np.asarray(right, np.float64)
    outside = said[~((said >= 0) & (said <= 1))]
    if len(outside):
        raise EvaluationError(f"a confidence must be from 0 to 1, got {outside[0]}; check the reader's calibration")
    bins = np.minimum((said * BINS).astype(np.int64), BINS - 1)
    gaps = held - said

    def statistic(picks: Picks) -> Values:
        rows = len(picks)
        flat = (np.arange(rows)[:, None] * BINS + bins[picks]).ravel()
        totals = np.bincount(flat, weights=gaps[picks].ravel(), minlength=rows * BINS)
        errors: Values = np.abs(totals.reshape(rows, BINS)).sum(axis=1) / len(said)
        return errors

    return bootstrap(len(said), statistic, rng)
