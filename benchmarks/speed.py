"""How fast: retrieval, answers, indexing, start-up, each with n and quantiles, as JSON lines and as a result file.

Run after `byheart evaluate nq`, whose knowledge base it reads:

    python -m benchmarks.speed --data DIR [--kb work/evaluate/nq/kb]

Everything is timed warm in one process on one machine; the machine's noise is in the interval.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

import byheart
from byheart.config import Config
from byheart.corpus.collections import WHOLE, nq_documents
from byheart.corpus.datasets import nq_gold
from byheart.corpus.splits import is_nq_training
from byheart.evaluate.intervals import Interval, quantile
from byheart.evaluate.rows import Row, merge, origin
from byheart.types import Question

SEED = 7
QUESTIONS = 200
INDEXED = 1_000
COMMAND = "python -m benchmarks.speed --data DIR"
SYSTEMS = {"bm25": 0.0, "dense": 1.0, "hybrid": None}


def main() -> None:
    """Measure everything, print JSON lines, and write `benchmarks/results/speed.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("BYHEART_DATA"), help="folder of the data sets")
    parser.add_argument("--kb", type=Path, default=Path("work/evaluate/nq/kb"), help="knowledge base of the NQ corpus")
    arguments = parser.parse_args()
    measured = origin(COMMAND)
    rows = []
    for system, measure, unit, found in figures(arguments.data, arguments.kb):
        place = (asdict(measured)[name] for name in ("command", "commit", "date", "cpu"))
        row = Row("speed", "warm", system, measure, unit, found.value, found.n, found.low, found.high, SEED, *place)
        spread = {"low": found.low, "high": found.high, "n": found.n, "unit": unit}
        print(json.dumps({measure: round(found.value, 6), "system": system, **spread}), flush=True)
        rows.append(row)
    merge(Path("benchmarks/results/speed.json"), rows)


def figures(data: Path, folder: Path) -> Iterator[tuple[str, str, str, Interval]]:
    """Yield system, measure, unit and value of every figure."""
    yield from _indexing(data)  # first: the peak of memory is then its own
    asked = [row.question for row in nq_gold(data) if not is_nq_training(row.id, data)][: QUESTIONS + 5]
    with byheart.open(folder) as kb:
        yield from _searches(kb, [Question.parse(text) for text in asked])
        yield from _answers(kb, asked)
    yield from _start_up()


def _searches(kb: byheart.KnowledgeBase, questions: Sequence[Question]) -> Iterator[tuple[str, str, str, Interval]]:
    """Time one question at a time without encoding it: the vector is given."""
    vectors = kb.encoder.encode_queries([question.text for question in questions])
    for system, weight in SYSTEMS.items():

        def search(i: int, weight: float | None = weight) -> None:
            with kb._library.hold():
                kb._library.search([questions[i]], vectors[i : i + 1], 20, weight)

        seconds = _seconds(search, len(questions))
        yield from _quantiles(system, "search_seconds", seconds)


def _answers(kb: byheart.KnowledgeBase, asked: Sequence[str]) -> Iterator[tuple[str, str, str, Interval]]:
    seconds = _seconds(lambda i: kb.ask(asked[i]), len(asked))
    yield from _quantiles("always-retrieve", "ask_seconds", seconds)


def _indexing(data: Path) -> Iterator[tuple[str, str, str, Interval]]:
    """Index documents into a new knowledge base, and see how much of the time the encoder takes."""
    config = Config()
    for key, value in WHOLE.items():
        config = config.replace(key, value)
    documents = nq_documents(data)[:INDEXED]
    with tempfile.TemporaryDirectory() as folder, byheart.init(Path(folder) / "kb", config) as kb:
        kb.encoder.encode_passages(["warm up"])
        encode, spent = kb.encoder.encode_passages, [0.0]

        def timed(texts: Sequence[str], *rest: object) -> object:
            started = time.perf_counter()
            vectors = encode(texts, *rest)  # type: ignore[arg-type]
            spent[0] += time.perf_counter() - started
            return vectors

        kb.encoder.encode_passages = timed  # type: ignore[method-assign, assignment]
        started = time.perf_counter()
        n = kb.add_documents(documents).passages_added
        total = time.perf_counter() - started
        size = kb.status().bytes_on_disk
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield "byheart", "indexing_passages_per_second", "1/s", Interval(n / total, None, None, n)
    yield "byheart", "indexing_encoder_share", "share", Interval(spent[0] / total, None, None, n)
    yield "byheart", "disk_bytes_per_passage", "bytes", Interval(size / n, None, None, n)
    yield "byheart", "indexing_peak_mebibytes", "MiB", Interval(peak, None, None, 1)


def _start_up() -> Iterator[tuple[str, str, str, Interval]]:
    command = [sys.executable, "-m", "byheart", "--help"]
    seconds = _seconds(lambda _: subprocess.run(command, check=True, capture_output=True), 20)
    yield from _quantiles("byheart", "help_seconds", seconds)


def _seconds(run: Callable[[int], object], n: int, warm_up: int = 5) -> list[float]:
    """Return the seconds of every run after the first few."""
    seconds = []
    for i in range(n):
        started = time.perf_counter()
        run(i)
        seconds.append(time.perf_counter() - started)
    return seconds[warm_up:]


def _quantiles(system: str, measure: str, seconds: Sequence[float]) -> Iterator[tuple[str, str, str, Interval]]:
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        found = quantile(seconds, share, np.random.default_rng(SEED))
        yield system, f"{measure}_{name}", "seconds", found


if __name__ == "__main__":
    main()
