"""Text that leaves gpuprof: always with a UTF-8 form, never with a NUL, and safe to be shown."""

from __future__ import annotations

import html
import math
import numbers
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, TextIO

MAX_TEXT_BYTES = 4096
MAX_NAME_COLUMNS = 60
MAX_VALUE = 60  # characters of a value in an error
MAX_DEPTH = 16
PLAIN_FORMS = str.maketrans({"µ": "u", "…": "..."})

_SURROGATE_OR_NUL = re.compile("[\0\ud800-\udfff]")
_CONTROLS = [*range(1, 0x20), 0x7F, *range(0x80, 0xA0)]
_DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
_VISIBLE = {code: f"\\x{code:02x}" for code in _CONTROLS} | {
    code: f"\\u{code:04x}" for code in _DIRECTIONS
}
# A markup character becomes its entity, which Markdown shows and never obeys. An underscore inside
# a word is no markup there, and names are full of them.
_MARKDOWN = re.compile(r"[\\`*\[\]<>&|~$@]|(?<![^\W_])_|_(?![^\W_])")


def clean_text(text: str) -> str:
    """Return `text` with NUL and lone surrogates replaced by U+FFFD."""
    # A lone surrogate has no UTF-8 form; a pair of them is the character that it stands for.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "\ufffd")


def output_text(text: str) -> str:
    """Make `text` fit for any UTF-8 output: NUL and lone surrogates replaced, at most 4 KiB."""
    if type(text) is str and len(text) <= MAX_TEXT_BYTES and text.isascii() and "\0" not in text:
        return text
    raw = _SURROGATE_OR_NUL.sub("\ufffd", text).encode()
    if len(raw) > MAX_TEXT_BYTES:
        return raw[: MAX_TEXT_BYTES - 3].decode(errors="ignore") + "…"
    return raw.decode()


def shown_text(text: str) -> str:
    """Make `text` fit for a person to read: on one line, with control characters made visible."""
    return output_text(text).translate(_VISIBLE)


def cut(text: str, columns: int = MAX_NAME_COLUMNS, *, middle: bool = False) -> str:
    """Cut `text` to so many columns, with `middle` both of its ends: kernels differ late."""
    if width(text) <= columns:
        return text
    end = _fitting(text[::-1], (columns - 1) // 2)[::-1] if middle else ""
    while end and not width(end[0]):  # a mark without the character that it is drawn with
        end = end[1:]
    return f"{_fitting(text, columns - 1 - width(end))}…{end}"


def ending(text: str) -> str:
    """Cut the beginning of a long name, as paths differ late."""
    return text if len(text) <= MAX_NAME_COLUMNS else f"…{text[1 - MAX_NAME_COLUMNS :]}"


def _fitting(text: str, columns: int) -> str:
    """Return the longest beginning of `text` that has at most so many columns."""
    room = columns
    for place, character in enumerate(text):
        room -= width(character)
        if room < 0:
            return text[:place]
    return text


def width(text: str) -> int:
    """Return how many columns a terminal gives `text`, which holds no control character."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    # Marks and joiners are drawn with the character before them; so are the later parts of a
    # Hangul syllable. The soft hyphen is the one formatting character that terminals draw.
    code = ord(character)
    joins = unicodedata.category(character) in {"Mn", "Me", "Cf"} and code != 0xAD
    return 0 if joins or 0x1160 <= code <= 0x11FF else 1


def in_html(text: str) -> str:
    return html.escape(shown_text(text))


def in_markdown(text: str) -> str:
    return _MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", text)


def encodable(text: str, encoding: str | None) -> str:
    """Return `text` with the characters that an encoding lacks replaced by others."""
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(PLAIN_FORMS).encode(encoding, "backslashreplace").decode(encoding)
    return text


def write_text(out: TextIO, text: str) -> None:
    """Write `text` so that an encoding without some of its characters is no error."""
    out.write(encodable(text, getattr(out, "encoding", None)))


def plain_data(value: Any, depth: int = 0) -> Any:
    """Return `value` as what JSON can hold; any other object becomes its text, NaN becomes None."""
    kind = type(value)
    if value is None or kind is int or kind is bool:  # most are one of these
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else None
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            return {
                output_text(str(key)): plain_data(item, depth + 1) for key, item in value.items()
            }
        if isinstance(value, (list, tuple, set, frozenset)):
            return [plain_data(item, depth + 1) for item in value]
    return output_text(value if type(value) is str else str(value))


def shown_value(value: object) -> str:
    """Write a value for the text of an error: on one line, and cut if it is long."""
    if isinstance(value, type):
        return type_name(value)
    try:
        text = " ".join(repr(value).split())
    except Exception:  # whatever the object's own code raises; the text is about something else
        text = f"a {type_name(type(value))}"
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def type_name(kind: type) -> str:
    """Write a type as its users do, without the modules that are implied."""
    module = kind.__module__
    if module in {"builtins", "__main__", None}:
        return kind.__qualname__
    return f"{module}.{kind.__qualname__}"


def plural(count: int, what: str) -> str:
    """Write ``1 node``, ``2 nodes``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def a_type(kind: type) -> str:
    """Write a type with its article, as in "an int"."""
    name = type_name(kind)
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
