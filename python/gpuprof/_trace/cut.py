"""Where values end in a file that comes in pieces, and what a file has beside its events."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BRACKET = re.compile(rb'["{}\[\]]')
_QUOTE = re.compile(rb'["\\]')
_DELIMITER = re.compile(rb"[,\]}: \t\n\r]")


class ValueEnd:
    """Finds the end of a JSON value in bytes that come in pieces, by its brackets alone."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._escaped = self._begun = False

    def find(self, text: bytes, at: int) -> int:
        """Go on at `at`; return where the value ends, or -1 if that is not in `text`."""
        if not self._begun and at < len(text):
            self._begun = True
            if text[at : at + 1] not in (b"{", b"[", b'"'):
                self._depth = -1
        if self._depth < 0:  # a number or a word, or nothing that is known
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
            if self._depth == 0 and not self._in_string and not self._escaped:
                return at
        return -1


@dataclass
class End:
    """How a file ended, as far as it was read.

    Attributes
    ----------
    form
        ``"array"`` or ``"object"``.
    complete
        The JSON text is.
    events, bytes
        How many complete events there are, and how many bytes of the file.
    inside_event
        It is cut off there.
    """

    form: str = ""
    complete: bool = False
    events: int = 0
    bytes: int = 0
    inside_event: bool = False


@dataclass
class Header:
    """A member of the file beside its events; `value` is its text, None where it is too long."""

    key: str
    value: bytes | None
