"""Names as they leave gpuprof: always with a UTF-8 form, never with a NUL."""

from __future__ import annotations

import re
import unicodedata
from typing import TextIO


def clean_text(text: str) -> str:
    """Return `text` with NUL and lone surrogates replaced by U+FFFD."""
    # A lone surrogate has no UTF-8 form; a pair of them is the character that it stands for.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")


MAX_TEXT_BYTES = 4096


MAX_NAME_COLUMNS = 60


_SURROGATE_OR_NUL = re.compile("[\0\ud800-\udfff]")


_CONTROLS = [*range(1, 0x20), 0x7F, *range(0x80, 0xA0)]


_DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]


_VISIBLE = {code: f"\\x{code:02x}" for code in _CONTROLS} | {
    code: f"\\u{code:04x}" for code in _DIRECTIONS
}


# A markup character becomes its entity, which Markdown shows and never obeys. An underscore inside
# a word is no markup there, and names are full of them.
_MARKDOWN = re.compile(r"[\\`*\[\]<>&|~$@]|(?<![^\W_])_|_(?![^\W_])")


_PLAIN_FORMS = str.maketrans({"µ": "u", "…": "..."})


def output_text(text: str) -> str:
    """Make `text` fit for any UTF-8 output: NUL and lone surrogates replaced, at most 4 KiB."""
    raw = _SURROGATE_OR_NUL.sub("\ufffd", text).encode()
    if len(raw) > MAX_TEXT_BYTES:
        return raw[: MAX_TEXT_BYTES - 3].decode(errors="ignore") + "…"
    return raw.decode()


def shown_text(text: str) -> str:
    """Make `text` fit for a person to read: on one line, and what it looks like."""
    return output_text(text).translate(_VISIBLE)


def _width(text: str) -> int:
    """How many columns a terminal gives `text`."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    marks = sum(unicodedata.combining(character) != 0 for character in text)
    return len(text) + wide - marks


def _in_markdown(text: str) -> str:
    return _MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", text)


def write_text(out: TextIO, text: str) -> None:
    """Write `text` so that an encoding without some of its characters is no error."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN_FORMS).encode(encoding, "backslashreplace").decode(encoding)
    out.write(text)
