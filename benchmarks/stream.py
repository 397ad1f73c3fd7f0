"""A stream of traffic over the NQ corpus: how many retrievals the gate saves, at what precision.

Run after `byheart evaluate nq`, whose knowledge base it copies and teaches:

    python -m benchmarks.stream --data DIR [--kb work/evaluate/nq/kb]

Memory holds 200 facts of `test_nq` and, for calibration, 600 of `train_nq_*`. The stream is 40 % paraphrases of the
first, 35 % questions of the reporting half that memory does not hold, 15 % near misses of the first, 10 % questions
whose passage is not in the corpus, drawn with a seed. Calibration questions come from the training half in the same
shares. Near misses have no gold answer: an answer from memory to one is wrong, one from documents is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from byheart.asking import is_right
from byheart.corpus.datasets import nq_gold, nq_without_gold, question_pairs, records
from byheart.corpus.splits import is_nq_training
from byheart.decisions import Wishes
from byheart.errors import ConfigError
from byheart.evaluate.intervals import Interval, difference, mean, ratio
from byheart.evaluate.rows import Row, merge, origin
from byheart.knowledge import KnowledgeBase
from byheart.types import Answer, NewFact, Question, Route

SEED, REQUESTS = 7, 1000
COMMAND = "python -m benchmarks.stream --data DIR"
SHARES = {"paraphrase": 0.4, "unseen": 0.35, "near miss": 0.15, "no passage": 0.1}
RISKS = (None, 0.05, 0.02)


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the stream.

    Attributes:
        kind: As in `SHARES`.
        text: What is asked.
        gold: Accepted answers; none where only memory can be wrong.
    """

    kind: str
    text: str
    gold: tuple[str, ...]


def main() -> None:
    """Teach, calibrate, ask, print JSON lines, and write `benchmarks/results/stream.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("BYHEART_DATA"), help="folder of the data sets")
    parser.add_argument("--kb", type=Path, default=Path("work/evaluate/nq/kb"), help="knowledge base of the NQ corpus")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="requests in the stream, and in calibration")
    arguments = parser.parse_args()
    measured, rows = origin(COMMAND), []
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(arguments.kb, Path(folder) / "kb")
        with KnowledgeBase(Path(folder) / "kb") as kb:
            for system, measure, unit, found in figures(kb, arguments.data, arguments.requests):
                print(json.dumps({"system": system, measure: round(found.value, 4), **asdict(found)}), flush=True)
                place = (asdict(measured)[name] for name in ("command", "commit", "date", "cpu"))
                spread = (found.value, found.n, found.low, found.high, SEED)
                rows.append(Row("stream", f"{arguments.requests} requests", system, measure, unit, *spread, *place))
    merge(Path("benchmarks/results/stream.json"), rows)


def figures(kb: KnowledgeBase, data: Path, n: int) -> list[tuple[str, str, str, Interval]]:
    """Return system, measure, unit and value of every figure."""
    sets = {"test": ("test_nq",), "calibration": ("train_nq_0", "train_nq_1", "train_nq_2")}
    for names in sets.values():
        kb.learn([NewFact(r.question, r.answers[0]) for name in names for r in question_pairs(data, name)])
    held = stream(data, sets["calibration"], n, is_training=True)
    kb.calibrate([Question.parse(r.text) for r in held], [r.gold for r in held])
    requests = stream(data, sets["test"], n, is_training=False)
    questions = [Question.parse(request.text) for request in requests]
    given = {"always-retrieve": asked(kb, questions, None, Route.RETRIEVAL)}
    for risk in RISKS:
        try:
            name = "byheart" if risk is None else f"byheart at risk {risk:g}"
            given[name] = asked(kb, questions, risk, None)
        except ConfigError as error:
            print(json.dumps({"risk": risk, "refused": str(error)}), flush=True)
    return [row for name, answers in given.items() for row in scored(name, requests, answers, given["always-retrieve"])]


def stream(data: Path, names: Sequence[str], n: int, *, is_training: bool) -> list[Request]:
    """Return a stream of requests around the facts of some sets."""
    rng = random.Random(SEED + is_training)
    rows = [row for name in names for row in question_pairs(data, name)]
    known = {row.id for row in rows} | {r["id"] for r in records(data / "question_pairs/test_nq.jsonl")}
    unseen = [r for r in nq_gold(data) if is_nq_training(r.id, data) is is_training and r.id not in known]
    lost = nq_without_gold(data)
    lost = lost[: len(lost) // 2] if is_training else lost[len(lost) // 2 :]
    pools = {
        "paraphrase": [Request("paraphrase", text, row.answers) for row in rows for text in row.paraphrases],
        "unseen": [Request("unseen", row.question, row.answers) for row in unseen],
        "near miss": [Request("near miss", text, ()) for row in rows for text in row.near_misses],
        "no passage": [Request("no passage", text, answers) for text, answers in lost],
    }
    drawn = [r for kind, share in SHARES.items() for r in rng.choices(pools[kind], k=round(share * n))]
    return rng.sample(drawn, len(drawn))


def asked(kb: KnowledgeBase, questions: Sequence[Question], risk: float | None, route: Route | None) -> list[Answer]:
    """Return the answers to a stream, in batches."""
    wishes = Wishes(risk)
    parts = [questions[first : first + 32] for first in range(0, len(questions), 32)]
    return [answer for part in parts for answer in kb.ask_many(part, wishes=wishes, route=route)]


def scored(
    system: str, requests: Sequence[Request], answers: Sequence[Answer], standard: Sequence[Answer]
) -> list[tuple[str, str, str, Interval]]:
    """Return a system's figures, and how far it is from always retrieving."""
    rng = lambda: np.random.default_rng(SEED)  # noqa: E731 - one seed for each figure pairs them

    def marks(given: Sequence[Answer]) -> tuple[list[float], list[float]]:
        right = [float(is_right(a.text, r.gold)) for a, r in zip(given, requests, strict=True)]
        counted = [
            float(a.text is not None and (bool(r.gold) or not a.hits)) for a, r in zip(given, requests, strict=True)
        ]
        return right, counted

    right, counted = marks(answers)
    base, _ = marks(standard)
    from_memory = [answer.text is not None and not answer.hits for answer in answers]
    false = [float(m and not r) for m, r in zip(from_memory, right, strict=True)]
    calls = [float(bool(answer.hits)) for answer in answers]
    paraphrases = [i for i, request in enumerate(requests) if request.kind == "paraphrase"]
    found = [
        (system, "retrieval_calls", "per question", mean(calls, rng())),
        (system, "accuracy", "share", mean(right, rng())),
        (system, "answer_precision", "share", ratio(right, counted, rng())),
        (system, "false_memory_answers", "share", mean(false, rng())),
        (
            system,
            "answered from memory, of paraphrases",
            "share",
            mean([float(from_memory[i]) for i in paraphrases], rng()),
        ),
    ]
    if answers is not standard:
        found.append((system, "accuracy above always-retrieve", "difference", difference(right, base, rng())))
    return found


if __name__ == "__main__":
    main()
