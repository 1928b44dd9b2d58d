"""Where a JSON text is broken, and how.

The standard library decodes what is sound. This lexer, which is much slower, reads what that one
refuses, and says where and why. For texts of any depth; offsets are bytes.
"""

from __future__ import annotations

import json
import re

_SPACE = re.compile(rb"[ \t\n\r]*")
_BRACKET = re.compile(rb'["{}\[\]]')
_QUOTE = re.compile(rb'["\\]')
_DELIMITER = re.compile(rb"[,\]}: \t\n\r]")
_UNCLOSED = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_BROKEN_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LIKE_A_NUMBER = re.compile(rb"[-+.eE0-9]*")
_WORD = re.compile(rb"true|false|null|NaN|-?Infinity")
_WORDS = (b"true", b"false", b"null", b"NaN", b"Infinity", b"-Infinity")
_LONGEST_WORD = 9

DEFECTS = {
    "bom": "a byte order mark",
    "nan": "NaN or Infinity, which is no JSON",
    "control": "a control character in a string that is not escaped",
    "utf8": "bytes in a string that are not UTF-8",
    "comma": "a comma before the end of an array or object",
    "key": "a key is there twice",
}


class ReadError(Exception):
    """What is wrong with a trace, and where: a byte of the file, and an event if it is in one.

    `code` is of `DEFECTS`, or "json" where the text cannot be read any further.
    """

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

    def __init__(self, offset: int, expected: str) -> None:
        super().__init__(offset, f"the text ends here; expected {expected}")
        self.expected = expected


class KeyTwiceError(ReadError):
    """A key is there twice, in no more than `depth` containers; nothing else is wrong."""

    def __init__(self, offset: int, depth: int) -> None:
        super().__init__(offset, DEFECTS["key"], code="key")
        self.depth = depth


def defect(at: int, code: str) -> ReadError:
    """Say what is no strict JSON at a byte, though it is clear what it means."""
    return ReadError(at, DEFECTS[code], code=code)


def unexpected(text: bytes, at: int, expected: str, base: int = 0) -> ReadError:
    """Say what stands at `at` instead of what was expected there; the text begins at `base`."""
    byte = text[at : at + 1]
    if not byte:
        return CutError(base + at, expected)
    shown = f"'{byte.decode()}'" if b" " < byte < b"\x7f" else f"byte 0x{byte.hex()}"
    return ReadError(base + at, f"found {shown}; expected {expected}")


def unquoted(text: bytes) -> str:
    """Return what a JSON string says, quotes included in `text`."""
    value: str = json.loads(text.decode("utf-8", "replace"), strict=False)
    return value


def _string_end(text: bytes, begin: int) -> int:
    at = _UNCLOSED.match(text, begin).end()  # type: ignore[union-attr]
    byte = text[at : at + 1]
    if not byte:
        raise CutError(at, "the end of a string")
    if byte == b"\\":
        broken = _BROKEN_ESCAPE.match(text, at).end()  # type: ignore[union-attr]
        raise unexpected(text, broken, "an escape of JSON")
    if byte != b'"':
        raise defect(at, "control")
    try:
        text[begin:at].decode()
    except UnicodeDecodeError as error:
        raise defect(begin + error.start, "utf8") from None
    return at + 1


def _scalar_end(text: bytes, at: int, expected: str) -> int:
    """Return the end of a string, a number or a word."""
    if text[at : at + 1] == b'"':
        return _string_end(text, at)
    if word := _WORD.match(text, at):
        if word[0].endswith((b"N", b"y")):
            raise defect(at, "nan")
        return word.end()
    end = _LIKE_A_NUMBER.match(text, at).end()  # type: ignore[union-attr]
    if _NUMBER.fullmatch(text, at, end):
        return end
    if len(text) - at < _LONGEST_WORD and any(word.startswith(text[at:]) for word in _WORDS):
        raise CutError(len(text), expected)
    if end == at or text[at : at + 1] in b"+.eE":
        raise unexpected(text, at, expected)
    if end == len(text) and _NUMBER.fullmatch(text[at:] + b"0"):
        raise CutError(end, "the rest of a number")
    raise ReadError(at, "found what is no number of JSON")


def check(text: bytes) -> None:
    """Raise a ReadError for the first thing in a text that is not one value of strict JSON."""
    closers: list[bytes] = []
    keys: list[set[str]] = []  # of the containers that are open
    twice: list[KeyTwiceError] = []
    at, comma = 0, -1  # where the comma stands after which something has to come
    expected = "a value"
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        byte = text[at : at + 1]
        may_close = comma >= 0 or expected.endswith(("'}'", "']'"))
        if closers and byte == closers[-1] and may_close:
            if comma >= 0:
                raise defect(comma, "comma")
            closers.pop()
            keys.pop()
            at += 1
        elif expected.startswith("','"):
            if byte != b",":
                raise unexpected(text, at, expected)
            comma, at = at, at + 1
            expected = f"a {'key in quotes' if closers[-1] == b'}' else 'value'} after ','"
            continue
        elif expected.startswith("a key"):
            if byte != b'"':
                raise unexpected(text, at, expected)
            end = _string_end(text, at)
            key = unquoted(text[at:end])
            if key in keys[-1]:
                twice.append(KeyTwiceError(at, len(keys)))
            keys[-1].add(key)
            at = _SPACE.match(text, end).end()  # type: ignore[union-attr]
            if text[at : at + 1] != b":":
                raise unexpected(text, at, "':' after a key")
            at, comma, expected = at + 1, -1, "a value"
            continue
        elif byte and byte in b"{[":
            closers.append(b"}" if byte == b"{" else b"]")
            keys.append(set())
            at, comma = at + 1, -1
            expected = "a key in quotes or '}'" if byte == b"{" else "a value or ']'"
            continue
        else:
            at = _scalar_end(text, at, expected)
        comma = -1
        if not closers:
            break
        expected = f"',' or '{closers[-1].decode()}'"
    at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
    if at < len(text):
        raise unexpected(text, at, "nothing more, because the JSON text has ended")
    if twice:
        raise min(twice, key=lambda error: error.depth)


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
