"""How long one read of the memory takes, and how much of the truth it finds, from 1,000 to 1,000,000 slots.

Product keys beside a scan of everything and HNSW (Malkov & Yashunin 2018, as `hnswlib` has it), one question at a time
without encoding, all in one process. Every question goes to every system at every size, in random order, so that the
machine's noise falls on all of them and no system finds its data in the processor's cache:

    taskset -c 0 python -m benchmarks.read_latency
    taskset -c 0 python -m benchmarks.read_latency --data DIR

The first makes keys: facts around topics, wordings around facts, with the spectrum, the neighbours' cosines and the
spread over cells that the keys of 80,000 real questions have; questions are further wordings of stored facts. The
second stores ParaRel and NQ questions under the keys of the shipped kernel, and asks for ParaRel facts in other words.
HNSW's graph of 1,000,000 keys takes minutes to build, and encoding takes as long: both are kept in a temporary folder.
HNSW is as fast as it can be: it reads with the least breadth that reaches a recall of 0.99 on questions of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

from byheart.config import EncoderConfig
from byheart.corpus.datasets import nq_gold
from byheart.corpus.pararel import reported_statements
from byheart.evaluate.intervals import Interval, mean, quantile
from byheart.evaluate.rows import Row, merge, origin
from byheart.interfaces import Floats, Integers
from byheart.memory.product_keys import Codebooks, ProductKeys, fit_codebooks
from byheart.memory.reader import BASE, MemoryReader
from byheart.text.encoder import SentenceEncoder

SEED, QUESTIONS, K = 7, 300, 8
SIZES = (1_000, 10_000, 100_000, 1_000_000)
SMALL = 10_000  # real questions end here
WIDTH, SUB_KEYS, FITTED_ON = 128, 256, 50_000
TOPICS, WORDINGS = 100, 8
PART = 10_000  # slots that the memory takes at once when it is opened
LINKS, WHILE_BUILDING, WHILE_READING = 16, 64, (16, 32, 64, 128, 256, 512, 1024)
GOAL = 0.99
COMMAND = "taskset -c 0 python -m benchmarks.read_latency"

Figure = tuple[str, str, str, str, Interval]  # split, system, measure, unit, value
Read = Callable[[Floats], Integers]


@dataclass(frozen=True, slots=True)
class Load:
    """Keys to store, and questions to ask of the first `size` of them.

    Attributes:
        kind: Where they come from.
        codebooks: Fitted on other keys of that kind.
        keys: Shape `slots width`; slot numbers are their places.
        questions: By size. Twice as many as are timed; the first half is for choosing HNSW's breadth.
    """

    kind: str
    codebooks: Codebooks
    keys: Floats
    questions: dict[int, Floats]


@dataclass(frozen=True, slots=True)
class Contender:
    """One system at one size.

    Attributes:
        size: Slots stored.
        system: Its name.
        read: From a question of shape `1 width` to slots.
        n_bytes: Bytes of working memory.
    """

    size: int
    system: str
    read: Read
    n_bytes: float


def main() -> None:
    """Measure, print JSON lines, and write `benchmarks/results/read_latency.json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=None, help="folder of the data sets: real questions, 10,000 at most"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of slots")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="questions per size")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/read_latency.json"))
    arguments = parser.parse_args()
    rng, sizes = np.random.default_rng(arguments.seed), sorted(arguments.sizes)
    folder = Path(tempfile.gettempdir()) / "byheart-read-latency"
    folder.mkdir(exist_ok=True)
    if arguments.data:
        load = real(arguments.data, [size for size in sizes if size <= SMALL], arguments.questions, folder, rng)
    else:
        load = made(sizes, arguments.questions, rng)
    measured = asdict(origin(COMMAND + (" --data DIR" if arguments.data else "")))
    rows = []
    for split, system, measure, unit, found in figures(load, arguments.questions, folder, arguments.seed):
        spread = {"low": found.low, "high": found.high, "n": found.n, "unit": unit}
        print(json.dumps({measure: round(found.value, 6), "system": system, "split": split, **spread}), flush=True)
        values = (found.value, found.n, found.low, found.high, arguments.seed, *measured.values())
        rows.append(Row("read_latency", split, system, measure, unit, *values))
    merge(arguments.output, rows)


def figures(load: Load, n: int, folder: Path, seed: int) -> Iterator[Figure]:
    """Yield split, system, measure, unit and value of every figure.

    Args:
        load: Keys and questions.
        n: Questions to time per size.
        folder: Where graphs are kept.
        seed: Of the order of reads, and of the bootstrap.
    """
    rng = np.random.default_rng(seed)
    contenders = [contender for size in load.questions for contender in _contenders(load, size, n, folder)]
    seconds, found = _timed(contenders, {size: asked[n:] for size, asked in load.questions.items()}, n, rng)
    middle = {}
    for i, one in enumerate(contenders):
        split = f"{one.size:,} slots, {load.kind}"
        true = next(found[j] for j, c in enumerate(contenders) if (c.size, c.system) == (one.size, "scan"))
        shares = [len(np.intersect1d(a, b)) / len(b) for a, b in zip(found[i], true, strict=True)]
        p50, p95 = (quantile(seconds[i] * 1e3, share, np.random.default_rng(seed)) for share in (0.5, 0.95))
        middle[one.system, one.size] = p50.value
        yield split, one.system, "read_p50", "ms", p50
        yield split, one.system, "read_p95", "ms", p95
        yield split, one.system, f"recall_at_{K}", "share", mean(shares, np.random.default_rng(seed))
        yield split, one.system, "bytes_per_slot", "bytes", Interval(one.n_bytes / one.size, None, None, one.size)
    for system, (name, least) in product(("product keys", "HNSW", "scan"), (("all", 0), ("from 10,000", 10_000))):
        of_sizes = [value for (one, size), value in middle.items() if one == system and size >= least]
        if len(of_sizes) > 1:
            ratio = Interval(max(of_sizes) / min(of_sizes), None, None, n)
            yield f"{name} sizes, {load.kind}", system, "largest_over_smallest_p50", "ratio", ratio


def _timed(
    contenders: Sequence[Contender], questions: dict[int, Floats], n: int, rng: np.random.Generator
) -> tuple[list[Floats], list[list[Integers]]]:
    """Return seconds and slots found, per contender and question."""
    seconds, found = [np.zeros(n) for _ in contenders], [[np.zeros(0, np.int64)] * n for _ in contenders]
    for one in contenders:
        one.read(questions[one.size][:1])
    for question in range(n):
        for i in rng.permutation(len(contenders)):
            row = questions[contenders[i].size][question : question + 1]
            started = time.perf_counter()
            slots = contenders[i].read(row)
            seconds[i][question], found[i][question] = time.perf_counter() - started, slots
    return seconds, found


def _contenders(load: Load, size: int, n: int, folder: Path) -> Iterator[Contender]:
    keys, tuning = load.keys[:size], load.questions[size][:n]
    index = ProductKeys(load.codebooks)
    for first in range(0, size, PART):
        part = np.arange(first, min(first + PART, size))
        index.insert(part, keys[part])
    yield Contender(size, "product keys", lambda question: index.search(question, K)[0][0], index.n_bytes)
    yield Contender(size, "scan", lambda question: _scan(keys, question), keys.nbytes)
    yield _hnsw(keys, tuning, folder)


def _scan(keys: Floats, question: Floats) -> Integers:
    products = keys @ question[0]
    best = np.argpartition(-products, K)[:K]
    found: Integers = best[np.argsort(-products[best])]
    return found


def _hnsw(keys: Floats, tuning: Floats, folder: Path) -> Contender:
    """Build a graph, or load it, and read with the least breadth that reaches the goal on questions of their own."""
    import hnswlib

    graph, path = hnswlib.Index("ip", keys.shape[1]), folder / f"{_digest(keys.data)}.hnsw"
    if path.is_file():
        graph.load_index(str(path), len(keys))
    else:
        graph.init_index(len(keys), M=LINKS, ef_construction=WHILE_BUILDING, random_seed=SEED)
        graph.set_num_threads(1)
        graph.add_items(keys, np.arange(len(keys)))
        graph.save_index(str(path))
    graph.set_num_threads(1)
    true = [_scan(keys, question[None]) for question in tuning]
    for breadth in WHILE_READING:
        graph.set_ef(breadth)
        found, _ = graph.knn_query(tuning, K)
        if np.mean([np.isin(a, b).mean() for a, b in zip(found, true, strict=True)]) >= GOAL:
            break
    return Contender(len(keys), "HNSW", lambda question: graph.knn_query(question, K)[0][0], path.stat().st_size)


def made(sizes: Sequence[int], n: int, rng: np.random.Generator) -> Load:
    """Return made keys: some topics are frequent, a fact has 8 wordings on average, and these differ a lot or little.

    Args:
        sizes: Numbers of slots.
        n: Questions to time per size.
        rng: Draws everything.
    """
    frequent = np.arange(1, TOPICS + 1) ** -0.5
    topics = _near(_directions(rng, 1), _directions(rng, TOPICS), 0.4)

    def facts(n_facts: int) -> Floats:
        picked = topics[rng.choice(TOPICS, n_facts, p=frequent / frequent.sum())]
        return _near(picked, _directions(rng, n_facts), 0.7)

    def wordings(of: Floats) -> Floats:
        return _near(of, _directions(rng, len(of)), rng.uniform(0.6, 1, (len(of), 1)))

    def owners(n_keys: int) -> Integers:
        sizes = rng.geometric(1 / WORDINGS, n_keys)
        return np.repeat(np.arange(n_keys), sizes)[:n_keys]

    fitted = owners(FITTED_ON)
    codebooks = fit_codebooks(wordings(facts(int(fitted[-1]) + 1)[fitted]), SUB_KEYS, SEED)
    owner = owners(max(sizes))
    stored = facts(int(owner[-1]) + 1)
    parts = np.array_split(owner, 1 + len(owner) // 100_000)
    keys = np.concatenate([wordings(stored[part]) for part in parts])
    return Load("made keys", codebooks, keys, {s: wordings(stored[owner[rng.integers(0, s, 2 * n)]]) for s in sizes})


def _directions(rng: np.random.Generator, n: int) -> Floats:
    """Return unit vectors with the spectrum of the shipped kernel's keys, shared out over both halves."""
    order = np.argsort([*range(0, WIDTH, 2), *range(1, WIDTH, 2)])
    i = 1 + np.argsort(order)
    deviations = i**-0.2 * np.exp(-((i / 85) ** 2))
    return _unit(rng.standard_normal((n, WIDTH), np.float32) * deviations.astype(np.float32))


def _near(centres: Floats, others: Floats, share: float | np.ndarray) -> Floats:
    return _unit(share * centres + (1 - np.square(share)) ** 0.5 * others)


def _unit(rows: np.ndarray) -> Floats:
    unit: Floats = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def real(data: Path, sizes: Sequence[int], n: int, folder: Path, rng: np.random.Generator) -> Load:
    """Return the shipped kernel's keys of ParaRel facts and NQ questions, and of the facts in other words.

    Args:
        data: Folder of the data sets.
        sizes: Numbers of slots.
        n: Questions to time per size.
        folder: Where vectors are kept.
        rng: Draws which are stored and asked.
    """
    told = reported_statements(data)
    stored = [fact.wordings[0] for fact, _ in told] + [row.question for row in nq_gold(data)]
    reader = MemoryReader()
    asked = _encoded(reader, [others[0] for _, others in told], folder)
    order = rng.permutation(len(stored))
    keys = _encoded(reader, stored, folder)[order]
    questions = {}
    for size in sizes:
        candidates = order[:size][order[:size] < len(told)]
        questions[size] = asked[rng.choice(candidates, 2 * n)]
    return Load("real keys", Codebooks(*reader.codebooks), keys, questions)


def _encoded(reader: MemoryReader, texts: Sequence[str], folder: Path) -> Floats:
    path = folder / f"{_digest(json.dumps(texts).encode())}.npy"
    if not path.is_file():
        np.save(path, SentenceEncoder(EncoderConfig(name=BASE)).encode_queries(texts))
    return reader.keys(np.load(path))


def _digest(content: bytes | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()


if __name__ == "__main__":
    main()
