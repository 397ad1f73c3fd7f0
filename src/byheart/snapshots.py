"""Snapshots of a knowledge base: whole copies of one epoch, and taking one over.

Owns which snapshot fits which knowledge base. Part of the composition root; `knowledge` is its only caller.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from byheart import imprint
from byheart.config import Config
from byheart.errors import ConfigError, EncoderMismatchError
from byheart.retrieval.analyzer import ANALYZER_VERSION
from byheart.store.database import FILE, Database
from byheart.store.settings import CONFIG_FILE, WEIGHTS_FOLDER, claim, read_config


def write_snapshot(database: Database, config: Config, target: Path) -> Path:
    """Write a whole copy of the current epoch, with its settings.

    Args:
        database: What is copied.
        config: Its settings.
        target: Folder to create.

    Returns:
        The folder.

    Raises:
        AlreadyExistsError: The folder exists and is not empty.
        BusyError: There is no room for it.
    """
    claim(target, config)
    try:
        copy_weights(database.path.parent, target)
        database.copy_to(target / FILE)
        copy_weights(database.path.parent, target)  # a kernel adapted meanwhile
    except BaseException:
        (target / CONFIG_FILE).unlink(missing_ok=True)  # alone it would keep the next try out
        raise
    return target


def copy_weights(source: Path, target: Path) -> None:
    """Copy the weight files of one knowledge base to another; they are named by their hash, and never change.

    Args:
        source: Folder of the one.
        target: Folder of the other.
    """
    for path in sorted((source / WEIGHTS_FOLDER).glob("*.safetensors")):
        place = target / WEIGHTS_FOLDER / path.name
        if not place.is_file():
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, place.with_suffix(".partial"))
            place.with_suffix(".partial").replace(place)


def check_snapshot(source: Path, state: Mapping[str, object], config: Config, folder: Path) -> None:
    """Refuse a snapshot whose content is not comparable with a knowledge base's.

    Args:
        source: Folder of the snapshot.
        state: What the knowledge base was built with.
        config: Its settings.
        folder: Its folder, for messages.

    Raises:
        NotAKnowledgeBaseError: `source` holds none.
        EncoderMismatchError: It was built with another encoder.
        ConfigError: Its passages were indexed with other BM25 constants, or it keeps the texts of facts, and the
            knowledge base does not.
    """
    theirs = read_config(source)
    if theirs.ledger.text and not config.ledger.text:
        raise ConfigError(
            f"{source} keeps the texts of facts (ledger.text = true), {folder} keeps none; "
            "open the snapshot in its own folder instead"
        )
    database = Database(source / FILE)
    try:
        held = database.state(ANALYZER_VERSION)
        if held["encoder_fingerprint"] != state["encoder_fingerprint"]:
            raise EncoderMismatchError(
                f"{source} was built with {held['encoder']}, {folder} with {state['encoder']}; "
                "open the snapshot in its own folder instead"
            )
        with database.read() as connection:
            constants = imprint.constants(connection)
    finally:
        database.close()
    for name in imprint.CONSTANTS:
        was, now = (constants or {}).get(name, getattr(theirs.retrieval, name)), getattr(config.retrieval, name)
        if was != now:
            raise ConfigError(
                f"{source} was indexed with retrieval.{name} = {was:g}, {folder} is set to {now:g}; "
                "open the snapshot in its own folder instead"
            )
