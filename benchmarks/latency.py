"""How much faster memory answers than retrieval: paraphrases of facts, asked both ways in turn, in one process.

Run after `byheart evaluate nq`, whose knowledge base it copies:

    python -m benchmarks.latency --data DIR [--kb work/evaluate/nq/kb] [--language-model]

Memory learns the 200 facts of `test_nq`. Each question is asked one at a time on a warm system, of memory and then of
documents, so that whatever else the machine does meets both alike. Seconds are wall clock from text to answer, with
encoding the question in both. Five passages are read. The gate's own seconds are those of the step `gate` of an answer
whose route it chose. With `--language-model` the same is done with SmolLM2 as the reader, on fewer questions.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

import byheart
from byheart.corpus.datasets import question_pairs
from byheart.evaluate.intervals import Interval, quantile
from byheart.evaluate.rows import Row, merge, origin, table
from byheart.types import NewFact, Question, Route

SEED = 7
DRAWS = 2_000
WARM_UP = 3
READERS = {"compact": 100, "causal-lm": 20}  # questions asked with each
WAYS = {"route-memory": Route.MEMORY, "always-retrieve": Route.RETRIEVAL, "byheart": None}
COMMAND = "python -m benchmarks.latency --data DIR"
Found = Iterator[tuple[str, str, str, Interval]]


def main() -> None:
    """Measure, print a table, and write `benchmarks/results/latency.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("BYHEART_DATA"), help="folder of the data sets")
    parser.add_argument("--kb", type=Path, default=Path("work/evaluate/nq/kb"), help="knowledge base of the NQ corpus")
    parser.add_argument("--language-model", action="store_true", help="with SmolLM2 as the reader, too")
    arguments = parser.parse_args()
    place = [
        asdict(origin(COMMAND + " --language-model" * arguments.language_model))[name]
        for name in ("command", "commit", "date", "cpu")
    ]
    readers = READERS if arguments.language_model else {"compact": READERS["compact"]}
    facts = question_pairs(arguments.data, "test_nq")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "kb"
        with byheart.open(arguments.kb) as held:
            held.snapshot(copied)
        with byheart.open(copied) as kb:
            kb.learn([NewFact(row.question, row.answers[0], id=row.id) for row in facts])
        for reader, n in readers.items():
            with byheart.open(copied) as kb:
                kb.configure("reader.name", reader)
            with byheart.open(copied) as kb:
                asked = [Question.parse(row.paraphrases[0]) for row in facts[: n + WARM_UP]]
                rows += [
                    Row("latency", f"reader {reader}", system, measure, unit, f.value, f.n, f.low, f.high, SEED, *place)
                    for system, measure, unit, f in figures(timed(kb, asked))
                ]
    print(table(rows))
    merge(Path("benchmarks/results/latency.json"), rows)


def timed(kb: byheart.KnowledgeBase, asked: Sequence[Question]) -> dict[str, list[float]]:
    """Return seconds per way to ask, the ways in turn, and of the gate; the first few questions are not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in (*WAYS, "gate")}
    for number, question in enumerate(asked):
        for name, route in WAYS.items():
            start = time.perf_counter()
            answer = kb.ask_many([question], route=route)[0]
            spent = time.perf_counter() - start
            if number >= WARM_UP:
                seconds[name].append(spent)
                if route is None:
                    seconds["gate"].append(sum(step.seconds for step in answer.seconds if step.name == "gate"))
    return seconds


def figures(seconds: dict[str, list[float]]) -> Found:
    """Yield quantiles per way, and how many times as long always retrieving takes."""
    rng = np.random.default_rng(SEED)
    for name, spent in seconds.items():
        for measure, share in (("seconds_p50", 0.5), ("seconds_p95", 0.95)):
            yield name, measure, "seconds", quantile(spent, share, rng)
    standard, memory = (np.array(seconds[name]) for name in ("always-retrieve", "route-memory"))
    rows = rng.integers(0, len(memory), (DRAWS, len(memory)))  # a question's two seconds stay together
    drawn = np.median(standard[rows], axis=1) / np.median(memory[rows], axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    ratio = float(np.median(standard) / np.median(memory))
    yield "route-memory", "times_faster_p50", "ratio", Interval(ratio, float(low), float(high), len(memory))


if __name__ == "__main__":
    main()
