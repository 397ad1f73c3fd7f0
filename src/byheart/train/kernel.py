"""Training the memory's kernel: pairs, batches, steps, keys, calibration, weights. Read it from top to bottom.

Owns the order of training and its settings. Can be stopped and started again at any step. Half of the pairs hide the
question's own fact (leave-one-out), so that the network learns when it does *not* know.
"""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import nn

from byheart.config import EncoderConfig
from byheart.errors import EvaluationError
from byheart.interfaces import Floats
from byheart.memory.kernel import Kernel, KernelShape, save_kernel
from byheart.memory.reader import BASE, MAX_TOKENS, base_fingerprint
from byheart.reports import Progress, no_progress
from byheart.text.encoder import SentenceEncoder
from byheart.text.models import model_folder
from byheart.train.checkpoint import VectorCache, save_state, state_of_run
from byheart.train.kernel_calibration import calibrate, trial
from byheart.train.kernel_keys import Keys, fit_keys
from byheart.train.memory_pairs import WRITTEN, Pair, training_pairs

WAIST_BATCHES = 20
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KernelTraining:
    """Settings of one training run.

    Attributes:
        shape: Sizes of the network.
        epochs: Passes over the data, each with other wordings and neighbours.
        learning_rate: Peak rate of the encoder's layers; what is new gets twice as much.
        tokens_per_batch: Padded tokens in one step.
        warmup: Share of the steps in which the rate rises.
        lower_is_trained: Whether the lower half is trained, too, or kept as the base encoder's.
        made_share: Share of the pairs made from templates, tables and neighbours that each pass reads.
        written: Sets of hand-written pairs to learn from.
        precision: `bf16` (faster where the processor has it) or `fp32`.
        seed: Of everything random.
        checkpoint_steps: Steps between two saved states.
    """

    shape: KernelShape = field(default_factory=KernelShape)
    epochs: int = 3
    learning_rate: float = 1e-4
    tokens_per_batch: int = 1600
    warmup: float = 0.08
    lower_is_trained: bool = True
    made_share: float = 0.25
    written: tuple[str, ...] = WRITTEN
    precision: str = "bf16"
    seed: int = 7
    checkpoint_steps: int = 100


@dataclass(frozen=True, slots=True)
class Batch:
    """Pairs laid out for the network.

    Attributes:
        queries: Token ids of the questions.
        facts: Token ids of the facts.
        labels: 1 where the fact answers the question. Shape `batch`.
    """

    queries: list[list[int]]
    facts: list[list[int]]
    labels: torch.Tensor


def train_kernel(
    data: Path, work: Path, weights: Path, settings: KernelTraining, progress: Progress = no_progress
) -> Path:
    """Train the kernel and write its weights.

    Args:
        data: Folder of the public data sets.
        work: Folder for vectors, state and log; an interrupted run goes on from there.
        weights: File to write.
        settings: How to train.
        progress: Told of every step.

    Returns:
        The weight file.

    Raises:
        EvaluationError: The work folder holds a run with other settings, or the loss is not finite.
    """
    encoder = SentenceEncoder(EncoderConfig())
    cache = VectorCache(encoder, work / "vectors")
    kernel = fit(data, work, encoder, settings, progress)
    texts = sorted({text for pair in pairs_of(data, cache, settings, 0) for text in (pair.query, pair.question)})
    keys = fit_keys(cache("memory.pairs", texts), settings.shape.key_width, settings.seed)
    with torch.no_grad():
        kernel.key.weight.copy_(keys.projection)
    kernel.requires_grad_(False)
    asked = partial(_keys, encoder, kernel)
    calibration = calibrate(trial(kernel, data, settings.written, partial(_tokens, encoder), asked))
    write_kernel(weights, kernel, keys, settings, calibration)
    return weights


def fit(
    data: Path, work: Path, encoder: SentenceEncoder, settings: KernelTraining, progress: Progress = no_progress
) -> Kernel:
    """Train the network's two halves.

    Args:
        data: Folder of the public data sets.
        work: Folder for vectors, state and log.
        encoder: The base encoder.
        settings: How to train.
        progress: Told of every step.

    Returns:
        The trained network.

    Raises:
        EvaluationError: The work folder holds a run with other settings, or the loss is not finite.
    """
    work.mkdir(parents=True, exist_ok=True)
    cache = VectorCache(encoder, work / "vectors")
    torch.manual_seed(settings.seed)
    kernel = Kernel(encoder.folder, settings.shape)
    _freeze(kernel, settings)
    optimizer = new_optimizer(kernel, settings)
    done = _resume(work / "kernel-state.pt", settings, kernel, optimizer)
    batches: list[Batch] = []
    for epoch in range(settings.epochs):
        pairs = pairs_of(data, cache, settings, epoch)
        batches += lay_out(pairs, encoder, settings.tokens_per_batch, settings.seed + epoch)
    if not done:
        start_waist(kernel, [ids for batch in batches[:WAIST_BATCHES] for ids in batch.facts])
    started = time.perf_counter()
    kernel.train()
    for step in range(done, len(batches)):
        # Dropout depends on the step alone, so that a run that was stopped goes on as if it had not been.
        torch.manual_seed(settings.seed + step)
        set_rate(optimizer, settings, step / len(batches))
        loss = train_step(kernel, optimizer, batches[step], settings)
        if step % 50 == 0:
            _write_log(work / "kernel-log.jsonl", step, len(batches), time.perf_counter() - started, loss)
        if (step + 1) % settings.checkpoint_steps == 0 or step + 1 == len(batches):
            save_state(work / "kernel-state.pt", _state(step + 1, settings, kernel, optimizer))
        progress(step + 1, len(batches), "steps")
    return kernel.eval()


def pairs_of(data: Path, cache: VectorCache, settings: KernelTraining, epoch: int) -> list[Pair]:
    """Return the pairs of one pass."""
    return training_pairs(data, cache, settings.seed + 1000 * epoch, settings.written, settings.made_share)


def start_waist(kernel: Kernel, facts: Sequence[Sequence[int]]) -> None:
    """Let the waist begin as the projection that loses least of the facts' states, turned at random.

    From an orthogonal matrix training takes many more steps. The turn spreads the variance over all numbers of a
    token, so that rounding to 8 bits loses little.

    Args:
        kernel: The network, changed in place.
        facts: Token ids of facts.
    """
    with torch.no_grad():
        lower = kernel.lower(facts, 1)
        states = lower.states[lower.mask > 0].float()
        mean = states.mean(0)
        _, _, components = torch.linalg.svd(states - mean, full_matrices=False)
        turn = nn.init.orthogonal_(torch.empty(kernel.shape.value_width, kernel.shape.value_width))
        kernel.squeeze.weight.copy_(turn @ components[: kernel.shape.value_width])
        kernel.squeeze.bias.copy_(-kernel.squeeze.weight @ mean)
        kernel.stretch.weight.copy_(kernel.squeeze.weight.T)
        kernel.stretch.bias.copy_(mean)


def judged(kernel: Kernel, encoder: SentenceEncoder, pairs: Sequence[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a kernel's log-odds for pairs, in any order, and their labels. Shapes `pairs`."""
    odds, labels = [], []
    with torch.inference_mode():
        for batch in lay_out(pairs, encoder, 4000, 0):
            facts = kernel.lower(batch.facts, 1)
            odds.append(kernel.match(kernel.lower(batch.queries, 0), kernel.compress(facts), facts.mask))
            labels.append(batch.labels)
    return torch.cat(odds).clone(), torch.cat(labels)


def write_kernel(
    path: Path, kernel: Kernel, keys: Keys, settings: KernelTraining, calibration: tuple[float, float, float]
) -> None:
    """Write weights, codebooks, calibration and what they came from.

    Args:
        path: File to write.
        kernel: The trained kernel.
        keys: Projection and codebooks.
        settings: How it was trained.
        calibration: Slope, offset and gap weight of its log-odds.
    """
    base = model_folder(BASE)
    notes = {"base": BASE, "base_fingerprint": base_fingerprint(base), "training": asdict(settings)}
    path.parent.mkdir(parents=True, exist_ok=True)
    extra = {"codebook.first": keys.first, "codebook.second": keys.second}
    save_kernel(path, kernel, Kernel(base, settings.shape), notes | {"calibration": calibration}, extra)


def lay_out(pairs: Sequence[Pair], encoder: SentenceEncoder, tokens_per_batch: int, seed: int) -> list[Batch]:
    """Return pairs in batches of like length, in random order.

    Args:
        pairs: What to lay out.
        encoder: Its tokenizer reads the texts.
        tokens_per_batch: Padded tokens in one batch.
        seed: Chooses the order.

    Returns:
        The batches.
    """
    tokenizer = encoder.tokenizer
    queries = [e.ids[:MAX_TOKENS] for e in tokenizer.encode_batch([pair.query for pair in pairs])]
    facts = [
        e.ids[:MAX_TOKENS]
        for e in tokenizer.encode_batch([(p.question, p.answer) if p.answer else p.question for p in pairs])
    ]
    rng = random.Random(seed)
    order = list(range(len(pairs)))
    rng.shuffle(order)
    order.sort(key=lambda i: (len(queries[i]) + len(facts[i])) // 4)
    batches = []
    rows: list[int] = []
    longest = 0
    for i in order:
        longest = max(longest, len(queries[i]) + len(facts[i]))
        if rows and longest * (len(rows) + 1) > tokens_per_batch:
            batches.append(_batch(rows, queries, facts, pairs))
            rows, longest = [], len(queries[i]) + len(facts[i])
        rows.append(i)
    if rows:
        batches.append(_batch(rows, queries, facts, pairs))
    rng.shuffle(batches)
    log.info("%d pairs in %d batches", len(pairs), len(batches))
    return batches


def train_step(kernel: Kernel, optimizer: torch.optim.Optimizer, batch: Batch, settings: KernelTraining) -> float:
    """Take one step, and return the mean negative log-likelihood of the labels.

    Args:
        kernel: The network.
        optimizer: Of its trained parameters.
        batch: The pairs.
        settings: Precision.

    Returns:
        The loss, in nats per pair.

    Raises:
        EvaluationError: The loss is not finite.
    """
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.precision == "bf16"):
        facts = kernel.lower(batch.facts, 1)
        odds = kernel.match(kernel.lower(batch.queries, 0), kernel.compress(facts), facts.mask)
    loss = nn.functional.binary_cross_entropy_with_logits(odds.float(), batch.labels)
    if not math.isfinite(loss.item()):
        rate = settings.learning_rate
        raise EvaluationError(f"the loss is {loss.item()}; lower the learning rate ({rate}) and start again")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(kernel.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def _tokens(encoder: SentenceEncoder, question: str, answer: str) -> list[int]:
    encoding = encoder.tokenizer.encode(question, answer) if answer else encoder.tokenizer.encode(question)
    ids: list[int] = encoding.ids[:MAX_TOKENS]
    return ids


def _keys(encoder: SentenceEncoder, kernel: Kernel, texts: Sequence[str]) -> Floats:
    keys: Floats = kernel.keys(torch.from_numpy(encoder.encode_queries(texts))).numpy()
    return keys


def _batch(
    rows: Sequence[int], queries: Sequence[list[int]], facts: Sequence[list[int]], pairs: Sequence[Pair]
) -> Batch:
    labels = torch.tensor([float(pairs[row].is_same) for row in rows])
    return Batch([queries[row] for row in rows], [facts[row] for row in rows], labels)


def _freeze(kernel: Kernel, settings: KernelTraining) -> None:
    kernel.key.weight.requires_grad_(False)  # fitted on its own, see `kernel_keys`
    if not settings.lower_is_trained:
        for layer in kernel.encoder.encoder.layer[: settings.shape.split]:
            layer.requires_grad_(False)


def new_optimizer(kernel: Kernel, settings: KernelTraining) -> torch.optim.Optimizer:
    """Return the optimiser of a kernel's trained parameters."""
    trained = [(name, p) for name, p in kernel.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for name, p in trained if name.startswith("encoder.")], "share": 1.0},
        {"params": [p for name, p in trained if not name.startswith("encoder.")], "share": 2.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, weight_decay=0.01)


def set_rate(optimizer: torch.optim.Optimizer, settings: KernelTraining, done: float) -> None:
    """Set the learning rate: it rises, then falls to 0; `done` is the share of the steps taken."""
    rate = settings.learning_rate * max(min(done / settings.warmup, (1 - done) / (1 - settings.warmup)), 0.0)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]


def _state(step: int, settings: KernelTraining, kernel: Kernel, optimizer: torch.optim.Optimizer) -> dict[str, object]:
    trained = {name: p.detach().clone() for name, p in kernel.named_parameters() if p.requires_grad}
    return {"step": step, "settings": asdict(settings), "kernel": trained, "optimizer": optimizer.state_dict()}


def _resume(path: Path, settings: KernelTraining, kernel: Kernel, optimizer: torch.optim.Optimizer) -> int:
    """Put the last saved state back and return the number of steps done, 0 where there is none."""
    state = state_of_run(path, {"settings": asdict(settings)})
    if state is None:
        return 0
    kernel.load_state_dict(state["kernel"], strict=False)
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def _write_log(path: Path, step: int, n_steps: int, seconds: float, loss: float) -> None:
    line = {"step": step, "steps": n_steps, "seconds": round(seconds, 1), "loss": loss}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
