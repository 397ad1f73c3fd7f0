"""The network that judges claims: the compact reader's layers, changed a little, and told which words both sides share.

Owns the marks of shared words, and how the change is kept: a product of two thin matrices per layer, rounded to 8 bits,
in the compact reader's own weight file. Verdicts get weights of their own, and answers to questions stay as they are.
Source: Hu et al. 2021, LoRA, section 4.1 (a change of low rank); Chen et al. 2017, DrQA, section 3.2 (exact match as a
feature of a word).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from byheart.reader.compact_model import CompactModel, load_weights
from byheart.reader.windows import Window
from byheart.text.encoder import pad

RANK = 32
PREFIX = "claims."
ALONE, IN_TEXT, IN_CLAIM = 0, 1, 2  # a token that only one side has; one of the claim's, one of the text's, both have
_BLOCKED = -1e9


class ClaimModel(CompactModel):
    """The compact reader's network with a vector added where a token stands on both sides."""

    def __init__(self, base: Path, device: str = "cpu") -> None:
        """Start as a compact reader that nothing was loaded into; the marks are zero.

        Args:
            base: The base encoder's folder.
            device: torch device.
        """
        super().__init__(base, device)
        self.marks = nn.Embedding(3, int(self.encoder.config.hidden_size)).to(device)
        nn.init.zeros_(self.marks.weight)

    def states(self, inputs: Mapping[str, Tensor], windows: Sequence[Window]) -> Tensor:
        """Return the last layer's states; as the base's, but for the marks. Shape `batch tokens width`."""
        marks, _ = pad([marks_of(window) for window in windows])
        embedded = self.encoder.embeddings(
            input_ids=inputs["input_ids"], token_type_ids=inputs["token_type_ids"]
        ) + self.marks(marks.to(self.device))
        hidden = (1 - inputs["attention_mask"][:, None, None, :].to(embedded.dtype)) * _BLOCKED
        states: Tensor = self.encoder.encoder(embedded, attention_mask=hidden).last_hidden_state
        return states


def marks_of(window: Window) -> list[int]:
    """Return per token whether the other side has it, too."""
    first = window.segments.index(1) if 1 in window.segments else len(window.ids)
    claim, text = window.ids[:first], window.ids[first:]
    asked, read = set(claim[1:-1]), set(text)
    return [
        *(IN_TEXT if token in read else ALONE for token in claim),
        *(IN_CLAIM if token in asked else ALONE for token in text),
    ]


def add_claim_weights(
    path: Path, model: ClaimModel, start: CompactModel, rank: int, training: Mapping[str, object]
) -> None:
    """Write a claim network into the file of the compact reader that it came from.

    Args:
        path: Weight file of `start`; what it held of claims is replaced.
        model: The trained claim network.
        start: The compact reader, as the file gives it.
        rank: Of the change of each matrix.
        training: JSON-able settings, kept in the file's notes.
    """
    before, changes = dict(start.named_parameters()), dict[str, Tensor]()
    for name, value in model.named_parameters():
        held = before.get(name)
        change = (value - held if held is not None else value).detach().cpu().float()
        if held is None or change.ndim < 2 or min(change.shape) <= rank:
            if held is None or bool(change.any()):
                changes[f"{PREFIX}whole.{name}"] = change.clone()
        elif bool(change.any()):
            left, sizes, right = torch.linalg.svd(change, full_matrices=False)
            root = sizes[:rank].sqrt()
            for side, thin in (("left", (left[:, :rank] * root).T), ("right", root[:, None] * right[:rank])):
                scale = thin.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
                changes[f"{PREFIX}{side}.{name}"] = torch.round(thin / scale).to(torch.int8).contiguous()
                changes[f"{PREFIX}{side}-scale.{name}"] = scale.squeeze(1)
    with safe_open(path, framework="pt") as file:
        notes = {**json.loads(file.metadata()["notes"]), "claims": dict(training)}
        kept = {name: file.get_tensor(name) for name in file.keys() if not name.startswith(PREFIX)}  # noqa: SIM118
    partial = path.with_suffix(".partial")
    save_file({**kept, **changes}, partial, metadata={"notes": json.dumps(notes)})
    partial.replace(path)


def has_claim_weights(path: Path) -> bool:
    """Return whether a weight file holds a claim network."""
    with safe_open(path, framework="pt") as file:
        return any(name.startswith(PREFIX) for name in file.keys())  # noqa: SIM118 - safe_open is no mapping


def load_claim_weights(path: Path, model: ClaimModel) -> None:
    """Put a weight file's claim network on top of its compact reader, which `load_weights` has put there.

    Args:
        path: The weight file; one that holds none leaves the model as it is.
        model: The model to change.
    """
    with safe_open(path, framework="pt") as file:
        held = {name: file.get_tensor(name) for name in file.keys() if name.startswith(PREFIX)}  # noqa: SIM118
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            whole = held.get(f"{PREFIX}whole.{name}")
            if whole is not None:
                parameter.add_(whole.to(parameter.device))
            if f"{PREFIX}left.{name}" in held:
                left, right = (
                    held[f"{PREFIX}{side}.{name}"].float() * held[f"{PREFIX}{side}-scale.{name}"][:, None]
                    for side in ("left", "right")
                )
                parameter.add_((left.T @ right).to(parameter.device))


def claim_model(path: Path, base: Path, device: str, of_questions: CompactModel) -> ClaimModel | None:
    """Return the claim network of a weight file, None where it holds none.

    Args:
        path: The weight file.
        base: The base encoder's folder.
        device: torch device.
        of_questions: The file's network for questions, whose embeddings it shares: they are the same numbers.

    Returns:
        The network.
    """
    if not has_claim_weights(path):
        return None
    model = ClaimModel(base, device)
    load_weights(path, model)
    load_claim_weights(path, model)
    model.encoder.embeddings = of_questions.encoder.embeddings
    return model
