"""Where a JSON text is broken, and where a value ends; offsets are bytes."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_SPACE = " \t\n\r"
_BRACKET = re.compile(rb'["{}\[\]]')
_QUOTE = re.compile(rb'["\\]')
_DELIMITER = re.compile(rb"[,\]}: \t\n\r]")
_CONSTANT = re.compile(rb'"(?:[^"\\]|\\.)*"|(NaN|-?Infinity)')

DEFECTS = {
    "bom": "a byte order mark",
    "nan": "NaN or Infinity, which is no JSON",
    "control": "a control character in a string that is not escaped",
    "utf8": "bytes in a string that are not UTF-8",
    "comma": "a comma before the end of an array or object",
    "key": "a key is there twice",
}
# By how the standard library begins to say it.
_EXPECTED = {
    "Expecting value": "a value",
    "Expecting property name": "a key in quotes",
    "Expecting ':'": "':' after a key",
    "Expecting ','": "',' or the end of an array or object",
    "Extra data": "nothing more, because the value has ended",
}


class ReadError(Exception):
    """What is wrong with a trace, and where: a byte of the file, and an event if it is in one.

    `code` is of `DEFECTS`, or "json" where the text cannot be read any further.
    """

    is_inner = False  # a key is there twice in an object inside; nothing else is wrong

    def __init__(
        self, offset: int, reason: str, event: int | None = None, code: str = "json"
    ) -> None:
        super().__init__(offset, reason, event, code)
        self.offset, self.reason, self.event, self.code = offset, reason, event, code

    def __str__(self) -> str:
        event = "" if self.event is None else f"event {self.event}, "
        return f"{event}byte {self.offset}: {self.reason}"


class CutError(ReadError):
    """The text ends where something was expected."""


class OddError(Exception):
    """Why an event cannot be used, and at which of its bytes."""

    def __init__(self, reason: str, at: int = 0, code: str = "event") -> None:
        super().__init__(reason, at, code)
        self.reason, self.at, self.code = reason, at, code


def defect(at: int, code: str) -> ReadError:
    """Say what is no strict JSON at a byte, though it is clear what it means."""
    return ReadError(at, DEFECTS[code], code=code)


def unexpected(text: bytes | bytearray, at: int, expected: str, base: int = 0) -> ReadError:
    """Say what stands at `at` instead of what was expected there; the text begins at `base`."""
    byte = bytes(text[at : at + 1])
    if not byte:
        return CutError(base + at, f"the text ends here; expected {expected}")
    shown = f"'{byte.decode()}'" if b" " < byte < b"\x7f" else f"byte 0x{byte.hex()}"
    return ReadError(base + at, f"found {shown}; expected {expected}")


def check(text: bytes) -> None:
    """Raise a ReadError for what keeps a text from being one value of strict JSON.

    It is a RecursionError for one that is nested too deep.
    """
    twice: list[bool] = []  # of each object, the outermost last

    def without_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        twice.append(len(found) < len(pairs))
        return found

    def refuse_constant(_: str) -> NoReturn:
        raise defect(next(found.start() for found in _CONSTANT.finditer(text) if found[1]), "nan")

    decoder = json.JSONDecoder(
        object_pairs_hook=without_key_twice,
        parse_constant=refuse_constant,
        parse_int=str,
        parse_float=str,
    )
    string = text.decode(errors="surrogateescape")
    try:
        decoder.decode(string)
    except json.JSONDecodeError as error:
        at = len(string[: error.pos].encode(errors="surrogateescape"))
        raise _broken(text, at, error.msg) from None
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise defect(error.start, "utf8") from None
    if any(twice):
        found = defect(0, "key")
        found.is_inner = not twice[-1]
        raise found


def _broken(text: bytes, at: int, message: str) -> ReadError:
    """Put what the standard library says into our words."""
    if message.startswith("Unterminated string"):
        return CutError(len(text), "the text ends here; expected the end of a string")
    if message.startswith("Invalid control"):
        return defect(at, "control")
    if message.startswith("Invalid"):
        return ReadError(at, "found what is no escape of JSON")
    before = text[:at].rstrip(_SPACE.encode())
    if message.startswith("Illegal trailing comma"):
        return defect(at, "comma")
    if before.endswith(b",") and text[at : at + 1] in (b"}", b"]"):
        return defect(len(before) - 1, "comma")
    expected = (words for start, words in _EXPECTED.items() if message.startswith(start))
    return unexpected(text, at, next(expected, "JSON"))


class ValueEnd:
    """Finds the end of a JSON value in bytes that come in pieces, by its brackets alone."""

    def __init__(self, first: bytes) -> None:
        self._has_brackets = first in (b"{", b"[", b'"')
        self._depth = 0
        self._in_string = self._escaped = False

    def find(self, text: bytearray, at: int) -> int:
        """Go on at `at`; return where the value ends, or -1 if that is not in `text`."""
        if not self._has_brackets:  # a number or a word, or nothing that is known
            delimiter = _DELIMITER.search(text, at)
            return delimiter.start() if delimiter else -1
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_QUOTE if self._in_string else _BRACKET).search(text, at)
            if found is None:
                return -1
            at, byte = found.end(), found[0]
            if byte == b"\\":
                self._escaped = True
            elif byte == b'"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if byte in b"{[" else -1
            if self._depth == 0 and not self._in_string:
                return at
        return -1
