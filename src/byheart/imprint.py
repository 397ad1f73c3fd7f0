"""What the content of a knowledge base was made with: BM25's constants, and a probe of the encoder.

Owns their rows in the table `parameters`: written with the first content, checked ever after. A setting edited by hand,
or an encoder that changed under the same name, would make new scores incomparable with stored ones without a word.
Part of the composition root.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from byheart.config import RetrievalConfig
from byheart.errors import ConfigError, EncoderMismatchError, FormatError
from byheart.interfaces import Encoder, Floats

CONSTANTS = ("k1", "b", "average_terms")
PROBE = "The keeper of the lighthouse counts 212 steps, 7 lamps and 1 bell every evening."
LEAST_COSINE = 0.999  # between machines and thread counts the rest is about 1e-6


def note(connection: sqlite3.Connection, config: RetrievalConfig, encoder: Encoder, folder: Path) -> None:
    """Put down, inside the transaction that writes passages and before it does, what they are made with.

    Args:
        connection: In a write transaction.
        config: BM25's constants of the passages.
        encoder: Encoder of the passages.
        folder: The knowledge base, for messages.

    Raises:
        ConfigError: There are passages already, made with other constants.
    """
    check_constants(connection, config, folder)
    if not _any(connection, "passages") or constants(connection) is None:
        _put(connection, "bm25", json.dumps({name: getattr(config, name) for name in CONSTANTS}))
    note_probe(connection, encoder)


def note_probe(connection: sqlite3.Connection, encoder: Encoder) -> None:
    """Put the encoder's probe down inside a write transaction, unless what is stored already has one."""
    if probe(connection) is None:
        vector = encoder.encode_passages([PROBE])[0].astype("<f4")
        _put(connection, "encoder_probe", base64.b64encode(vector.tobytes()).decode("ascii"))


def constants(connection: sqlite3.Connection) -> dict[str, float] | None:
    """Return the constants that the passages were indexed with; None where that was never put down, or there are none.

    Args:
        connection: The knowledge base's connection.

    Returns:
        Values by name.

    Raises:
        FormatError: The row is damaged.
    """
    row = _get(connection, "bm25") if _any(connection, "passages") else None
    try:
        return None if row is None else {name: float(json.loads(row)[name]) for name in CONSTANTS}
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged("bm25", row) from error


def check_constants(connection: sqlite3.Connection, config: RetrievalConfig, folder: Path) -> None:
    """Refuse settings that the stored passages were not made with.

    Args:
        connection: The knowledge base's connection.
        config: The settings to check.
        folder: The knowledge base, for messages.

    Raises:
        ConfigError: A constant differs.
        FormatError: The row is damaged.
    """
    for name, value in (constants(connection) or {}).items():
        given = getattr(config, name)
        if given != value:
            raise ConfigError(
                f"retrieval.{name} is set to {given:g}, but the passages in {folder} were indexed with {value:g}; set "
                f"it back in config.toml, or build a new one: byheart init FOLDER --set retrieval.{name}={given:g}"
            )


def probe(connection: sqlite3.Connection) -> Floats | None:
    """Return the vector that the encoder once gave the probe; None where nothing is stored that depends on it.

    Args:
        connection: The knowledge base's connection.

    Returns:
        The vector. Shape `width`.

    Raises:
        FormatError: The row is damaged.
    """
    row = _get(connection, "encoder_probe") if _any(connection, "passages") or _any(connection, "slots") else None
    try:
        return None if row is None else np.frombuffer(base64.b64decode(row, validate=True), "<f4").astype(np.float32)
    except ValueError as error:
        raise _damaged("encoder_probe", row) from error


def matching(encoder: Encoder, state: Mapping[str, object], folder: Path) -> Encoder:
    """Return an encoder if it is the one that a knowledge base was built with.

    Args:
        encoder: What it shall be read with.
        state: What it was built with, as the database says.
        folder: The knowledge base, for the error.

    Returns:
        The encoder itself.

    Raises:
        EncoderMismatchError: It is another one.
    """
    if encoder.fingerprint != state["encoder_fingerprint"]:
        raise EncoderMismatchError(
            f"{folder} was built with {state['encoder']} ({state['encoder_fingerprint']}), "
            f"now it is given {encoder.name} ({encoder.fingerprint}); set it back, or build a new one"
        )
    return encoder


def check_encoder(connection: sqlite3.Connection, encoder: Encoder, folder: Path) -> None:
    """Raise EncoderMismatchError if the encoder does not give what it gave when the knowledge base was filled."""
    stored = probe(connection)
    if stored is not None:
        check_probe(stored, encoder, folder)


def check_probe(stored: Floats, encoder: Encoder, folder: Path) -> None:
    """Refuse an encoder that no longer gives what it gave.

    Args:
        stored: The vector it gave. Shape `width`.
        encoder: The encoder now.
        folder: The knowledge base, for messages.

    Raises:
        EncoderMismatchError: The vectors differ by more than rounding.
    """
    now = encoder.encode_passages([PROBE])[0]
    cosine = float(now @ stored) if now.shape == stored.shape else 0.0
    if not cosine >= LEAST_COSINE:  # NaN, too, is a mismatch
        raise EncoderMismatchError(
            f"the encoder {encoder.name} no longer gives the vectors that {folder} was built with: cosine {cosine:.3f} "
            f"for one and the same sentence, wanted {LEAST_COSINE} or more. A library under it has changed, torch or "
            "transformers; install the release it was built with, or build a new knowledge base from the documents"
        )


def _any(connection: sqlite3.Connection, table: str) -> bool:
    return bool(connection.execute(f"SELECT EXISTS (SELECT 1 FROM {table})").fetchone()[0])


def _get(connection: sqlite3.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM parameters WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def _put(connection: sqlite3.Connection, name: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO parameters VALUES (?, ?)", (name, value))


def _damaged(name: str, value: str | None) -> FormatError:
    return FormatError(f"the parameter {name} is damaged ({value!r:.60}); put a snapshot's folder in its place")
