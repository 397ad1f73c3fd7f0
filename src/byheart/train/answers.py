"""Training the memory's answer codec: a vocabulary, then embeddings that survive noise. Read it from top to bottom.

Owns the order of training and its settings. Can be stopped and started again at any step. Half of what the network sees
are groups of real answers, half are tokens at random, so that rare tokens and bare bytes come back exactly, too.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

from byheart.corpus.splits import share
from byheart.errors import EvaluationError
from byheart.memory.answer_model import AnswerModel, AnswerShape, save_answers
from byheart.memory.answers import AnswerCodec
from byheart.memory.codes import Codes
from byheart.reports import Progress, no_progress
from byheart.train.answer_texts import answer_texts, invented_texts
from byheart.train.checkpoint import load_state, save_state

HELD_OUT = 0.02  # of the texts: how exact the codec is, is told on these
LOG_STEPS = 25
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AnswerTraining:
    """Settings of one training run.

    Attributes:
        shape: Sizes of the network.
        steps: Batches.
        groups_per_step: Groups of tokens in one batch.
        noise: Standard deviation of the loudest noise; a vector's numbers have mean square 1.
        learning_rate: Peak rate.
        warmup: Share of the steps in which the rate rises.
        seed: Of everything random.
        checkpoint_steps: Steps between two saved states.
    """

    shape: AnswerShape = field(default_factory=AnswerShape)
    steps: int = 800
    groups_per_step: int = 256
    noise: float = 0.7
    learning_rate: float = 3e-3
    warmup: float = 0.08
    seed: int = 7
    checkpoint_steps: int = 100


def train_answers(
    data: Path, work: Path, weights: Path, settings: AnswerTraining, progress: Progress = no_progress
) -> Path:
    """Train the answer codec and write its weights.

    Args:
        data: Folder of the public data sets.
        work: Folder for state and log; an interrupted run goes on from there.
        weights: File to write.
        settings: How to train.
        progress: Told of every step.

    Returns:
        The weight file.

    Raises:
        EvaluationError: The work folder holds a run with other settings or texts, or the loss is not finite.
    """
    texts = answer_texts(data, settings.seed)
    return train_on(texts, work, weights, settings, progress)


def train_on(
    texts: Sequence[str], work: Path, weights: Path, settings: AnswerTraining, progress: Progress = no_progress
) -> Path:
    """Train the answer codec on given texts and write its weights; see `train_answers`.

    Args:
        texts: Answers; one in fifty, by hash, is held out.
        work: Folder for state and log.
        weights: File to write.
        settings: How to train.
        progress: Told of every step.

    Returns:
        The weight file.

    Raises:
        EvaluationError: The work folder holds a run with other settings or texts, or the loss is not finite.
    """
    trained = [*(text for text in texts if share(text) >= HELD_OUT), *invented_texts(settings.seed)]
    tokenizer = fit_vocabulary(trained, settings.shape.padding)
    groups = lay_out(trained, tokenizer, settings.shape)
    log.info("%d texts, %d groups, %d tokens", len(trained), len(groups), tokenizer.get_vocab_size())
    model = fit(groups, tokenizer.to_str(), work, settings, progress)
    save_answers(weights, model, tokenizer, {"training": asdict(settings)})
    exactness = measure(weights, [text for text in texts if share(text) < HELD_OUT], settings)
    _write_log(work / "answers-log.jsonl", exactness)
    return weights


def fit_vocabulary(texts: Sequence[str], size: int) -> Tokenizer:
    """Return a byte-level vocabulary: any text comes back from its tokens character by character.

    Args:
        texts: What pairs are counted in.
        size: Tokens at most, of which the first 256 are the bytes.

    Returns:
        The vocabulary. Source: Sennrich et al. 2016, byte-pair encoding, section 3.2; here over bytes.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # No special tokens: a text that spells one would be read as it.
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def lay_out(texts: Sequence[str], tokenizer: Tokenizer, shape: AnswerShape) -> Tensor:
    """Return the texts' tokens in groups, the last of each text filled up with padding. Shape `groups group`."""
    rows = []
    for encoding in tokenizer.encode_batch(list(texts)):
        for first in range(0, len(encoding.ids), shape.group):
            row = encoding.ids[first : first + shape.group]
            rows.append(row + [shape.padding] * (shape.group - len(row)))
    return torch.tensor(rows)


def fit(
    groups: Tensor, vocabulary: str, work: Path, settings: AnswerTraining, progress: Progress = no_progress
) -> AnswerModel:
    """Train the network.

    Args:
        groups: Groups of real answers. Shape `groups group`.
        vocabulary: What their tokens mean; a run that is gone on with must have the same.
        work: Folder for state and log.
        settings: How to train.
        progress: Told of every step.

    Returns:
        The trained network.

    Raises:
        EvaluationError: The work folder holds a run with other settings or texts, or the loss is not finite.
    """
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(settings.seed)
    model = AnswerModel(settings.shape)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99))
    run: dict[str, object] = {"settings": asdict(settings), "vocabulary": vocabulary}
    done = _resume(work / "answers-state.pt", run, model, optimizer)
    started = time.perf_counter()
    for step in range(done, settings.steps):
        # Batch and noise depend on the step alone, so that a run that was stopped goes on as if it had not been.
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        _set_rate(optimizer, settings, (step + 1) / settings.steps)
        loss = train_step(model, optimizer, draw(groups, settings, generator), settings, generator)
        if step % LOG_STEPS == 0:
            seconds = round(time.perf_counter() - started, 1)
            _write_log(
                work / "answers-log.jsonl", {"step": step, "steps": settings.steps, "seconds": seconds, "loss": loss}
            )
        if (step + 1) % settings.checkpoint_steps == 0 or step + 1 == settings.steps:
            held = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save_state(work / "answers-state.pt", run | held)
        progress(step + 1, settings.steps, "steps")
    return model.eval()


def draw(groups: Tensor, settings: AnswerTraining, generator: torch.Generator) -> Tensor:
    """Return one batch: half real groups, half tokens at random. Shape `groups_per_step group`."""
    n_real = settings.groups_per_step // 2
    real = groups[torch.randint(len(groups), (n_real,), generator=generator)]
    return torch.cat([real, random_groups(settings.groups_per_step - n_real, settings.shape, generator)])


def random_groups(n: int, shape: AnswerShape, generator: torch.Generator) -> Tensor:
    """Return groups of tokens at random, about half of them cut short by padding. Shape `n group`."""
    tokens = torch.randint(shape.padding, (n, shape.group), generator=generator)
    lengths = torch.randint(1, 2 * shape.group + 1, (n, 1), generator=generator)
    return torch.where(torch.arange(shape.group) < lengths, tokens, shape.padding)


def train_step(
    model: AnswerModel,
    optimizer: torch.optim.Optimizer,
    batch: Tensor,
    settings: AnswerTraining,
    generator: torch.Generator,
) -> float:
    """Take one step, and return the mean negative log-likelihood of the tokens under noise.

    Rounding to 8 bits is noise of about 0.006; what is trained goes far beyond, so that codes lie far apart.

    Args:
        model: The network.
        optimizer: Of its parameters.
        batch: Groups of tokens. Shape `batch group`.
        settings: How loud the noise is.
        generator: Draws it, at another loudness for every vector.

    Returns:
        The loss, in nats per token.

    Raises:
        EvaluationError: The loss is not finite.
    """
    vectors = model.write(batch)
    loudness = settings.noise * torch.rand(len(vectors), 1, generator=generator)
    heard = vectors + loudness * torch.randn(vectors.shape, generator=generator)
    loss = nn.functional.cross_entropy(model.logits(heard).flatten(0, 1), batch.flatten())
    if not math.isfinite(loss.item()):
        rate = settings.learning_rate
        raise EvaluationError(f"the loss is {loss.item()}; lower the learning rate ({rate}) and start again")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def measure(weights: Path, texts: Sequence[str], settings: AnswerTraining) -> dict[str, float]:
    """Return how many texts come back exactly through write and read, and how many were tried.

    Args:
        weights: Weight file.
        texts: Texts; those over the limit are left out.
        settings: Its seed.

    Returns:
        `held_out`, `held_out_exact`, and the same of 10,000 random groups of tokens.
    """
    codec = AnswerCodec(weights)
    fitting = [text for text, n in zip(texts, codec.count_tokens(texts), strict=True) if n <= codec.max_tokens]
    exact = [text == back for text, back in zip(fitting, codec.read(codec.write(fitting)), strict=True)]
    groups = random_groups(10_000, settings.shape, torch.Generator().manual_seed(settings.seed))
    with torch.inference_mode():
        right = (codec.model.logits(_rounded(codec.model.write(groups))).argmax(-1) == groups).all(dim=1)
    return {
        "held_out": len(exact),
        "held_out_exact": sum(exact) / max(len(exact), 1),
        "random": len(right),
        "random_exact": right.float().mean().item(),
    }


def _rounded(vectors: Tensor) -> Tensor:
    return torch.from_numpy(Codes.of(vectors.numpy()).vectors)


def _set_rate(optimizer: torch.optim.Optimizer, settings: AnswerTraining, done: float) -> None:
    share_of_peak = min(done / settings.warmup, (1 - done) / (1 - settings.warmup))
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate * max(share_of_peak, 0.01)


def _resume(path: Path, run: dict[str, object], model: AnswerModel, optimizer: torch.optim.Optimizer) -> int:
    """Put the last saved state back and return the number of steps done, 0 where there is none."""
    state = load_state(path)
    if state is None:
        return 0
    for name, value in run.items():
        if state[name] != value:
            raise EvaluationError(
                f"{path.parent} holds a run with another {name}; use the same, or another work folder"
            )
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def _write_log(path: Path, line: dict[str, float]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
