"""How scripts write words: with spaces between them or without, and with marks that belong to a letter.

Owns character classes for regular expressions. Knows no language.
"""

from __future__ import annotations

import functools
import unicodedata

# Scripts written without spaces, and Hangul, whose particles stick to words.
UNSPACED = (
    "\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u1100-\u11ff\u3005-\u3007\u3031-\u3035\u303b\u3040-\u30ff\u3105-\u312f\u3130-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)


@functools.cache
def marks() -> str:
    """Return the combining marks as ranges for a character class: vowel signs belong to their word."""
    ranges: list[list[int]] = []
    for code in (c for c in range(0x300, 0x1F000) if unicodedata.category(chr(c))[0] == "M"):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges)
