"""byheart answers questions over documents: what is asked often from memory, the rest by retrieval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byheart.config import Config
    from byheart.errors import ByheartError
    from byheart.folder import init
    from byheart.folder import open_knowledge as open
    from byheart.knowledge import KnowledgeBase
    from byheart.types import Answer, Citation, Document, Hit, Passage, Question, Route

__all__ = [
    "Answer",
    "ByheartError",
    "Citation",
    "Config",
    "Document",
    "Hit",
    "KnowledgeBase",
    "Passage",
    "Question",
    "Route",
    "init",
    "open",
]

_HOMES = {
    "Config": ("byheart.config", "Config"),
    "ByheartError": ("byheart.errors", "ByheartError"),
    "KnowledgeBase": ("byheart.knowledge", "KnowledgeBase"),
    "init": ("byheart.folder", "init"),
    "open": ("byheart.folder", "open_knowledge"),
    **{
        name: ("byheart.types", name)
        for name in ("Answer", "Citation", "Document", "Hit", "Passage", "Question", "Route")
    },
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import byheart` stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"byheart has no {name!r}; its public names are {', '.join(__all__)}")
    import importlib

    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)
