"""Training the compact reader: examples, batches, likelihood, steps, weights. Read it from top to bottom.

Owns the order of training and its settings. Can be stopped and started again at any step.
"""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import torch

from byheart.config import EncoderConfig
from byheart.errors import EvaluationError
from byheart.interfaces import Reading
from byheart.reader.compact_model import CompactModel, Logits, save_weights, span_log_likelihood
from byheart.reader.windows import AnswerKind, Window, WindowBuilder, token_spans
from byheart.reports import Progress, no_progress
from byheart.text.encoder import SentenceEncoder
from byheart.train.checkpoint import VectorCache, load_state, save_state, state_of_run
from byheart.train.corpora import held_out_questions, nq_base
from byheart.train.reader_calibration import calibrate
from byheart.train.reader_examples import Example, claim_examples, is_held_out, reader_examples
from byheart.types import Kind

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReaderTraining:
    """Settings of one training run.

    Attributes:
        epochs: Passes over the data.
        learning_rate: Peak rate of the encoder's layers; the heads get five times as much.
        tokens_per_batch: Padded tokens in one step.
        warmup: Share of the steps in which the rate rises.
        evidence_weight: Weight of a claim's evidence span beside its verdict.
        precision: `bf16` (faster where the processor has it) or `fp32`.
        claim_learning_rate: Peak rate of the last stage, one pass over claims with a few questions.
        claim_share: How far the shipped weights go from those before the last stage to those after it.
        seed: Of everything random.
        checkpoint_steps: Steps between two saved states.
    """

    epochs: int = 3
    learning_rate: float = 1e-4
    tokens_per_batch: int = 4096
    warmup: float = 0.06
    evidence_weight: float = 0.3
    precision: str = "bf16"
    claim_learning_rate: float = 8e-5
    claim_share: float = 0.3
    seed: int = 7
    checkpoint_steps: int = 100


@dataclass(frozen=True, slots=True)
class Row:
    """An example laid out for the network: a window, the right kind, and the right token spans."""

    window: Window
    kind: AnswerKind
    spans: tuple[tuple[int, int], ...]
    is_claim: bool


def train_reader(
    data: Path, work: Path, weights: Path, settings: ReaderTraining, progress: Progress = no_progress
) -> Path:
    """Train and calibrate the compact reader, and write its weights; `claims` gives verdicts a network of their own.

    Args:
        data: Folder of the public data sets.
        work: Folder for vectors, state, log and knowledge bases; an interrupted run goes on from there.
        weights: File to write.
        settings: How to train.
        progress: Told of every step.

    Returns:
        The weight file.

    Raises:
        EvaluationError: The work folder holds a run with other settings, or the loss is not finite.
    """
    model = fit(data, work, settings, progress)
    encoder = SentenceEncoder(EncoderConfig())
    notes = {"base": encoder.name, "base_fingerprint": encoder.fingerprint, "training": asdict(settings)}
    weights.parent.mkdir(parents=True, exist_ok=True)
    save_weights(weights, model, CompactModel(encoder.folder), notes)
    with nq_base(data, work, encoder, progress) as kb:
        calibrate(weights, kb, held_out_questions(data))
    return weights


def fit(data: Path, work: Path, settings: ReaderTraining, progress: Progress = no_progress) -> CompactModel:
    """Train the network.

    Args:
        data: Folder of the public data sets.
        work: Folder for vectors, state and log.
        settings: How to train.
        progress: Told of every step.

    Returns:
        The trained network.

    Raises:
        EvaluationError: The work folder holds a run with other settings, or the loss is not finite.
    """
    work.mkdir(parents=True, exist_ok=True)
    encoder = SentenceEncoder(EncoderConfig())
    builder = WindowBuilder(encoder.tokenizer)
    cache = VectorCache(encoder, work / "vectors")
    torch.manual_seed(settings.seed)
    model = CompactModel(encoder.folder)
    optimizer = _optimizer(model, settings)
    done = _resume(work / "state.pt", settings, model, optimizer)

    passes = _passes(data, cache, builder, settings)
    counts = [len(lay_out_batches()) for lay_out_batches in passes]
    *main, last = counts
    rates = cycle(sum(main), settings.learning_rate, settings.warmup)
    rates += cycle(last, settings.claim_learning_rate, settings.warmup)
    run = _Run(work, settings, model, optimizer, rates, progress, time.perf_counter())
    model.train()
    first = 0
    for number, lay_out_batches in enumerate(passes):
        if done < first + counts[number]:
            if number == len(main) and done <= first:
                save_state(work / "before_claims.pt", _trained(model))
            run.steps(lay_out_batches(), first, done)
        first += counts[number]
    _go_back(model, load_state(work / "before_claims.pt"), settings.claim_share)
    return model


@dataclass(frozen=True, slots=True)
class _Run:
    """What stays the same from the first step to the last."""

    work: Path
    settings: ReaderTraining
    model: CompactModel
    optimizer: torch.optim.Optimizer
    rates: Sequence[float]
    progress: Progress
    started: float

    def steps(self, batches: Sequence[Sequence[Row]], first: int, done: int) -> None:
        """Take the steps of one pass, which begins with step `first`, except those that are done."""
        n_steps = len(self.rates)
        for step in range(max(first, done), first + len(batches)):
            # Dropout depends on the step alone, so that a run that was stopped goes on as if it had not been.
            torch.manual_seed(self.settings.seed + step)
            set_rate(self.optimizer, self.rates[step])
            losses = take_step(self.model, self.optimizer, batches[step - first], self.settings)
            if step % 20 == 0:
                write_log(self.work / "log.jsonl", step, n_steps, time.perf_counter() - self.started, losses)
            if (step + 1) % self.settings.checkpoint_steps == 0 or step + 1 == n_steps:
                save_state(self.work / "state.pt", _state(step + 1, self.settings, self.model, self.optimizer))
            self.progress(step + 1, n_steps, "steps")


_Batches = list[list[Row]]


def _passes(
    data: Path, cache: VectorCache, builder: WindowBuilder, settings: ReaderTraining
) -> list[Callable[[], _Batches]]:
    """Return what lays out each pass, the last stage's at the end; one pass at a time fits into memory, all do not."""
    main = [partial(_epoch_batches, data, cache, builder, settings, epoch) for epoch in range(settings.epochs)]
    return [*main, partial(_claim_batches, data, cache, builder, settings)]


def _claim_batches(data: Path, cache: VectorCache, builder: WindowBuilder, settings: ReaderTraining) -> _Batches:
    return _batches(claim_examples(data, cache, settings.seed), builder, settings, settings.seed)


def _epoch_batches(
    data: Path, cache: VectorCache, builder: WindowBuilder, settings: ReaderTraining, epoch: int
) -> _Batches:
    seed = settings.seed + 1000 * epoch
    return _batches(reader_examples(data, cache, seed, epoch), builder, settings, seed)


def _batches(examples: Sequence[Example], builder: WindowBuilder, settings: ReaderTraining, seed: int) -> _Batches:
    """Return one pass's batches, held-out questions left out."""
    kept = [example for example in examples if not is_held_out(example.question.text)]
    return batches_of(kept, builder, settings.tokens_per_batch, seed)


def batches_of(examples: Sequence[Example], builder: WindowBuilder, tokens: int, seed: int) -> _Batches:
    """Return batches of at most so many padded tokens: rows of like length together, batches in random order."""
    rows = [row for example in examples for row in lay_out(builder, example)]
    rng = random.Random(seed)
    rng.shuffle(rows)
    rows.sort(key=lambda row: len(row.window.ids) // 8)
    batches = list(fill(rows, tokens))
    rng.shuffle(batches)
    log.info("%d rows in %d batches", len(rows), len(batches))
    return batches


def lay_out(builder: WindowBuilder, example: Example) -> list[Row]:
    """Return an example's windows with their targets; a window without the answer is left out."""
    rows = []
    for window in builder.build(Reading(example.question, example.passages)):
        spans = tuple(
            place
            for span in example.spans
            if span.passage in window.passages
            for place in token_spans(window, span.passage, [(span.start, span.end)])
        )
        if example.kind is not AnswerKind.SPAN or spans:
            rows.append(Row(window, example.kind, spans, example.question.kind is Kind.CLAIM))
    return rows[:1]


def fill(rows: Sequence[Row], tokens_per_batch: int) -> Iterator[list[Row]]:
    """Yield rows in order, as many to a batch as padded tokens allow."""
    batch: list[Row] = []
    longest = 0
    for row in rows:
        longest = max(longest, len(row.window.ids))
        if batch and longest * (len(batch) + 1) > tokens_per_batch:
            yield batch
            batch, longest = [], len(row.window.ids)
        batch.append(row)
    if batch:
        yield batch


def batch_loss(logits: Logits, rows: Sequence[Row], evidence_weight: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean negative log-likelihoods of the right kinds and of the right spans.

    Args:
        logits: The network's output.
        rows: The batch.
        evidence_weight: Weight of a claim's evidence span; an answer's span has weight one.

    Returns:
        Two scalars; for a question their sum is -log p(answer). A claim may not be answered NONE or by a span.
    """
    kinds = torch.tensor([int(row.kind) for row in rows])
    verdicts = torch.log_softmax(logits.kind[:, [AnswerKind.YES, AnswerKind.NO]], dim=-1)
    of_claim = torch.tensor([row.is_claim for row in rows])
    chosen = logits.kind.gather(1, kinds[:, None]).squeeze(1)
    chosen_verdict = verdicts.gather(1, (kinds[:, None] - AnswerKind.YES).clamp(0, 1)).squeeze(1)
    kind_loss = -torch.where(of_claim, chosen_verdict, chosen).mean()
    span_terms = [
        (evidence_weight if row.is_claim else 1.0) * span_log_likelihood(logits, i, row.spans)
        for i, row in enumerate(rows)
        if row.spans
    ]
    span_loss = -torch.stack(span_terms).sum() / len(rows) if span_terms else torch.zeros(())
    return kind_loss, span_loss


class Stepping(Protocol):
    """What the settings of a run say about each step."""

    @property
    def precision(self) -> str:
        """Of the forward pass: `bf16` or `fp32`."""

    @property
    def evidence_weight(self) -> float:
        """Weight of a claim's evidence span beside its verdict."""

    @property
    def learning_rate(self) -> float:
        """Peak rate of the layers."""


def take_step(
    model: CompactModel, optimizer: torch.optim.Optimizer, rows: Sequence[Row], settings: Stepping
) -> tuple[float, float]:
    """Take one step, and return the losses of kinds and of spans before it; EvaluationError where it is not finite."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.precision == "bf16"):
        logits = model([row.window for row in rows])
    kind_loss, span_loss = batch_loss(logits, rows, settings.evidence_weight)
    loss = kind_loss + span_loss
    if not math.isfinite(loss.item()):
        rate = settings.learning_rate
        raise EvaluationError(f"the loss is {loss.item()}; lower the learning rate ({rate}) and start again")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return kind_loss.item(), span_loss.item()


def _optimizer(model: CompactModel, settings: ReaderTraining) -> torch.optim.Optimizer:
    heads = [*model.span_head.parameters(), *model.kind_head.parameters()]
    layers = [p for p in model.encoder.parameters() if p.requires_grad]
    groups = [
        {"params": layers, "share": 1.0},
        {"params": heads, "share": 5.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, weight_decay=0.01)


def cycle(n_steps: int, peak: float, warmup: float) -> list[float]:
    """Return the learning rate of every step: up to the peak, then down to nothing."""
    done = [step / n_steps for step in range(n_steps)]
    return [peak * max(min(d / warmup, (1 - d) / (1 - warmup)), 0.0) for d in done]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group its share of the rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]


def _state(
    step: int, settings: ReaderTraining, model: CompactModel, optimizer: torch.optim.Optimizer
) -> dict[str, object]:
    return {
        "step": step,
        "settings": asdict(settings),
        "model": _trained(model),
        "optimizer": optimizer.state_dict(),
    }


def _trained(model: CompactModel) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}


def _go_back(model: CompactModel, before: Mapping[str, torch.Tensor] | None, share: float) -> None:
    """Leave the weights on the way from `before` to where they are; without `before` there was no last stage.

    Source: Wortsman et al. 2022, Robust fine-tuning of zero-shot models (WiSE-FT), section 3.
    """
    with torch.no_grad():
        for name, value in (before or {}).items():
            parameter = model.get_parameter(name)
            parameter.copy_(value + share * (parameter - value))


def _resume(path: Path, settings: ReaderTraining, model: CompactModel, optimizer: torch.optim.Optimizer) -> int:
    """Put the last saved state back and return the number of steps done, 0 where there is none."""
    state = state_of_run(path, {"settings": asdict(settings)})
    if state is None:
        return 0
    model.load_state_dict(state["model"], strict=False)
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def write_log(path: Path, step: int, n_steps: int, seconds: float, losses: tuple[float, float]) -> None:
    """Add a line to a training log."""
    line = {"step": step, "steps": n_steps, "seconds": round(seconds, 1), "kind": losses[0], "span": losses[1]}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
