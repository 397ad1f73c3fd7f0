"""Export and import: every vector of one engine into another.

Owns the loop. Knows engines only by their Protocol, so that any can feed any.
"""

from __future__ import annotations

from byheart.interfaces import VectorIndex
from byheart.reports import Progress, no_progress

_BATCH = 256


def transfer(source: VectorIndex, target: VectorIndex, progress: Progress = no_progress) -> int:
    """Copy every entry of `source` into `target`, and delete what `target` has beyond them.

    Args:
        source: Index to read.
        target: Index that afterwards holds the same entries.
        progress: Told after each batch.

    Returns:
        Entries copied.
    """
    ids = source.ids()
    target.remove(sorted(set(target.ids()).difference(ids)))
    for start in range(0, len(ids), _BATCH):
        target.add(source.fetch(ids[start : start + _BATCH]))
        progress(min(start + _BATCH, len(ids)), len(ids), "vectors")
    return len(ids)
