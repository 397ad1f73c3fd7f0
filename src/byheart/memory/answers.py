"""The answer codec: answers into value vectors, and value vectors back into exactly the same answers.

Owns the vocabulary's use, the limit on length, rounding, blocks of one size, and the correction of a value that does
not read back. Every Unicode string has its own token sequence, so two answers that differ in one character stay apart.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from byheart.errors import FactError, KernelError, MissingExtraError
from byheart.interfaces import Floats
from byheart.memory.codes import Codes

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from byheart.memory.answer_model import AnswerModel

MAX_TOKENS = 64
BLOCK = 16  # vectors that the network is given at once, always: the same sums alone and in a batch
FLOOR = -40.0  # log-probability in nats, per token, of what the decoder rules out
REFINE_STEPS = 200
REFINE_RATE = 0.1  # of a vector's root mean square
MISSING = "the weights that spell answers are missing at {}; run: byheart train answers --data DIR"


class AnswerCodec:
    """The answers' network with strings and codes in and out."""

    max_tokens = MAX_TOKENS

    def __init__(self, weights: Path | None = None, device: str = "cpu") -> None:
        """Note where the weights are; they are loaded when first needed.

        Args:
            weights: Weight file, the shipped one by default.
            device: torch device.
        """
        self.weights, self.device = weights or shipped_answers(), device

    @cached_property
    def _loaded(self) -> tuple[AnswerModel, Tokenizer, dict[str, Any]]:
        try:
            from byheart.memory.answer_model import load_answers
        except ImportError as error:
            raise MissingExtraError(
                "spelling answers needs the packages torch and tokenizers; run: pip install 'byheart[local]'"
            ) from error
        return load_answers(self.weights, self.device)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weight file: two codecs with one fingerprint read each other's values."""
        if not self.weights.is_file():
            raise KernelError(MISSING.format(self.weights))
        return hashlib.sha256(self.weights.read_bytes()).hexdigest()[:16]

    @property
    def model(self) -> AnswerModel:
        """The network."""
        return self._loaded[0]

    @property
    def width(self) -> int:
        """Numbers per vector."""
        return self.model.shape.width

    def count_tokens(self, answers: Sequence[str]) -> list[int]:
        """Return how many tokens each answer has, of which `max_tokens` fit into a slot."""
        return [len(ids) for ids in self._ids(answers)]

    def write(self, answers: Sequence[str]) -> list[Codes]:
        """Return answers as codes, in one pass.

        Args:
            answers: Any strings that are not empty.

        Returns:
            One value per answer: a vector per group of tokens.

        Raises:
            FactError: An answer is empty, longer than a slot holds, or no text.
        """
        import torch

        groups = [self._groups(answer, ids) for answer, ids in zip(answers, self._ids(answers), strict=True)]
        if not groups:
            return []
        with torch.inference_mode():
            rows = torch.tensor([row for of_one in groups for row in of_one], device=self.device)
            whole = Codes.of(_in_blocks(self.model.write, rows).cpu().numpy())
        bounds = np.cumsum([0, *(len(of_one) for of_one in groups)])
        return [Codes(whole.codes[a:b], whole.scales[a:b]) for a, b in pairwise(bounds)]

    def read(self, codes: Sequence[Codes]) -> list[str]:
        """Return the answers of codes.

        Args:
            codes: Values that `write` or `refine` made, or damaged ones.

        Returns:
            One string per value; bytes that are no UTF-8 are replaced by U+FFFD.

        Raises:
            KernelError: The values were written with another network.
        """
        import torch

        if not codes:
            return []
        vectors = torch.from_numpy(np.concatenate([self._vectors(code) for code in codes])).to(self.device)
        with torch.inference_mode():
            found = _in_blocks(lambda block: self.model.logits(block).argmax(-1), vectors).cpu().numpy()
        bounds = np.cumsum([0, *(len(code.scales) for code in codes)])
        padding, tokenizer = self.model.shape.padding, self._loaded[1]
        rows = [found[a:b].ravel() for a, b in pairwise(bounds)]
        answers: list[str] = tokenizer.decode_batch([ids[ids != padding].tolist() for ids in rows])
        return answers

    def refine(self, code: Codes, answer: str) -> Codes | None:
        """Return a value corrected by gradient until it reads as the answer; the network stays as it is.

        Args:
            code: The value to begin with; cut, or filled up with zeros, where the answer has another length.
            answer: What it shall read as.

        Returns:
            A value that reads exactly as the answer, the given one where it does; None if 200 steps do not get there.

        Raises:
            FactError: The answer is empty, longer than a slot holds, or no text.
            KernelError: The value was written with another network.
        """
        import torch

        groups = self._groups(answer, self._ids([answer])[0])
        if self.read([code]) == [answer]:
            return code
        with torch.inference_mode(False), torch.enable_grad():
            return self._refined(code, groups, answer)

    def log_probabilities(self, code: Codes, answers: Sequence[str]) -> Floats:
        """Return how probable answers are under the decoder, in nats; never below `FLOOR` per token.

        Args:
            code: A value.
            answers: Any strings; one that is shorter than the value goes on with padding; each token beyond the value
                has `FLOOR`.

        Returns:
            Natural logarithms. Shape `answers`.

        Raises:
            FactError: An answer is no text.
            KernelError: The value was written with another network.
        """
        import torch

        with torch.inference_mode():
            vectors = torch.from_numpy(self._vectors(code)).to(self.device)
            logits = _in_blocks(self.model.logits, vectors).flatten(0, 1)
            table = torch.log_softmax(logits, dim=-1).clamp(min=FLOOR).cpu().numpy()
        places = np.arange(len(table))
        found = []
        for ids in self._ids(answers):
            padded = np.full(len(table), self.model.shape.padding)
            padded[: len(ids)] = ids[: len(table)]
            found.append(table[places, padded].sum() + FLOOR * max(len(ids) - len(table), 0))
        return np.array(found, np.float32)

    def _refined(self, code: Codes, groups: Sequence[Sequence[int]], answer: str) -> Codes | None:
        import torch

        wanted = torch.tensor(groups, device=self.device)
        value = torch.from_numpy(_fitted(self._vectors(code), len(groups))).to(self.device).requires_grad_(True)
        optimizer = torch.optim.Adam([value], lr=REFINE_RATE)
        for _ in range(REFINE_STEPS):
            logits = self.model.logits(value)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
            (value.grad,) = torch.autograd.grad(loss, [value])  # the network gathers no gradients
            optimizer.step()
            better = Codes.of(value.detach().cpu().numpy())
            if self.read([better]) == [answer]:
                return better
        return None

    def _ids(self, answers: Sequence[str]) -> list[list[int]]:
        for answer in answers:
            if any("\ud800" <= character <= "\udfff" for character in answer):
                raise FactError(f"an answer holds half a character (a lone surrogate): {answer[:80]!r}; decode it anew")
        return [encoding.ids for encoding in self._loaded[1].encode_batch(list(answers))]

    def _groups(self, answer: str, ids: Sequence[int]) -> list[list[int]]:
        """Return an answer's tokens in padded groups."""
        if not ids:
            raise FactError("an answer is empty; pass at least one character")
        if len(ids) > MAX_TOKENS:
            raise FactError(
                f"an answer has {len(ids)} tokens, and a slot holds {MAX_TOKENS}: {answer[:40]!r}…; "
                "shorten the answer, or leave it to retrieval"
            )
        shape = self.model.shape
        n_groups = math.ceil(len(ids) / shape.group)
        padded = [*ids, *[shape.padding] * (n_groups * shape.group - len(ids))]
        return [padded[first : first + shape.group] for first in range(0, len(padded), shape.group)]

    def _vectors(self, code: Codes) -> Floats:
        if code.codes.shape[1] != self.width:
            raise KernelError(
                f"a slot's answer has {code.codes.shape[1]} numbers per vector, {self.weights.name} has {self.width}; "
                "learn the facts anew, or use the weights they were written with"
            )
        with np.errstate(invalid="ignore", over="ignore"):  # scales of a damaged value may be no numbers
            return np.nan_to_num(code.vectors, nan=0.0, posinf=0.0, neginf=0.0)


def shipped_answers() -> Path:
    """Return the weight file that the package ships, where `byheart train answers` writes."""
    return Path(str(resources.files("byheart.memory") / "weights" / "answers.safetensors"))


def _in_blocks(function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Return what a function gives for rows, called with blocks of one size."""
    import torch

    padded = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % BLOCK))
    if not len(padded):
        return function(rows)
    return torch.cat([function(block) for block in padded.view(-1, BLOCK, padded.shape[1])])[: len(rows)]


def _fitted(vectors: npt.NDArray[np.float32], n_vectors: int) -> Floats:
    """Return as many vectors as wanted, zeros where there were none; those that are not zero have mean square 1."""
    fitted = np.zeros((n_vectors, vectors.shape[1]), np.float32)
    fitted[: len(vectors)] = vectors[:n_vectors]
    size = np.sqrt(np.square(fitted, dtype=np.float64).mean(axis=1, keepdims=True))
    scaled: Floats = (fitted / np.where(size > 0, size, 1)).astype(np.float32)
    return scaled
