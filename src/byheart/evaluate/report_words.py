"""How figures are written in a report.

Owns the rounding. Knows no markup and no chart.
"""

from __future__ import annotations

import re

from byheart.evaluate.rows import Row

SHARES = {"share", "difference"}
# Lone surrogates can't be encoded; control characters and turned writing direction would damage page and drawing.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """Return text on one line, whatever can't be shown replaced by U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


def number(value: float, unit: str = "share") -> str:
    """Return a figure rounded to what can be read: shares to three decimals, others to four digits.

    Args:
        value: The figure.
        unit: Its unit; a difference carries its sign.

    Returns:
        The text, with a true minus sign.
    """
    sign = "+" if unit == "difference" else ""
    if unit in SHARES and (value == 0 or 0.0005 <= abs(value) < 1e6):
        text = f"{value:{sign}.3f}"
    elif 1_000 <= abs(value) < 1e15:
        text = f"{value:{sign},.0f}"
    else:
        text = f"{value:{sign}.4g}"
    return text.replace("-", "\u2212")


def interval(row: Row) -> str:
    """Return the 95 % interval of a row, empty where none applies."""
    if row.low is None or row.high is None:
        return ""
    return f"{number(row.low, row.unit)} to {number(row.high, row.unit)}"


def measure(row: Row) -> str:
    """Return a row's measure with its unit; shares are the rule, and differences say what they are by their sign."""
    return row.measure if row.unit in SHARES else f"{row.measure} ({row.unit})"
