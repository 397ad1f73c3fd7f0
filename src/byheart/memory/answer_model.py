"""The answers' network: groups of tokens into value vectors, and value vectors back into tokens.

Owns the forward passes and the weight file, which holds the vocabulary too. Writer and decoder share all weights: a
group is its tokens' embeddings side by side, mixed; what is decoded is unmixed and compared with all embeddings.
Trained under noise, the embeddings are a learned error-correcting code. Knows no text and no rounding.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from byheart.errors import KernelError

FORMAT = 1
START_SHARPNESS = 10.0
RETRAIN = "byheart train answers --data DIR"


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """Sizes of the network.

    Attributes:
        vocabulary: Tokens, padding included, which is the last one.
        group: Tokens in one vector.
        width: Numbers of a vector; a multiple of `group`.
    """

    vocabulary: int = 4096
    group: int = 4
    width: int = 64

    @property
    def padding(self) -> int:
        """The token that fills up an answer's last group."""
        return self.vocabulary - 1


class AnswerModel(nn.Module):
    """Embeddings and one mixing matrix, used in both directions."""

    def __init__(self, shape: AnswerShape) -> None:
        """Start from random embeddings and a random rotation.

        Args:
            shape: Sizes.
        """
        super().__init__()
        self.shape = shape
        self.embedding = nn.Parameter(torch.randn(shape.vocabulary, shape.width // shape.group))
        # Mixing spreads each token over the whole vector, so that one damaged number costs every token a little.
        self.mix = nn.Parameter(nn.init.orthogonal_(torch.empty(shape.width, shape.width)))
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))
        self.sharpness = nn.Parameter(torch.tensor(math.log(START_SHARPNESS)))

    def write(self, groups: Tensor) -> Tensor:
        """Return vectors whose mean square is 1. Shapes `batch group` to `batch width`."""
        vectors = self._directions()[groups].flatten(1) @ self.mix
        scaled: Tensor = vectors / vectors.square().mean(dim=1, keepdim=True).sqrt()
        return scaled

    def logits(self, vectors: Tensor) -> Tensor:
        """Return the tokens' logits. Shapes `batch width` to `batch group vocabulary`."""
        states = (vectors @ self.mix.T).reshape(len(vectors), self.shape.group, self.embedding.shape[1])
        logits: Tensor = self.sharpness.exp() * states @ self._directions().T + self.bias
        return logits

    def _directions(self) -> Tensor:
        return nn.functional.normalize(self.embedding, dim=1)


def save_answers(path: Path, model: AnswerModel, tokenizer: Tokenizer, notes: Mapping[str, object]) -> None:
    """Write network and vocabulary to one file.

    Args:
        path: File to write.
        model: The network.
        tokenizer: The vocabulary.
        notes: JSON-able facts kept beside the weights.
    """
    held = {"format": FORMAT, "shape": asdict(model.shape), **notes, "vocabulary": tokenizer.to_str()}
    tensors = {name: value.detach().cpu().half().contiguous() for name, value in model.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    # One key: safetensors writes several in random order, and equal weights would have unequal fingerprints.
    save_file(tensors, partial, metadata={"notes": json.dumps(held)})
    partial.replace(path)


def load_answers(path: Path, device: str = "cpu") -> tuple[AnswerModel, Tokenizer, dict[str, Any]]:
    """Return the network of a weight file, in evaluation mode, its vocabulary and its notes.

    Args:
        path: File that `save_answers` wrote.
        device: torch device.

    Returns:
        Network, vocabulary, notes.

    Raises:
        KernelError: The file is missing, damaged or of another format.
    """
    if not path.is_file():
        raise KernelError(f"the weights that spell answers are missing at {path}; run: {RETRAIN}")
    try:
        with torch.inference_mode(False), safe_open(path, framework="pt") as file:  # else no gradient goes through it
            notes: dict[str, Any] = json.loads((file.metadata() or {}).get("notes", "{}"))
            if notes.get("format") == FORMAT:
                model = AnswerModel(AnswerShape(**notes["shape"]))
                model.load_state_dict({name: file.get_tensor(name).float() for name in file.keys()})  # noqa: SIM118
                return model.to(device).eval(), Tokenizer.from_str(notes.pop("vocabulary")), notes
    except Exception as error:  # safetensors and tokenizers raise their own, untyped
        raise KernelError(f"{path} is damaged ({error}); install byheart anew, or run: {RETRAIN}") from error
    raise KernelError(f"{path.name} has format {notes.get('format')!r}, {FORMAT} is read; run: {RETRAIN}")
