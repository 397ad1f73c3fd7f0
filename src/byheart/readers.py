"""Which class stands behind a reader's name.

Owns that choice. Part of the composition root.
"""

from __future__ import annotations

import os

from byheart.config import Config
from byheart.interfaces import Reader
from byheart.reader.compact import CompactReader


def chosen_reader(config: Config) -> Reader:
    """Return the reader that the settings name; its model is loaded when first needed.

    Args:
        config: Settings of a knowledge base.

    Returns:
        The reader.
    """
    chosen = config.reader
    if chosen.name == "causal-lm":
        from byheart.reader.causal_lm import CausalLMReader

        return CausalLMReader(chosen, config.encoder.device)
    if chosen.name == "openai":
        from byheart.reader.openai import OpenAIReader

        return OpenAIReader(chosen, os.environ.get(chosen.api_key_variable))
    return CompactReader(chosen, device=config.encoder.device)
