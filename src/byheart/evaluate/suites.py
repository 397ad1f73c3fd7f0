"""The suites by name, and how one is run: corpus, knowledge base, questions, figures, rows.

Owns the order of these steps and what is put down about a run. Prints nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from byheart.errors import EvaluationError
from byheart.evaluate import (
    bases,
    capacity,
    fever,
    fever_regimes,
    frequency,
    near_miss,
    nq,
    support,
    traffic,
    write_rate,
)
from byheart.evaluate.bases import Corpus, OpenBase, open_base
from byheart.evaluate.figures import Figure
from byheart.evaluate.rows import Origin, Row, merge, origin, table
from byheart.evaluate.session import Session, Train
from byheart.evaluate.spares import Spares
from byheart.reports import Progress, no_progress

__all__ = ["SUITES", "Job", "Suite", "run", "run_job", "table"]

WORK = Path("work/evaluate")


@dataclass(frozen=True, slots=True)
class Suite:
    """What is measured, on what.

    Attributes:
        corpus: Reads what the knowledge base must hold from the data folder.
        measure: Asks and scores; given spare knowledge bases, too, for what the suite's own must not hold.
    """

    corpus: Callable[[Path], Corpus]
    measure: Callable[[Session, Spares], list[Figure]]


def _alone(measure: Callable[[Session], list[Figure]]) -> Callable[[Session, Spares], list[Figure]]:
    """Return a measure that needs no spare knowledge base."""
    return lambda session, _: measure(session)


SUITES: Mapping[str, Suite] = {
    "nq": Suite(nq.corpus, _alone(nq.measure)),
    "fever": Suite(fever.corpus, _alone(fever.measure)),
    "fever_memory": Suite(fever.corpus, fever_regimes.measure_full),
    "fever_incomplete": Suite(fever.corpus, fever_regimes.measure_incomplete),
    "traffic": Suite(nq.corpus, traffic.measure),
    "frequency": Suite(frequency.corpus, frequency.measure),
    "traffic_noisy": Suite(nq.corpus, traffic.measure_noisy),
    "support": Suite(support.corpus, _alone(support.measure)),
    "near_miss": Suite(near_miss.corpus, near_miss.measure),
    "capacity": Suite(capacity.corpus, capacity.measure),
    "write_rate": Suite(write_rate.corpus, write_rate.measure),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a suite.

    Attributes:
        suite: Name of the suite.
        data: Folder of the data sets.
        kb: Knowledge base of the suite's corpus, built if missing; below the work folder if None.
        results: Folder of the result files.
        limit: Questions per split at most, None for all.
        seed: Seed of every bootstrap.
        work: Folder for what is finished so far.
        open_base: Opens a knowledge base.
        train: Trains a knowledge base jointly.
    """

    suite: str
    data: Path
    kb: Path | None = None
    results: Path = Path("benchmarks/results")
    limit: int | None = None
    seed: int = 7
    work: Path = WORK
    open_base: OpenBase = open_base
    train: Train | None = None

    @property
    def folder(self) -> Path:
        """Folder of the knowledge base."""
        return self.kb or self.work / self.suite / "kb"

    @property
    def command(self) -> str:
        """The command that measures this again, wherever the data is."""
        limit = "" if self.limit is None else f" --limit {self.limit}"
        return f"byheart evaluate {self.suite} --data DIR{limit} --seed {self.seed}"


def run(
    suite: str,
    data: Path,
    kb: Path | None = None,
    results: Path = Path("benchmarks/results"),
    progress: Progress = no_progress,
    limit: int | None = None,
    seed: int = 7,
    train: Train | None = None,
) -> list[Row]:
    """Run a suite, as the command line does: see `Job` for the arguments, and `run_job`.

    Args:
        suite: Name of the suite.
        data: Folder of the data sets.
        kb: Folder of the knowledge base.
        results: Folder of the result files.
        progress: Called with how much is done.
        limit: Questions per split at most.
        seed: Seed of every bootstrap.
        train: Trains a knowledge base jointly.

    Returns:
        The rows of this run.
    """
    return run_job(Job(suite, Path(data), kb, results, limit, seed, train=train), progress)


def run_job(job: Job, progress: Progress = no_progress) -> list[Row]:
    """Run a suite; started again after a kill, it continues where it stopped.

    Args:
        job: What to run, on what, and where to write.
        progress: Called with how much is done.

    Returns:
        The rows of this run, which are also in `<results>/<suite>.json`.

    Raises:
        EvaluationError: There is no such suite, the limit allows no question, or data is missing.
    """
    if job.suite not in SUITES:
        raise EvaluationError(f"there is no suite {job.suite!r}; choose one of {', '.join(SUITES)}")
    if job.limit is not None and job.limit < 1:
        raise EvaluationError(f"the limit must be 1 or more, got {job.limit}; leave it out to ask everything")
    suite = SUITES[job.suite]
    corpus = suite.corpus(job.data)
    base = job.open_base(job.folder, corpus.settings)
    finished, spares = job.work / job.suite / "finished", Spares(job.work / job.suite / "spares", job.open_base)
    try:
        bases.complete(base, job.folder, corpus, progress)
        identity = bases.identity(base, job.folder)
        session = Session(job.suite, job.data, base, identity, finished, job.seed, job.limit, progress)
        figures = suite.measure(session if job.train is None else replace(session, train=job.train), spares)
    finally:
        base.close()
    measured = origin(job.command)
    rows = [_row(job, figure, measured) for figure in figures]
    merge(job.results / f"{job.suite}.json", rows)
    shutil.rmtree(finished, ignore_errors=True)  # the next run measures anew; only a killed one is continued
    spares.remove()
    return rows


def _row(job: Job, figure: Figure, measured: Origin) -> Row:
    held = figure.interval
    return Row(
        job.suite, figure.split, figure.system, figure.measure, figure.unit, held.value, held.n, held.low, held.high,
        job.seed, measured.command, measured.commit, measured.date, measured.cpu,
    )  # fmt: skip
