"""Names of parametrized tests that are short, and the same in every process."""

from __future__ import annotations

import re


def short(value: object) -> str:
    """Return what `value` looks like, without an address and with at most 60 characters."""
    text = re.sub(r" at 0x[0-9a-f]+", "", ascii(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
