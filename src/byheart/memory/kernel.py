"""The kernel: the memory's network, which judges whether a fact answers a question.

Owns the split encoder, the keys' projection and the weight file. The lower half runs over a question, or over a fact,
alone; a fact's states after it, compressed, are its value. The upper half runs over [question ; value] together, so
that every word of the question meets every word of the fact. Knows no database and no candidates.
Source: MacAvaney et al. 2020, PreTTR, section 4; Cao et al. 2020, DeFormer, section 3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from byheart.errors import KernelError
from byheart.text.encoder import load_transformer, pad
from byheart.text.precision import halve, multiplying

FORMAT = 1


@dataclass(frozen=True, slots=True)
class KernelShape:
    """Sizes of the network.

    Attributes:
        split: Layers of the lower half.
        value_width: Numbers per token of a value.
        key_width: Numbers of a key.
    """

    split: int = 2
    value_width: int = 192
    key_width: int = 192


@dataclass(frozen=True, slots=True)
class States:
    """Token states of a batch.

    Attributes:
        states: Shape `batch tokens width`.
        mask: 1 for real tokens. Shape `batch tokens`.
    """

    states: Tensor
    mask: Tensor


class Kernel(nn.Module):
    """The base encoder's layers, split, with a narrow waist between the halves and a head that judges."""

    def __init__(self, base: Path, shape: KernelShape, device: str = "cpu") -> None:
        """Start from the base encoder; waist, projection and head mean nothing until trained or loaded.

        Args:
            base: The base encoder's folder.
            shape: Sizes.
            device: torch device.
        """
        super().__init__()
        self.shape, self.device, self.is_half = shape, device, False
        self.encoder = cast(Any, load_transformer(base, device))
        width = int(self.encoder.config.hidden_size)
        self.squeeze = nn.Linear(width, shape.value_width)
        self.stretch = nn.Linear(shape.value_width, width)
        self.side = nn.Embedding(2, width)
        nn.init.zeros_(self.side.weight)
        self.head = nn.Linear(width, 1)
        self.key = nn.Linear(width, shape.key_width, bias=False)
        self.to(device)
        for parameter in self.encoder.embeddings.parameters():
            parameter.requires_grad_(False)

    def halve(self) -> None:
        """Have the layers multiply in bf16 from now on, for inference."""
        halve(self.encoder.encoder)
        self.is_half = True

    def lower(self, ids: Sequence[Sequence[int]], side: int) -> States:
        """Return the lower half's states of questions or of facts.

        Args:
            ids: Token ids, special tokens included.
            side: 0 for questions, 1 for facts.

        Returns:
            States; what a padded token holds means nothing.
        """
        padded, mask = (t.to(self.device) for t in pad(ids))
        states = self.encoder.embeddings(input_ids=padded, token_type_ids=torch.full_like(padded, side))
        return States(self._layers(states, mask, 0, self.shape.split), mask)

    def match(self, questions: States, values: Tensor, value_mask: Tensor) -> Tensor:
        """Return the log-odds that each value's fact answers the question beside it.

        Args:
            questions: Lower states of questions.
            values: Compressed states of facts. Shape `batch tokens value_width`.
            value_mask: 1 for real tokens. Shape `batch tokens`.

        Returns:
            Log-odds. Shape `batch`.
        """
        first = questions.states + self.side.weight[0]
        second = self.stretch(values) + self.side.weight[1]
        mask = torch.cat([questions.mask, value_mask], dim=1)
        states = self._layers(torch.cat([first, second], dim=1), mask, self.shape.split, None)
        odds: Tensor = self.head(states[:, 0].float()).squeeze(-1)
        return odds

    def compress(self, facts: States) -> Tensor:
        """Return the facts' values. Shape `batch tokens value_width`."""
        return cast(Tensor, self.squeeze(facts.states))

    def keys(self, pooled: Tensor) -> Tensor:
        """Return unit keys of the encoder's pooled vectors. Shapes `batch width` to `batch key_width`."""
        return nn.functional.normalize(self.key(pooled), dim=-1)

    def _layers(self, states: Tensor, mask: Tensor, first: int, last: int | None) -> Tensor:
        visible = mask[:, None, None, :] > 0
        with multiplying(self.is_half, self.device):
            for layer in self.encoder.encoder.layer[first:last]:
                states = layer(states, visible)
        return states.float() if self.is_half else states


def save_kernel(
    path: Path, kernel: Kernel, base: Kernel, notes: Mapping[str, object], extra: Mapping[str, Tensor]
) -> None:
    """Write a kernel as 8-bit differences to its base encoder.

    Args:
        path: File to write.
        kernel: The trained kernel.
        base: An untrained one over the same encoder.
        notes: JSON-able facts kept beside the weights.
        extra: Further tensors, such as codebooks.
    """
    before = dict(base.encoder.named_parameters())
    tensors: dict[str, Tensor] = {name: value.contiguous() for name, value in extra.items()}
    for name, value in kernel.named_parameters():
        inner = name.removeprefix("encoder.")
        if inner == name:
            tensors[name] = value.detach().cpu().half().contiguous()
        elif not inner.startswith("embeddings"):
            change = (value - before[inner]).detach().cpu()
            if not bool(change.any()):
                continue  # a frozen layer is the base's
            tensors |= _rounded(name, change)
    held = {"format": FORMAT, "shape": asdict(kernel.shape), **notes}
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={"notes": json.dumps(held)})
    partial.replace(path)


def load_kernel(path: Path, base: Path, device: str = "cpu") -> tuple[Kernel, dict[str, Any], dict[str, Tensor]]:
    """Return the kernel of a weight file, in evaluation mode, its notes, and its further tensors.

    Args:
        path: File that `save_kernel` wrote.
        base: The base encoder's folder.
        device: torch device.

    Returns:
        Kernel, notes, further tensors.

    Raises:
        KernelError: The file is missing, damaged or of another format.
    """
    if not path.is_file():
        raise KernelError(f"the memory's weights are missing at {path}; run: byheart train kernel --data DIR")
    try:
        with safe_open(path, framework="pt") as file:
            notes: dict[str, Any] = json.loads((file.metadata() or {}).get("notes", "{}"))
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - safe_open is no mapping
    except Exception as error:  # safetensors raises its own, untyped
        raise KernelError(f"{path} is damaged ({error}); install byheart anew, or train the kernel anew") from error
    if notes.get("format") != FORMAT:
        raise KernelError(f"{path.name} has format {notes.get('format')!r}, {FORMAT} is read; train the kernel anew")
    kernel = Kernel(base, KernelShape(**notes["shape"]), device)
    with torch.no_grad():
        for name, parameter in kernel.named_parameters():
            if name in held:
                parameter.copy_(held.pop(name))
            elif f"change.{name}" in held:
                change, scale = held.pop(f"change.{name}").float(), held.pop(f"scale.{name}", None)
                parameter.add_(change if scale is None else change * scale[:, None])
    return kernel.eval(), notes, held


def _rounded(name: str, change: Tensor) -> dict[str, Tensor]:
    if change.ndim != 2:
        return {f"change.{name}": change.clone()}
    scale = change.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return {f"change.{name}": torch.round(change / scale).to(torch.int8), f"scale.{name}": scale.squeeze(1)}
