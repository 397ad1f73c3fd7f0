"""`config.toml` in a knowledge base's folder.

Owns its name, how it is written (whole or not at all), and which folders can take a knowledge base. What a setting
means is `config`'s business.
"""

from __future__ import annotations

from pathlib import Path

from byheart import config as settings
from byheart.config import Config
from byheart.errors import AlreadyExistsError, ConfigError
from byheart.store.database import FILE

CONFIG_FILE = "config.toml"
WEIGHTS_FOLDER = "weights"
PARTIAL = FILE.replace(".sqlite", ".partial")  # what a database is called until it is whole


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


def claim(folder: Path, config: Config) -> None:
    """Take a folder for a new knowledge base, and write its settings there.

    Args:
        folder: Folder to create; it may exist if it is empty, or holds what a killed init or snapshot has left.
        config: The settings.

    Raises:
        AlreadyExistsError: The folder holds a knowledge base, or anything else.
    """
    if (folder / FILE).exists():
        raise AlreadyExistsError(f"{folder} holds a knowledge base already; open it, or pass another folder")
    foreign = _foreign(folder)
    if foreign:
        raise AlreadyExistsError(f"{folder} is not empty, it holds other files ({foreign}); pass a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PARTIAL).touch()  # before the settings: settings that stand alone are somebody else's
    write_config(folder, config)


def _foreign(folder: Path) -> str:
    """Return the name of something that no killed init or snapshot of ours has left; empty if there is none."""
    if not folder.exists():
        return ""
    if not folder.is_dir():
        return folder.name
    names = sorted(path.name for path in folder.iterdir())
    ours = {CONFIG_FILE, f"{CONFIG_FILE}.partial", WEIGHTS_FOLDER} if PARTIAL in names else set()
    return next((name for name in names if name not in ours and not name.startswith(PARTIAL)), "")


def write_config(folder: Path, config: Config) -> None:
    """Write the settings; a kill in between leaves the old file.

    Args:
        folder: The knowledge base's folder.
        config: The settings.
    """
    partial = folder / f"{CONFIG_FILE}.partial"
    partial.write_text(settings.dumps(config), "utf-8")
    partial.replace(folder / CONFIG_FILE)
