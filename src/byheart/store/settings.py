"""`config.toml` in a knowledge base's folder.

Owns its name, how it is written (whole or not at all), and which folders can take a knowledge base. What a setting
means is `config`'s business.
"""

from __future__ import annotations

from pathlib import Path

from byheart import config as settings
from byheart.config import Config
from byheart.errors import ConfigError
from byheart.store.database import FILE

CONFIG_FILE = "config.toml"


def read_config(folder: Path) -> Config:
    """Return the settings of a knowledge base, the defaults where the file is missing.

    Args:
        folder: The knowledge base's folder.

    Returns:
        The checked settings.

    Raises:
        ConfigError: The file is no TOML in UTF-8, or a setting is unknown or out of range.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        return Config()
    try:
        return settings.loads(path.read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def is_free(folder: Path) -> bool:
    """Return whether a knowledge base can go there: nothing is, or what a killed init or snapshot has left."""
    left = (CONFIG_FILE, FILE.replace(".sqlite", ".partial"))
    return not folder.exists() or (folder.is_dir() and all(p.name.startswith(left) for p in folder.iterdir()))


def write_config(folder: Path, config: Config) -> None:
    """Write the settings; a kill in between leaves the old file.

    Args:
        folder: The knowledge base's folder.
        config: The settings.
    """
    partial = folder / f"{CONFIG_FILE}.partial"
    partial.write_text(settings.dumps(config), "utf-8")
    partial.replace(folder / CONFIG_FILE)
