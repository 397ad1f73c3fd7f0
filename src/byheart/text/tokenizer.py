"""Tokenizers: text to token numbers with character offsets.

Owns loading. Cuts nothing: a caller that has too many tokens decides what to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from byheart.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return a model's tokenizer, with neither truncation nor padding.

    Args:
        folder: The model's folder, with `tokenizer.json`.

    Returns:
        The tokenizer.

    Raises:
        ConfigError: The folder has no `tokenizer.json`.
        MissingExtraError: The package `tokenizers` is not installed.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError("tokenizing needs the package tokenizers; run: pip install 'byheart[local]'") from error
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ConfigError(f"{folder} holds no tokenizer.json; pass the folder of a model with a fast tokenizer")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
