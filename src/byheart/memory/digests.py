"""Keyed digests of questions and answers: they tell facts apart where texts are not kept.

Owns the key's row in the table `parameters`: made with the first fact, kept ever after. Two knowledge bases digest one
text differently, so that no table of hashed answers fits; but the key lies in the same file as the digests, and whoever
has the file can check a guess.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import unicodedata
from dataclasses import dataclass

from byheart.errors import FormatError
from byheart.text.question_keys import question_key

KEY_BYTES = DIGEST_BYTES = 32
_NAME = "ledger_key"


@dataclass(frozen=True, slots=True)
class Digests:
    """BLAKE2b under one knowledge base's key.

    Attributes:
        key: 32 bytes; empty as long as there is no fact to compare with.
    """

    key: bytes

    def question(self, text: str) -> bytes:
        """Return the digest of a question; what `question_key` ignores changes nothing."""
        return self._digest(question_key(text), b"question")

    def answer(self, text: str) -> bytes:
        """Return the digest of an answer, NFC and stripped; case counts."""
        return self._digest(unicodedata.normalize("NFC", text).strip(), b"answer")

    def _digest(self, text: str, person: bytes) -> bytes:
        content = text.encode()
        return hashlib.blake2b(content, key=self.key, person=person, digest_size=DIGEST_BYTES).digest()


def read_digests(connection: sqlite3.Connection) -> Digests:
    """Return the digests of a knowledge base; of no use but for comparing where it holds no fact.

    Args:
        connection: Its connection.

    Returns:
        Digests under its key, under none where no fact was ever written.

    Raises:
        FormatError: The key is damaged, or gone while facts are there.
    """
    row = connection.execute("SELECT value FROM parameters WHERE name = ?", (_NAME,)).fetchone()
    if row is None:
        if connection.execute("SELECT EXISTS (SELECT 1 FROM facts)").fetchone()[0]:
            raise FormatError(
                f"the row {_NAME} of the table parameters is gone, and there are facts; restore a snapshot"
            )
        return Digests(b"")
    try:
        key = bytes.fromhex(row[0])
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise FormatError(f"the row {_NAME} of the table parameters is no key; restore a snapshot")
    return Digests(key)


def ensure_digests(connection: sqlite3.Connection) -> Digests:
    """Return the digests of a knowledge base that a fact is about to be written to; its key is made if it has none."""
    digests = read_digests(connection)
    if digests.key:
        return digests
    key = secrets.token_bytes(KEY_BYTES)
    connection.execute("INSERT INTO parameters (name, value) VALUES (?, ?)", (_NAME, key.hex()))
    return Digests(key)
