"""From numbers per question to figures with intervals: what a suite's rows are made of.

Owns names and units of measures. Knows no data set and no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from byheart.evaluate import intervals
from byheart.evaluate.calibration import calibration_error
from byheart.evaluate.datasets import Task
from byheart.evaluate.intervals import Interval
from byheart.evaluate.measures import Scores
from byheart.evaluate.session import Outcome, Session, Timing


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, before it knows where and when it was measured.

    Attributes:
        split: Questions it is about.
        system: What was measured.
        measure: What about it.
        unit: `share`, `seconds`, …
        interval: The figure itself.
    """

    split: str
    system: str
    measure: str
    unit: str
    interval: Interval


@dataclass(frozen=True, slots=True)
class Subject:
    """What figures are about, and the generator's seed for their intervals.

    Attributes:
        session: The run.
        split: Questions.
        system: System.
    """

    session: Session
    split: str
    system: str

    def figure(self, measure: str, unit: str, interval: Interval) -> Figure:
        """Return a figure about this subject."""
        return Figure(self.session.split(self.split), self.system, measure, unit, interval)

    def means(self, columns: Mapping[str, Sequence[float]], unit: str = "share") -> list[Figure]:
        """Return the mean of each column, one number per question, with its interval."""
        return [
            self.figure(measure, unit, intervals.mean(column, self.session.rng()))
            for measure, column in columns.items()
        ]

    def lead(self, measure: str, columns: tuple[Sequence[float], Sequence[float]], other: str) -> Figure:
        """Return by how much this system is above another one on the same questions: a paired difference."""
        interval = intervals.difference(columns[0], columns[1], self.session.rng())
        return self.figure(f"{measure} above {other}", "difference", interval)


def recall_columns(tasks: Sequence[Task], found: Sequence[Sequence[str]], ks: Sequence[int]) -> dict[str, list[float]]:
    """Return per question whether a gold document is among the first `k`.

    Args:
        tasks: Questions with their gold documents.
        found: Documents found per question, best first.
        ks: Depths.

    Returns:
        A column of zeros and ones per depth.
    """
    return {
        f"recall@{k}": [
            float(bool(task.sources.intersection(ranked[:k]))) for task, ranked in zip(tasks, found, strict=True)
        ]
        for k in ks
    }


def score_columns(scores: Sequence[Scores]) -> dict[str, list[float]]:
    """Return KILT's measures per question, and the strict exact match beside them."""
    columns = {
        name: [float(getattr(score, name)) for score in scores]
        for name in ("accuracy", "em", "strict_em", "f1", "rougel")
    }
    columns["Rprec"] = [score.rprec for score in scores]
    for place, name in enumerate(("KILT-accuracy", "KILT-em", "KILT-f1", "KILT-rougel")):
        columns[name] = [score.kilt[place] for score in scores]
    return columns


def cost_figures(subject: Subject, outcomes: Sequence[Outcome]) -> list[Figure]:
    """Return what answers cost: retrievals, reader calls and tokens per question."""
    return [
        *subject.means({"retrieval_calls": [float(outcome.retrievals) for outcome in outcomes]}, "per question"),
        *subject.means({"reader_calls": [float(outcome.reads) for outcome in outcomes]}, "per question"),
        *subject.means({"prompt_tokens": [float(outcome.prompt_tokens) for outcome in outcomes]}, "per question"),
    ]


def trust_figures(subject: Subject, outcomes: Sequence[Outcome], right: Sequence[float]) -> list[Figure]:
    """Return how far answers can be trusted: coverage, precision among the answered, calibration error.

    Args:
        subject: What the figures are about.
        outcomes: One per question.
        right: Whether each answer is right, 0 or 1.

    Returns:
        Figures; precision only if anything was answered, calibration only if the system gave confidences.
    """
    answered = [outcome.text is not None for outcome in outcomes]
    figures = subject.means({"coverage": [float(flag) for flag in answered]})
    if any(answered):
        n_right = int(sum(flag for flag, is_answered in zip(right, answered, strict=True) if is_answered))
        figures.append(subject.figure("answer_precision", "share", intervals.binomial(n_right, sum(answered))))
    rated = [
        (o.confidence, r)
        for o, r in zip(outcomes, right, strict=True)
        if o.text is not None and o.confidence is not None
    ]
    if rated:
        confidences, held = zip(*rated, strict=True)
        figures.append(subject.figure("ece", "share", calibration_error(confidences, held, subject.session.rng())))
    return figures


def timing_figures(subject: Subject, timings: Sequence[Timing]) -> list[Figure]:
    """Return medians and 95th percentiles of seconds per question, asked alone."""
    columns = {"seconds": [timing.seconds for timing in timings]}
    searched = [timing.retrieve for timing in timings if timing.retrieve is not None]
    if searched:
        columns["retrieve_seconds"] = searched
    return [
        subject.figure(f"{name}_p{round(100 * share)}", "seconds", _quantile(subject, column, share))
        for name, column in columns.items()
        for share in (0.5, 0.95)
    ]


def _quantile(subject: Subject, column: Sequence[float], share: float) -> Interval:
    return intervals.quantile(np.asarray(column), share, subject.session.rng())
