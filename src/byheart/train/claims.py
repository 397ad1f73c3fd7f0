"""Training the network that judges claims, from the compact reader's weights: examples, steps, a change of low rank.

Owns what claims are read beside, and the order. A claim learns from the sentences that retrieval returns, and from what
route *both* reads: the evidence of other claims about the same, and the nearest of these that holds. Can be stopped and
started again at any step.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from byheart.config import EncoderConfig
from byheart.corpus.datasets import Claim, fever_sentences, fever_training_claims, fool_me_twice, plain
from byheart.interfaces import Floats
from byheart.reader.claim_model import RANK, ClaimModel, add_claim_weights
from byheart.reader.compact_model import CompactModel, load_weights
from byheart.reader.windows import WindowBuilder
from byheart.reports import Progress, no_progress
from byheart.text.encoder import SentenceEncoder
from byheart.train.checkpoint import VectorCache, save_state, state_of_run
from byheart.train.corpora import fever_base, memory_claims
from byheart.train.reader import Row, batches_of, cycle, set_rate, take_step, write_log
from byheart.train.reader_calibration import calibrate_claims
from byheart.train.reader_examples import Example, claim_example
from byheart.types import Verdict

CLOSED = 0.08  # share of the examples without a text
RETRIEVED = 0.42  # share beside sentences as retrieval gives them; the others are beside memory's words
TRUE_CLAIM = 0.7  # share of memory's examples that end with a claim that holds
SENTENCES, SIBLINGS = 5, 16
Neighbours = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClaimTraining:
    """Settings of one training run.

    Attributes:
        epochs: Passes over the data.
        learning_rate: Peak rate of the layers; the heads get three times, the marks of shared words ten times as much.
        tokens_per_batch: Padded tokens in one step.
        warmup: Share of the steps in which the rate rises.
        evidence_weight: Weight of the evidence span beside the verdict.
        rank: Of the change that is kept of each matrix.
        precision: `bf16` (faster where the processor has it) or `fp32`.
        seed: Of everything random.
        checkpoint_steps: Steps between two saved states.
    """

    epochs: int = 3
    learning_rate: float = 8e-5
    tokens_per_batch: int = 2048
    warmup: float = 0.06
    evidence_weight: float = 0.3
    rank: int = RANK
    precision: str = "bf16"
    seed: int = 1
    checkpoint_steps: int = 100


@dataclass(frozen=True, slots=True)
class Pool:
    """What examples are drawn from.

    Attributes:
        claims: Training claims.
        sentences: Evidence sentences of all claims.
        near: The sentences nearest to each claim. Shape `claims k`.
        siblings: The other claims nearest to each. Shape `claims k`.
        others: Claims of another set, beside their own evidence.
    """

    claims: Sequence[Claim]
    sentences: Sequence[str]
    near: Neighbours
    siblings: Neighbours
    others: Sequence[Claim] = ()


def train_claims(
    data: Path, work: Path, weights: Path, settings: ClaimTraining, progress: Progress = no_progress
) -> Path:
    """Train the claim network of a compact reader, write it into the reader's weight file, and calibrate verdicts.

    Args:
        data: Folder of the public data sets.
        work: Folder for vectors, state, log and a knowledge base; an interrupted run goes on from there.
        weights: Weight file of the compact reader, which is changed.
        settings: How to train.
        progress: Told of every step.

    Returns:
        The weight file.

    Raises:
        EvaluationError: The work folder holds a run with other settings, or the loss is not finite.
    """
    encoder = SentenceEncoder(EncoderConfig())
    start, model = CompactModel(encoder.folder), ClaimModel(encoder.folder)
    for untouched in (start, model):
        load_weights(weights, untouched)
    fit(model, pool(data, VectorCache(encoder, work / "vectors")), work, settings, progress)
    add_claim_weights(weights, model, start, settings.rank, asdict(settings))
    with fever_base(data, work, encoder, progress) as kb:
        calibrate_claims(weights, kb, memory_claims(data))
    return weights


def fit(
    model: ClaimModel, drawn_from: Pool, work: Path, settings: ClaimTraining, progress: Progress = no_progress
) -> None:
    """Train a claim network.

    Args:
        model: Where it starts; changed.
        drawn_from: What it learns from.
        work: Folder for state and log.
        settings: How.
        progress: Told of every step.

    Raises:
        EvaluationError: The work folder holds a run with other settings, or the loss is not finite.
    """
    work.mkdir(parents=True, exist_ok=True)
    builder = WindowBuilder(SentenceEncoder(EncoderConfig()).tokenizer)
    passes = [_batches(drawn_from, epoch, builder, settings) for epoch in range(settings.epochs)]
    batches = [batch for one in passes for batch in one]
    rates = cycle(len(batches), settings.learning_rate, settings.warmup)
    optimizer = _optimizer(model, settings)
    run = _run(model, drawn_from)
    done, started = _resume(work / "claims.pt", settings, run, model, optimizer), time.perf_counter()
    model.train()
    for step in range(done, len(batches)):
        torch.manual_seed(settings.seed + step)  # dropout depends on the step alone
        set_rate(optimizer, rates[step])
        losses = take_step(model, optimizer, batches[step], settings)
        if step % 20 == 0:
            write_log(work / "claims.jsonl", step, len(batches), time.perf_counter() - started, losses)
        if (step + 1) % settings.checkpoint_steps == 0 or step + 1 == len(batches):
            held = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save_state(work / "claims.pt", {"step": step + 1, "settings": asdict(settings), "run": run, **held})
        progress(step + 1, len(batches), "steps")
    model.eval()


def pool(data: Path, embed: VectorCache) -> Pool:
    """Return what examples are drawn from: FEVER-lite's test file, and Fool Me Twice."""
    claims, sentences = fever_training_claims(data), [sentence.text for sentence in fever_sentences(data)]
    texts = np.array([plain(claim.claim) for claim in claims])
    stated = embed("claims", texts.tolist())
    near = _nearest(stated @ embed("fever.texts", sentences).T, SENTENCES)
    alike = stated @ stated.T
    alike[texts[:, None] == texts] = -1.0  # itself, and where it is stated again
    return Pool(claims, sentences, near, _nearest(alike, SIBLINGS), fool_me_twice(data))


def examples(drawn_from: Pool, epoch: int, seed: int) -> Iterator[Example]:
    """Yield the examples of one pass.

    Args:
        drawn_from: What they are drawn from.
        epoch: Number of the pass, from 0; each shows claims beside other texts.
        seed: Of the draws.

    Yields:
        One example per claim.
    """
    rng = random.Random(100 * seed + epoch)
    for number, claim in enumerate(drawn_from.claims):
        kind = rng.random()
        shown: list[str] = []
        if kind >= CLOSED:
            draw = _retrieved if kind < CLOSED + RETRIEVED else _remembered
            shown = draw(drawn_from, number, rng)
        yield claim_example("fever", plain(claim.claim), claim.verdict, shown, claim.evidence)
    for claim in drawn_from.others:
        yield claim_example("fool_me_twice", claim.claim, claim.verdict, claim.evidence, claim.evidence)


def _retrieved(drawn_from: Pool, number: int, rng: random.Random) -> list[str]:
    """Return the nearest sentences; where none is the claim's evidence, in half of the cases one is put in."""
    gold = drawn_from.claims[number].evidence
    shown = [drawn_from.sentences[i] for i in drawn_from.near[number][: rng.choice((2, 3, 3, 5))]]
    if not any(text in shown for text in gold) and rng.random() < 0.5:
        shown[-1] = rng.choice(gold)
    return shown


def _remembered(drawn_from: Pool, number: int, rng: random.Random) -> list[str]:
    """Return the evidence of the nearest other claims, each text once, and mostly the nearest of them that holds."""
    claims, siblings = drawn_from.claims, drawn_from.siblings[number]
    gold = claims[number].evidence
    words = list(dict.fromkeys(" ".join(claims[i].evidence) for i in siblings))[: rng.choice((1, 2, 2, 3))]
    if words and not any(text in shown for text in gold for shown in words) and rng.random() < 0.5:
        words[-1] = " ".join(gold)
    holding = [plain(claims[i].claim) for i in siblings if claims[i].verdict is Verdict.SUPPORTS]
    return [*words, *holding[: rng.random() < TRUE_CLAIM]]


def _batches(drawn_from: Pool, epoch: int, builder: WindowBuilder, settings: ClaimTraining) -> list[list[Row]]:
    rows = list(examples(drawn_from, epoch, settings.seed))
    return batches_of(rows, builder, settings.tokens_per_batch, settings.seed + epoch)


def _nearest(cosines: Floats, k: int) -> Neighbours:
    found: Neighbours = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return found


def _optimizer(model: ClaimModel, settings: ClaimTraining) -> torch.optim.Optimizer:
    heads = [*model.span_head.parameters(), *model.kind_head.parameters()]
    groups = [
        {"params": list(model.encoder.encoder.parameters()), "share": 1.0},
        {"params": heads, "share": 3.0},
        {"params": list(model.marks.parameters()), "share": 10.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, weight_decay=0.01)


def _run(model: ClaimModel, drawn_from: Pool) -> str:
    """Return what a state belongs to: where training starts, and the claims it learns from."""
    digest = hashlib.sha256(repr((drawn_from.claims, drawn_from.others)).encode())
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _resume(path: Path, settings: ClaimTraining, run: str, model: ClaimModel, optimizer: torch.optim.Optimizer) -> int:
    """Put the last saved state back and return the number of steps done, 0 where there is none."""
    state = state_of_run(path, {"settings": asdict(settings), "run": run})
    if state is None:
        return 0
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
