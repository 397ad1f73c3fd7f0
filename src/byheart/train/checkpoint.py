"""Long training that survives being stopped: vectors kept by content, state kept by step.

Owns two kinds of files in a work folder, and the lock in a knowledge base. Knows nothing of what is trained.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from byheart.errors import EvaluationError, TrainingError
from byheart.interfaces import Encoder, Floats

LOCK = "training.lock"


class VectorCache:
    """Encodes each list of texts once, and keeps the vectors under a hash of texts and encoder."""

    def __init__(self, encoder: Encoder, folder: Path) -> None:
        """Keep the encoder and make the folder.

        Args:
            encoder: What encodes.
            folder: Where the files are kept.
        """
        self.encoder = encoder
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, texts: Sequence[str]) -> Path:
        """Return where the vectors of these texts are kept."""
        digest = hashlib.sha256(self.encoder.fingerprint.encode())
        for text in texts:
            digest.update(text.encode("utf-8") + b"\x00")
        return self.folder / f"{name}.{digest.hexdigest()[:16]}.npy"

    def __call__(self, name: str, texts: Sequence[str]) -> Floats:
        """Return the vectors of the texts, encoded as passages. Shape `batch width`."""
        path = self.path(name, texts)
        if not path.is_file():
            partial = path.with_suffix(".partial.npy")
            np.save(partial, self.encoder.encode_passages(texts))
            partial.replace(path)
        vectors: Floats = np.load(path)
        return vectors


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the training of a knowledge base; a process that is killed lets go.

    Args:
        folder: The knowledge base.

    Yields:
        Nothing; no other process trains it meanwhile.

    Raises:
        TrainingError: Another process is training it.
    """
    with ExitStack() as held:
        try:
            held.enter_context(FileLock(folder / LOCK, timeout=0))
        except Timeout:
            raise TrainingError(
                f"{folder} is being trained already; wait until that is done, or stop it: what it reached is kept"
            ) from None
        yield


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write a training state; a kill in between leaves the last one whole. TrainingError where there is no room."""
    partial = path.with_suffix(f".partial-{os.getpid()}")  # another process may be at it, too
    try:
        torch.save(state, partial)
        partial.replace(path)
    except (OSError, RuntimeError) as error:
        partial.unlink(missing_ok=True)
        raise TrainingError(
            f"the state {path} cannot be written ({type(error).__name__}); free space or rights, and "
            "train again: it goes on from the last state"
        ) from error


def load_state(path: Path) -> dict[str, Any] | None:
    """Return the training state written last, None when there is none; TrainingError where it is damaged."""
    if not path.is_file():
        return None
    try:
        state = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, LookupError, ValueError, pickle.UnpicklingError) as error:
        # What torch advises to do about it is not repeated: a file that is no state may hold code.
        raise TrainingError(f"the state {path} cannot be read; delete it, and training starts anew") from error
    if not isinstance(state, dict):
        raise TrainingError(f"the state {path} holds no state; delete it, and training starts anew")
    return state


def state_of_run(path: Path, run: Mapping[str, object]) -> dict[str, Any] | None:
    """Return the state of a run that was stopped, None when there is none.

    Args:
        path: The state's file.
        run: What the run depends on, kept in the state under the same names.

    Returns:
        The state.

    Raises:
        EvaluationError: The state is of another run.
    """
    state = load_state(path)
    if state is not None and any(state.get(name) != value for name, value in run.items()):
        raise EvaluationError(
            f"{path.parent} holds a run with other settings or data ({state.get('settings')}); use these, or another "
            "work folder"
        )
    return state
