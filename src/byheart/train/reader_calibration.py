"""Calibrating the compact reader: its numbers become probabilities of being right.

Owns the fit, on questions that were held out of training and read as in use, from retrieved passages. Knows nothing of
how the network was trained. Source: Platt 1999, Probabilistic outputs for support vector machines, section 2.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from byheart.config import ReaderConfig
from byheart.interfaces import Reading
from byheart.knowledge import KnowledgeBase
from byheart.reader.compact import Calibration, CompactReader, verdict_probability
from byheart.reader.scoring import Scored
from byheart.reader.wording import same_answer
from byheart.types import Question, Verdict

log = logging.getLogger(__name__)
SHARPNESS = (0.0, 2.0, 5.0, 8.0, 12.0, 16.0, 20.0, 30.0)


@dataclass(frozen=True, slots=True)
class Asked:
    """A held-out question or claim with its accepted answers."""

    question: Question
    answers: tuple[str, ...]


def readings(kb: KnowledgeBase, questions: Sequence[Question], n_read: int) -> list[Reading]:
    """Return what the reader would be given for each question."""
    hits = kb.search_many(questions, n_read)
    return [
        Reading(question, tuple(kb.passages([h.passage_id for h in found])), tuple(h.score for h in found))
        for question, found in zip(questions, hits, strict=True)
    ]


def calibrate(weights: Path, kb: KnowledgeBase, asked: Sequence[Asked]) -> Calibration:
    """Fit sharpness and the Platt curve of answers to questions, and write them into the weight file.

    Args:
        weights: Weight file to read and to change.
        kb: A knowledge base.
        asked: Questions over it that nothing was trained on.

    Returns:
        What the file holds now.
    """
    config = ReaderConfig()
    reader = CompactReader(config, weights)
    given = readings(kb, [a.question for a in asked], config.passages)
    windows = reader.score_windows(given)
    sharpness = max(SHARPNESS, key=lambda s: _n_right(reader, given, windows, asked, s))
    best = [reader.candidates(r, w, sharpness)[0] for r, w in zip(given, windows, strict=True)]
    right = [any(same_answer(c.text, a) for a in q.answers) for c, q in zip(best, asked, strict=True)]
    slope, offset = platt(np.array([c.probability for c in best]), np.array(right))
    log.info("right: %.3f of %d questions", np.mean(right), len(right))
    return _write(weights, {"retrieval_sharpness": sharpness, "slope": slope, "offset": offset}, questions=len(right))


def calibrate_claims(weights: Path, kb: KnowledgeBase, stated: Sequence[Asked]) -> Calibration:
    """Fit the Platt curve of verdicts, and write it into the weight file.

    Args:
        weights: Weight file to read and to change.
        kb: A knowledge base.
        stated: Claims over it that nothing was trained on.

    Returns:
        What the file holds now.
    """
    config = ReaderConfig()
    given = readings(kb, [a.question for a in stated], config.claim_passages)
    supports = np.array(
        [verdict_probability(w) for w in CompactReader(config, weights).score_windows(given, cited=False)]
    )
    right = np.array(
        [(p >= 0.5) == (Verdict.SUPPORTS.value in a.answers) for p, a in zip(supports, stated, strict=True)]
    )
    slope, offset = platt(np.maximum(supports, 1 - supports), right)
    log.info("right: %.3f of %d claims", right.mean(), len(right))
    return _write(weights, {"claim_slope": slope, "claim_offset": offset}, claims=len(right))


def platt(probabilities: npt.NDArray[np.float64], right: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return slope and offset of the logistic curve from log-odds to being right; Newton's method, lightly regularised.

    Args:
        probabilities: What the network says, 0 to 1. Shape `batch`.
        right: Whether it was right. Shape `batch`.

    Returns:
        Slope and offset; 1 and 0 mean that it was calibrated already, which is also what the regulariser pulls to.
    """
    clipped = np.clip(probabilities, 1e-6, 1 - 1e-6)
    features = np.stack([np.log(clipped / (1 - clipped)), np.ones(len(clipped))], axis=1)
    start = np.array([1.0, 0.0])
    signs = np.where(right, 1.0, -1.0)

    def loss(at: npt.NDArray[np.float64]) -> float:
        return float(np.logaddexp(0, -signs * (features @ at)).sum() + ((at - start) ** 2).sum() / 2)

    curve = start.copy()
    for _ in range(50):
        fitted = 1 / (1 + np.exp(-features @ curve))
        gradient = features.T @ (fitted - right) + (curve - start)
        curvature = (features * (fitted * (1 - fitted))[:, None]).T @ features + np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        while loss(curve - step) > loss(curve) and np.abs(step).max() > 1e-12:  # a whole step may go too far
            step = step / 2
        curve = curve - step
    return float(curve[0]), float(curve[1])


def _n_right(
    reader: CompactReader,
    given: Sequence[Reading],
    windows: Sequence[Sequence[Scored]],
    asked: Sequence[Asked],
    sharpness: float,
) -> int:
    return sum(
        any(same_answer(reader.candidates(r, w, sharpness)[0].text, a) for a in q.answers)
        for r, w, q in zip(given, windows, asked, strict=True)
    )


def _write(weights: Path, fitted: Mapping[str, float], **counts: int) -> Calibration:
    """Write what was fitted, and on how many questions or claims, and leave the rest as it is."""
    with safe_open(weights, framework="np") as file:
        notes = json.loads(file.metadata()["notes"])
    whole = Calibration(**{**notes.get("calibration", {}), **fitted})
    notes |= {"calibration": asdict(whole), "calibrated_on": {**notes.get("calibrated_on", {}), **counts}}
    partial = weights.with_suffix(".partial")
    save_file(load_file(weights), partial, metadata={"notes": json.dumps(notes)})
    partial.replace(weights)
    return whole
