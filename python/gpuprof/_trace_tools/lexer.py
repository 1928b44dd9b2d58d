"""JSON text, token by token: where things stand in it, and what is wrong with it.

The standard library decodes what is sound. This lexer, which is much slower, reads what that one
refuses: it says where and why, reads on over what is clear though no strict JSON (a `Defect`), and
finds the places of members. For texts of any depth; offsets are bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

_SPACE = re.compile(rb"[ \t\n\r]*")
_BRACKET = re.compile(rb'["{}\[\]]')
_QUOTE = re.compile(rb'["\\]')
_DELIMITER = re.compile(rb"[,\]}: \t\n\r]")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f\x80-\xff]*')
_HIGH = re.compile(rb"[\x80-\xff]+")
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_BROKEN_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LIKE_A_NUMBER = re.compile(rb"[-+.eE0-9]*")
_WORD = re.compile(rb"true|false|null|NaN|-?Infinity")
_WORDS = (b"true", b"false", b"null", b"NaN", b"Infinity", b"-Infinity")
_LONGEST_WORD = 9
MOST_DEFECTS = 100_000

DEFECTS = {
    "bom": "a byte order mark",
    "nan": "NaN or Infinity, which is no JSON",
    "control": "a control character in a string that is not escaped",
    "utf8": "bytes in a string that are not UTF-8",
    "comma": "a comma before the end of an array or object",
    "key": "a key is there twice",
}


class ReadError(Exception):
    """What is wrong with a trace, and where: a byte of the file, and an event if it is in one."""

    def __init__(self, offset: int, reason: str, event: int | None = None) -> None:
        super().__init__(offset, reason, event)
        self.offset, self.reason, self.event = offset, reason, event

    def __str__(self) -> str:
        event = "" if self.event is None else f"event {self.event}, "
        return f"{event}byte {self.offset}: {self.reason}"


class CutError(ReadError):
    """The text ends where something was expected."""

    def __init__(self, offset: int, expected: str) -> None:
        super().__init__(offset, f"the text ends here; expected {expected}")
        self.expected = expected


class Token(NamedTuple):
    """A bracket, a key or a value. `depth` is how many containers are around it."""

    kind: str
    begin: int
    end: int
    depth: int


class Defect(NamedTuple):
    """What is no strict JSON, but can be read over: a key of `DEFECTS`, and its byte."""

    code: str
    at: int
    depth: int = 0


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


def _skip_space(text: bytes, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _string_end(text: bytes, begin: int, defects: list[Defect], depth: int) -> int:
    at = begin + 1
    while True:
        at = _PLAIN.match(text, at).end()  # type: ignore[union-attr]
        byte = text[at : at + 1]
        if byte == b'"':
            return at + 1
        if byte == b"\\":
            escape = _ESCAPE.match(text, at)
            if escape is None:
                broken = _BROKEN_ESCAPE.match(text, at).end()  # type: ignore[union-attr]
                raise unexpected(text, broken, "an escape of JSON")
            at = escape.end()
        elif not byte:
            raise CutError(at, "the end of a string")
        elif byte < b" ":
            _note(defects, "control", at, depth)
            at += 1
        else:
            end = _HIGH.match(text, at).end()  # type: ignore[union-attr]
            while at < end:
                try:
                    text[at:end].decode()
                except UnicodeDecodeError as error:
                    _note(defects, "utf8", at + error.start, depth)
                    at += error.end
                else:
                    at = end


def _note(defects: list[Defect], code: str, at: int, depth: int) -> None:
    if len(defects) >= MOST_DEFECTS:
        raise ReadError(at, "too much is damaged here to go on")
    defects.append(Defect(code, at, depth))


def _scalar(
    text: bytes, at: int, expected: str, defects: list[Defect], depth: int
) -> tuple[str, int]:
    """Read a string, a number or a word; answer its kind and end."""
    if text[at : at + 1] == b'"':
        return "string", _string_end(text, at, defects, depth)
    if word := _WORD.match(text, at):
        if word[0].endswith((b"N", b"y")):
            _note(defects, "nan", at, depth)
            return "null", word.end()
        return word[0].decode(), word.end()
    end = _LIKE_A_NUMBER.match(text, at).end()  # type: ignore[union-attr]
    if _NUMBER.fullmatch(text, at, end):
        return "number", end
    if len(text) - at < _LONGEST_WORD and any(word.startswith(text[at:]) for word in _WORDS):
        raise CutError(len(text), expected)
    if end == at or text[at : at + 1] in b"+.eE":
        raise unexpected(text, at, expected)
    if end == len(text) and _NUMBER.fullmatch(text[at:] + b"0"):
        raise CutError(end, "the rest of a number")
    raise ReadError(at, "found what is no number of JSON")


def tokens(text: bytes, defects: list[Defect]) -> Iterator[Token]:
    """Yield the tokens of one value, which must be all of the text; defects go to the list."""
    closers: list[bytes] = []
    at, comma = 0, -1  # where the comma stands after which something has to come
    expected = "a value"
    while True:
        at = _skip_space(text, at)
        byte, depth = text[at : at + 1], len(closers)
        may_close = comma >= 0 or expected.endswith(("'}'", "']'"))
        if closers and byte == closers[-1] and may_close:
            if comma >= 0:
                _note(defects, "comma", comma, depth)
            closers.pop()
            yield Token(byte.decode(), at, at + 1, depth - 1)
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
            end = _string_end(text, at, defects, depth)
            yield Token("key", at, end, depth)
            at = _skip_space(text, end)
            if text[at : at + 1] != b":":
                raise unexpected(text, at, "':' after a key")
            at, comma, expected = at + 1, -1, "a value"
            continue
        elif byte and byte in b"{[":
            yield Token(byte.decode(), at, at + 1, depth)
            closers.append(b"}" if byte == b"{" else b"]")
            at, comma = at + 1, -1
            expected = "a key in quotes or '}'" if byte == b"{" else "a value or ']'"
            continue
        else:
            kind, end = _scalar(text, at, expected, defects, depth)
            yield Token(kind, at, end, depth)
            at = end
        comma = -1
        if not closers:
            break
        expected = f"',' or '{closers[-1].decode()}'"
    at = _skip_space(text, at)
    if at < len(text):
        raise unexpected(text, at, "nothing more, because the JSON text has ended")


class Member(NamedTuple):
    """The value of a member, and where it stands; kinds are those of tokens."""

    kind: str
    begin: int
    end: int


def members(text: bytes) -> dict[str, Member]:
    """Find the members of an object; empty for anything else. The last of a name counts."""
    found: dict[str, Member] = {}
    key, opened = "", Member("", 0, 0)
    if text[:1] != b"{":
        return found
    for token in tokens(text, []):
        if token.depth != 1:
            continue
        if token.kind == "key":
            key = unquoted(text[token.begin : token.end])
        elif token.kind in ("{", "["):
            opened = Member(token.kind, token.begin, token.end)
        elif token.kind in ("}", "]"):
            found[key] = opened._replace(end=token.end)
        else:
            found[key] = Member(token.kind, token.begin, token.end)
    return found


def defects_of(text: bytes) -> list[Defect]:
    """Find all that is no strict JSON in one value, and keys that are there twice."""
    defects: list[Defect] = []
    keys: list[set[str]] = []
    for token in tokens(text, defects):
        if token.kind == "{":
            keys.append(set())
        elif token.kind == "}":
            keys.pop()
        elif token.kind == "key":
            key = unquoted(text[token.begin : token.end])
            if key in keys[-1]:
                _note(defects, "key", token.begin, token.depth)
            keys[-1].add(key)
    return sorted(defects, key=lambda defect: defect.at)


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
