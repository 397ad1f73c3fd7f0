"""A log of finished questions, so that a killed run continues where it stopped.

Owns one JSONL file: a first line that says what the outputs belong to, then one line per question. Knows no suite and
no system; an output is whatever JSON object the caller gives.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from byheart.errors import EvaluationError

log = logging.getLogger(__name__)

Output = dict[str, Any]


def fingerprint(settings: Mapping[str, object]) -> str:
    """Return a hash of all that outputs depend on: suite, system, settings, epoch, code.

    Args:
        settings: Names and values, of types that JSON knows; their order does not matter.

    Returns:
        64 hexadecimal digits.
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


class ResultLog:
    """Outputs by question id, on disk as soon as they are known."""

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        """Read what was finished under the same settings, and open the file for more.

        Args:
            path: JSONL file; it is created if need be. Begun under other settings, it starts anew, with a notice in
                the log that names what differs.
            settings: All that outputs depend on.
        """
        self.path = path
        self.done: dict[str, Output] = {}
        self.notice = ""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._read(settings)
        is_new = not path.exists()
        self._file: TextIO = path.open("a", encoding="utf-8")
        if is_new:
            self._write({"fingerprint": fingerprint(settings), "settings": dict(settings)})

    def __enter__(self) -> ResultLog:
        """Return the log itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; it stays, for a later run to continue."""
        self.close()

    def add(self, outputs: Mapping[str, Output]) -> None:
        """Write the outputs of newly finished questions, and see to it that they reach the disk.

        Args:
            outputs: Output by question id.

        Raises:
            EvaluationError: A question was finished before, or an output is no JSON (holds NaN, say).
        """
        twice = [key for key in outputs if key in self.done]
        if twice:
            raise EvaluationError(f"question {twice[0]!r} is finished already; question ids must differ within a suite")
        for key, output in outputs.items():
            self._write({"id": key, "output": output})
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done |= outputs

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._file.close()

    def _write(self, fields: Mapping[str, Any]) -> None:
        try:
            line = json.dumps(fields, allow_nan=False)
        except ValueError as error:
            raise EvaluationError(f"an output can't be kept: {fields!r:.200} ({error}); check the system") from error
        self._file.write(line + "\n")

    def _read(self, settings: Mapping[str, object]) -> None:
        """Take over the lines that are whole; what follows the last whole line was torn by a kill, and is cut off."""
        raw = self.path.read_bytes()
        lines, end = [], 0
        for line in raw.splitlines(keepends=True):
            fields = _parsed(line)
            if fields is None:
                break
            lines.append(fields)
            end += len(line)
        if not lines or lines[0].get("fingerprint") != fingerprint(settings):
            self._start_anew(lines, settings)
            return
        if end < len(raw):
            with self.path.open("r+b") as file:
                file.truncate(end)
        self.done = {fields["id"]: fields["output"] for fields in lines[1:]}

    def _start_anew(self, lines: Sequence[Output], settings: Mapping[str, object]) -> None:
        self.path.unlink()
        if len(lines) < 2:
            return
        held = lines[0].get("settings") or {}
        changed = ", ".join(sorted(key for key in {*held, *settings} if held.get(key) != settings.get(key)))
        self.notice = (
            f"{self.path.name}: {len(lines) - 1} finished questions were measured under another "
            f"{changed or 'format'}; starting anew"
        )
        log.warning("%s", self.notice)


def _parsed(line: bytes) -> Output | None:
    """Return the object in a whole line, None for a torn or foreign one."""
    if not line.endswith(b"\n"):
        return None
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    is_ours = isinstance(fields, dict) and ("fingerprint" in fields or {"id", "output"} <= fields.keys())
    return fields if is_ours else None
