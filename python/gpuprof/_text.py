"""Names as they leave gpuprof: always with a UTF-8 form, never with a NUL."""

from __future__ import annotations


def clean_text(text: str) -> str:
    """Return `text` with NUL and lone surrogates replaced by U+FFFD."""
    # A lone surrogate has no UTF-8 form; a pair of them is the character that it stands for.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")
