"""The sentence encoder: text to unit vectors.

Owns tokenising, batching, pooling and normalisation of a sentence-transformers model. A text longer than the model
reads is encoded in windows whose vectors are averaged: nothing is cut. Knows no passages and no index.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from byheart.config import EncoderConfig
from byheart.errors import ConfigError, MissingExtraError
from byheart.interfaces import Floats
from byheart.reports import Progress, no_progress
from byheart.text.models import fingerprint, model_folder
from byheart.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    import torch

DEFAULT_MAX_TOKENS = 256


class SentenceEncoder:
    """A sentence-transformers model as `Encoder`.

    Source: Reimers & Gurevych 2019, Sentence-BERT, section 3 (pooling).
    """

    def __init__(self, config: EncoderConfig) -> None:
        """Find the model's files; the weights are read when first needed.

        Args:
            config: Name, device, batch size and prefixes.
        """
        self.config = config
        self.folder = model_folder(config.name)
        self.tokenizer = load_tokenizer(self.folder)
        self.pooling = _pooling(self.folder)
        self.max_tokens = _max_tokens(self.folder)

    @property
    def name(self) -> str:
        """Name of the model, as in the configuration."""
        return self.config.name

    @cached_property
    def fingerprint(self) -> str:
        """Hash of weights, tokenizer, pooling and prefixes."""
        return fingerprint(self.folder, self.pooling, self.config.query_prefix, self.config.passage_prefix)

    @cached_property
    def width(self) -> int:
        """Length of a vector."""
        return int(json.loads((self.folder / "config.json").read_text())["hidden_size"])

    @cached_property
    def model(self) -> torch.nn.Module:
        """The transformer, in evaluation mode on the configured device."""
        from byheart.text.precision import halve

        model = load_transformer(self.folder, self.config.device)
        if self._is_half:
            halve(model)
        return model

    @cached_property
    def _is_half(self) -> bool:
        from byheart.text.precision import is_half

        return is_half(self.config.precision, self.config.device)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, special tokens included."""
        return [len(encoding.ids) for encoding in self.tokenizer.encode_batch_fast(list(texts))]

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return one unit vector per question. Shape `batch width`."""
        return self._encode([self.config.query_prefix + text for text in texts], no_progress)

    def encode_passages(self, texts: Sequence[str], progress: Progress = no_progress) -> Floats:
        """Return one unit vector per passage. Shape `batch width`."""
        return self._encode([self.config.passage_prefix + text for text in texts], progress)

    def _encode(self, texts: Sequence[str], progress: Progress) -> Floats:
        windows, owners = self._windows(texts)
        vectors = np.zeros((len(windows), self.width), np.float32)
        # Texts of like length share a batch, longest first: little padding, and the peak of memory comes at once.
        order = sorted(range(len(windows)), key=lambda i: (-len(windows[i]), i))
        for first in range(0, len(order), self.config.batch):
            rows = order[first : first + self.config.batch]
            vectors[rows] = self._forward([windows[row] for row in rows])
            progress(min(first + len(rows), len(order)), len(order), "passages encoded")
        return _average(vectors, owners, len(texts))

    def _windows(self, texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
        """Return token windows, special tokens included, and for each the text it belongs to."""
        windows: list[list[int]] = []
        owners: list[int] = []
        for owner, encoding in enumerate(self.tokenizer.encode_batch(list(texts))):
            for window in split_window(encoding.ids, self.max_tokens):
                windows.append(window)
                owners.append(owner)
        return windows, owners

    def _forward(self, windows: Sequence[Sequence[int]]) -> Floats:
        import torch

        from byheart.text.precision import multiplying

        ids, mask = pad(windows)
        with torch.inference_mode():
            device = self.config.device
            with multiplying(self._is_half, device):
                states = self.model(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state.float()
            pooled = states[:, 0] if self.pooling == "cls" else _mean(states, mask.to(device))
            unit: Floats = torch.nn.functional.normalize(pooled, dim=1).cpu().numpy()
        return unit


def split_window(ids: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Return token ids in windows of at most `max_tokens`, each with the first and last special token.

    Args:
        ids: Token ids of one text, special tokens first and last.
        max_tokens: Longest window.

    Returns:
        One window, or several of about equal length.
    """
    if len(ids) <= max_tokens:
        return [list(ids)]
    inner, room = ids[1:-1], max_tokens - 2
    count = -(-len(inner) // room)
    bounds = [round(i * len(inner) / count) for i in range(count + 1)]
    return [[ids[0], *inner[a:b], ids[-1]] for a, b in pairwise(bounds)]


def pad(windows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids padded with 0, and the mask of real tokens. Shapes `batch tokens`."""
    import torch

    longest = max(len(window) for window in windows)
    ids = torch.zeros((len(windows), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = torch.tensor(window)
        mask[row, : len(window)] = 1
    return ids, mask


def load_transformer(folder: Path, device: str) -> torch.nn.Module:
    """Return a transformer in evaluation mode.

    Args:
        folder: The model's folder.
        device: torch device.

    Returns:
        The model, without a head.

    Raises:
        ConfigError: The device is not there.
        MissingExtraError: torch or transformers is not installed.
    """
    try:
        from transformers import AutoModel
        from transformers.utils import logging
    except ImportError as error:
        raise MissingExtraError("encoding needs torch and transformers; run: pip install 'byheart[local]'") from error
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call] # the unused pooler of a sentence encoder is reported as a surprise otherwise
    options = {"add_pooling_layer": False} if _is_bert(folder) else {}
    model = AutoModel.from_pretrained(folder, **options)
    try:
        return model.eval().to(device)  # type: ignore[no-any-return]
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"the device {device!r} cannot be used ({error}); set encoder.device to cpu") from error


def _is_bert(folder: Path) -> bool:
    return str(json.loads((folder / "config.json").read_text()).get("model_type")) == "bert"


def _mean(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    weights = mask[:, :, None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


def _average(vectors: Floats, owners: Sequence[int], n_texts: int) -> Floats:
    """Return the normalised mean of each text's window vectors. Shape `batch width`."""
    if len(vectors) == n_texts:
        return vectors
    sums = np.zeros((n_texts, vectors.shape[1]), np.float32)
    np.add.at(sums, owners, vectors)
    means: Floats = (sums / np.linalg.norm(sums, axis=1, keepdims=True)).astype(np.float32)
    return means


def _pooling(folder: Path) -> str:
    """Return `mean` or `cls`, as the model's folder says; mean where it says nothing."""
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return "mean"
    said = json.loads(path.read_text())
    modes = [key for key, value in said.items() if key.startswith("pooling_mode_") and value is True]
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(modes) != 1 or modes[0] not in known:
        raise ConfigError(f"{folder} pools by {modes or said}; only mean and cls pooling are read")
    return known[modes[0]]


def _max_tokens(folder: Path) -> int:
    path = folder / "sentence_bert_config.json"
    said = json.loads(path.read_text()).get("max_seq_length") if path.is_file() else None
    return int(said or DEFAULT_MAX_TOKENS)
