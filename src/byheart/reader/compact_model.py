"""The compact reader's network: a small transformer with a span head and a kind head.

Owns the forward pass, the likelihood it is trained with, and its weight file: differences to the base encoder's
layers, rounded to 8 bits per row, so that embeddings are shared with the encoder and the file stays small.
Source: Devlin et al. 2019, BERT, section 4.2 (span head); Kwiatkowski et al. 2019, section 5 (answer kinds).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from byheart.errors import ReaderError
from byheart.reader.windows import AnswerKind, Window
from byheart.text.encoder import load_transformer, pad
from byheart.text.precision import halve, multiplying

FORMAT = 1
BLOCKED = -1e4


@dataclass(frozen=True, slots=True)
class Logits:
    """What the network gives.

    Attributes:
        start: Log-probability that the answer begins at a token. Shape `batch tokens`.
        end: Log-probability that it ends there. Shape `batch tokens`.
        kind: Log-probability of each `AnswerKind`. Shape `batch 4`.
    """

    start: Tensor
    end: Tensor
    kind: Tensor


class CompactModel(nn.Module):
    """The base encoder's layers, fine-tuned, and two heads."""

    def __init__(self, base: Path, device: str = "cpu") -> None:
        """Start from the base encoder; the heads are random until trained or loaded.

        Args:
            base: The base encoder's folder.
            device: torch device.
        """
        super().__init__()
        self.device = device
        self.encoder = cast(Any, load_transformer(base, device))
        width = int(self.encoder.config.hidden_size)
        self.span_head = nn.Linear(width, 2).to(device)
        self.kind_head = nn.Linear(width, len(AnswerKind)).to(device)
        self.is_half = False
        for parameter in self.encoder.embeddings.parameters():
            parameter.requires_grad_(False)

    def halve(self) -> CompactModel:
        """Have the layers multiply in bf16 from now on, for inference; sums, norms and the heads stay fp32.

        Returns:
            The model itself.
        """
        halve(self.encoder.encoder)
        self.is_half = True
        return self

    def forward(self, windows: Sequence[Window]) -> Logits:
        """Return the log-probabilities of starts, ends and kinds.

        Args:
            windows: The batch.

        Returns:
            Log-probabilities; tokens that are no passage text have practically none.
        """
        ids, mask = pad([window.ids for window in windows])
        segments, _ = pad([window.segments for window in windows])
        open_to_spans = torch.zeros(ids.shape, dtype=torch.bool)
        for row, window in enumerate(windows):
            open_to_spans[row, : len(window.tokens)] = torch.tensor([token is not None for token in window.tokens])
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
        with multiplying(self.is_half, self.device):
            states = self.states({k: v.to(self.device) for k, v in inputs.items()}, windows)
        spans = self.span_head(states).float().masked_fill(~open_to_spans[:, :, None].to(self.device), BLOCKED)
        kind = self.kind_head(states[:, 0]).float()
        start, end = torch.log_softmax(spans, dim=1).unbind(-1)
        return Logits(start, end, torch.log_softmax(kind, dim=-1))

    def states(self, inputs: Mapping[str, Tensor], windows: Sequence[Window]) -> Tensor:
        """Return the last layer's states. Shape `batch tokens width`.

        Args:
            inputs: What the encoder takes.
            windows: The batch.

        Returns:
            The states.
        """
        states: Tensor = self.encoder(**inputs).last_hidden_state
        return states


def span_log_likelihood(logits: Logits, row: int, spans: Sequence[tuple[int, int]]) -> Tensor:
    """Return the log-probability that one of the spans is the answer, given that the answer is a span.

    Args:
        logits: The network's output.
        row: Row of the batch.
        spans: First and last token of each right answer; at least one.

    Returns:
        A scalar: log Σ p(start) p(end).
    """
    starts, ends = zip(*spans, strict=True)
    return torch.logsumexp(logits.start[row, list(starts)] + logits.end[row, list(ends)], dim=0)


def save_weights(path: Path, model: CompactModel, base: CompactModel, notes: Mapping[str, object]) -> None:
    """Write the model as 8-bit differences to its base.

    Args:
        path: File to write.
        model: The trained model.
        base: An untrained model of the same base encoder.
        notes: JSON-able facts kept beside the weights: calibration, command, data.
    """
    before = dict(base.encoder.named_parameters())
    tensors: dict[str, Tensor] = {}
    for name, value in model.encoder.named_parameters():
        if name.startswith("embeddings"):
            continue
        change = (value - before[name]).detach().cpu()
        if change.ndim == 2:
            scale = change.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
            tensors[f"change.{name}"] = torch.round(change / scale).to(torch.int8)
            tensors[f"scale.{name}"] = scale.squeeze(1)
        else:
            tensors[f"change.{name}"] = change.clone()
    for name in ("span_head.weight", "span_head.bias", "kind_head.weight", "kind_head.bias"):
        tensors[name] = model.get_parameter(name).detach().cpu().clone()
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={"notes": json.dumps({"format": FORMAT, **notes})})
    partial.replace(path)


def load_weights(path: Path, model: CompactModel) -> dict[str, object]:
    """Put a weight file's values into an untrained model.

    Args:
        path: File that `save_weights` wrote.
        model: The model to change; its encoder must be the base's.

    Returns:
        The notes kept in the file.

    Raises:
        ReaderError: The file is missing, damaged, or of another format.
    """
    if not path.is_file():
        raise ReaderError(f"the compact reader's weights are missing at {path}; run: byheart train reader --data DIR")
    with safe_open(path, framework="pt") as file:
        notes: dict[str, object] = json.loads((file.metadata() or {}).get("notes", "{}"))
        if notes.get("format") != FORMAT:
            raise ReaderError(
                f"{path.name} has format {notes.get('format')!r}, {FORMAT} is read; train the reader anew"
            )
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - safe_open is no mapping
    with torch.no_grad():
        for name, parameter in model.encoder.named_parameters():
            if f"change.{name}" in held:
                change = held[f"change.{name}"].float()
                scale = held.get(f"scale.{name}")
                parameter += (change if scale is None else change * scale[:, None]).to(parameter.device)
        for name in ("span_head.weight", "span_head.bias", "kind_head.weight", "kind_head.bias"):
            model.get_parameter(name).copy_(held[name])
    return notes
