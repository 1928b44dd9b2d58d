"""JSON text, token by token: where things stand in it, and what is wrong with it.

The trace tools decode events with the standard library's scanner. This lexer, which is much slower,
reads only what that one refuses: it says where and why, reads on over what a repair can mend, and
finds the places of members. Strict by RFC 8259, for texts of any depth; offsets are bytes.
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
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DIGITS = b"0123456789"
_WORDS = {b"t": b"true", b"f": b"false", b"n": b"null", b"N": b"NaN", b"I": b"Infinity"}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()
MOST_DEFECTS = 100_000

NAMES = {
    "{": "an object",
    "[": "an array",
    "string": "a string",
    "number": "a number",
    "true": "true",
    "false": "false",
    "null": "null",
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
    """What is no strict JSON, and can be mended by replacing the bytes from `begin` to `end`."""

    code: str
    at: int
    begin: int
    end: int
    depth: int


def shown(byte: bytes) -> str:
    """Write one byte of a file for a message."""
    return f"'{byte.decode()}'" if b" " < byte < b"\x7f" else f"byte 0x{byte.hex()}"


def unexpected(text: bytes, at: int, expected: str, base: int = 0) -> ReadError:
    """Say what stands at `at` instead of what was expected there; the text begins at `base`."""
    byte = text[at : at + 1]
    if not byte:
        return CutError(base + at, expected)
    return ReadError(base + at, f"found {shown(byte)}; expected {expected}")


def unquoted(text: bytes) -> str:
    """Return what a JSON string says, quotes included in `text`."""
    value: str = json.loads(text.decode("utf-8", "replace"), strict=False)
    return value


def _string_end(text: bytes, begin: int, defects: list[Defect] | None, depth: int) -> int:
    at = begin + 1
    while True:
        at = _PLAIN.match(text, at).end()  # type: ignore[union-attr]
        byte = text[at : at + 1]
        if byte == b'"':
            return at + 1
        if byte == b"\\":
            escape = _ESCAPE.match(text, at)
            if escape is None:
                raise _bad_escape(text, at + 1)
            at = escape.end()
        elif not byte:
            raise CutError(at, "the end of a string")
        elif byte < b" ":
            if defects is None:
                reason = f"found {shown(byte)} in a string; control characters must be escaped"
                raise ReadError(at, reason)
            defects.append(Defect("control", at, at, at + 1, depth))
            at += 1
        else:
            end = _HIGH.match(text, at).end()  # type: ignore[union-attr]
            _check_utf8(text, at, end, defects, depth)
            at = end


def _bad_escape(text: bytes, at: int) -> ReadError:
    if text[at : at + 1] != b"u":
        return unexpected(text, at, 'one of " \\ / b f n r t u after a backslash')
    at += 1
    while text[at : at + 1] and text[at : at + 1] in b"0123456789abcdefABCDEF":
        at += 1
    return unexpected(text, at, "four hexadecimal digits after \\u")


def _check_utf8(text: bytes, at: int, end: int, defects: list[Defect] | None, depth: int) -> None:
    while at < end:
        try:
            text[at:end].decode()
        except UnicodeDecodeError as error:
            if defects is None:
                reason = "found bytes that are not UTF-8 in a string"
                raise ReadError(at + error.start, reason) from None
            begin, at = at + error.start, at + error.end
            defects.append(Defect("utf8", begin, begin, at, depth))
        else:
            return


def _number_end(text: bytes, begin: int) -> int:
    number = _NUMBER.match(text, begin)
    if number is None:
        raise unexpected(text, begin + 1, "a digit after '-'")
    end = number.end()
    after = text[end : end + 1]
    if after and after in _DIGITS:
        raise unexpected(text, end, "no digit after a leading zero")
    if after == b".":
        raise unexpected(text, end + 1, "a digit after the decimal point")
    if after and after in b"eE":
        sign = text[end + 1 : end + 2] in (b"+", b"-")
        raise unexpected(text, end + 2 if sign else end + 1, "a digit in the exponent")
    return end


def _word_end(text: bytes, begin: int, word: bytes) -> int:
    for place, letter in enumerate(word, begin):
        if text[place : place + 1] != bytes([letter]):
            raise unexpected(text, place, f"the rest of {word.decode()}")
    return begin + len(word)


def _scalar(
    text: bytes, at: int, expected: str, defects: list[Defect] | None, depth: int
) -> tuple[str, int]:
    """Read a string, a number or a word; answer its kind and end."""
    byte = text[at : at + 1]
    if byte == b'"':
        return "string", _string_end(text, at, defects, depth)
    negative = byte == b"-" and text[at + 1 : at + 2] == b"I"
    word = _WORDS.get(text[at + 1 : at + 2] if negative else byte)
    if word is None:
        if byte == b"-" or (byte and byte in _DIGITS):
            return "number", _number_end(text, at)
        raise unexpected(text, at, expected)
    end = _word_end(text, at + negative, word)
    if word not in (b"NaN", b"Infinity"):
        return word.decode(), end
    if defects is None:
        raise ReadError(at, f"found {word.decode()}; JSON has finite numbers only")
    defects.append(Defect("nan", at, at, end, depth))
    return "null", end


def tokens(text: bytes, defects: list[Defect] | None = None) -> Iterator[Token]:
    """Yield the tokens of one value, which must be all of the text.

    With a list for `defects`, what can be mended goes there; without, it is a `ReadError`.
    """
    closers: list[bytes] = []
    at, comma = 0, -1  # where the comma stands after which something has to come
    expected = "a value"
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        byte = text[at : at + 1]
        if defects is not None and len(defects) >= MOST_DEFECTS:
            raise ReadError(at, "too much is damaged here to go on")
        depth = len(closers)
        may_close = expected.endswith(("'}'", "']'"))
        if closers and byte == closers[-1] and (may_close or (comma >= 0 and defects is not None)):
            if comma >= 0 and defects is not None:
                defects.append(Defect("comma", comma, comma, comma + 1, depth))
            closers.pop()
            yield Token(byte.decode(), at, at + 1, depth - 1)
            at += 1
        elif expected.startswith("','"):
            if byte != b",":
                raise unexpected(text, at, expected)
            comma = at
            at += 1
            in_object = closers[-1] == b"}"
            expected = "a key in quotes after ','" if in_object else "a value after ','"
            continue
        elif expected.startswith("a key"):
            if byte != b'"':
                raise unexpected(text, at, expected)
            end = _string_end(text, at, defects, depth)
            yield Token("key", at, end, depth)
            at = _SPACE.match(text, end).end()  # type: ignore[union-attr]
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
        expected = "',' or '}'" if closers[-1] == b"}" else "',' or ']'"
    at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
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
    """Find all that is no strict JSON in one value, and keys that are there twice.

    The bytes of such a key's defect are those of the earlier member, up to the next one.
    """
    defects: list[Defect] = []
    twice: list[Defect] = []
    objects: list[dict[str, tuple[int, int]]] = []  # the place of each key, and of the one after it
    last: list[str] = []
    for token in tokens(text, defects):
        if token.kind == "{":
            objects.append({})
            last.append("")
        elif token.kind == "}":
            objects.pop()
            last.pop()
        elif token.kind == "key":
            keys, key = objects[-1], unquoted(text[token.begin : token.end])
            if keys:
                keys[last[-1]] = (keys[last[-1]][0], token.begin)
            if key in keys:
                twice.append(Defect("key", token.begin, *keys[key], token.depth))
            keys[key] = (token.begin, token.end)
            last[-1] = key
    return sorted(defects + twice, key=lambda defect: defect.at)


def mended(text: bytes, defects: list[Defect]) -> bytes:
    """Replace what is wrong in a text by what is not."""
    parts: list[bytes] = []
    at = 0
    for defect in sorted(defects, key=lambda defect: (defect.begin, -defect.end)):
        if defect.begin < at:  # in a member that goes
            continue
        found = text[defect.begin : defect.end]
        parts += [text[at : defect.begin], _replacement(defect.code, found)]
        at = defect.end
    return b"".join([*parts, text[at:]])


def _replacement(code: str, found: bytes) -> bytes:
    if code == "nan":
        return b"null"
    if code == "utf8":
        return _REPLACEMENT
    if code == "control":
        return json.dumps(found.decode())[1:-1].encode()
    return b""


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
