"""Short sentences about many things at once, as reports carry them.

Owns the wording. Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Sequence

from byheart.reports import Refusal


def skipped(refusals: Sequence[Refusal]) -> list[str]:
    """Return one notice per reason for what was passed over below a folder, where nobody named it."""
    sources: dict[str, list[str]] = {}
    for refusal in refusals:
        sources.setdefault(refusal.reason, []).append(refusal.source)
    return [f"{len(names)} skipped ({some(names)}): {reason}" for reason, names in sources.items()]


def some(names: Sequence[str]) -> str:
    """Return the first three names, and dots where there are more."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def forgotten(n_facts: int) -> list[str]:
    """Return a notice that facts went with their documents; none where there were none."""
    return [f"{n_facts} facts that came from documents now removed were forgotten"] if n_facts else []


def stale(n_facts: int) -> list[str]:
    """Return a notice that documents no longer support facts; none where there are none."""
    what = "facts are stale: their documents have changed and no longer say so; byheart facts lists them"
    return [f"{n_facts} {what}"] if n_facts else []
