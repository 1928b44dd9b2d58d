"""The events of a trace, a batch at a time, from bytes that come in pieces.

Reads the two forms of the Trace Event Format: an object with the array "traceEvents" and other
members before or after it, and the array alone, whose end may be missing. Whole events are cut out
where one ends and the next begins, and decoded together. What the standard library refuses is given
to the `lexer`, which says why. Memory is bounded by a piece and the longest event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gpuprof._trace_tools.batch import (
    NOT_DECODED,
    SCAN_LONG,
    Batch,
    End,
    Header,
    decoded,
    has_unique_keys,
    is_sound,
    spans,
)
from gpuprof._trace_tools.lexer import (
    CutError,
    KeyTwiceError,
    ReadError,
    ValueEnd,
    check,
    defect,
    unexpected,
    unquoted,
)
from gpuprof._trace_tools.values import OddError

MAX_EVENT_BYTES = 64 << 20
MAX_HEADER_BYTES = 16 << 20
MAX_HEADERS = 256
ENOUGH = 1 << 15  # bytes that are worth a batch
MOST_FAILURES = 8
MOST_DECODED = 1 << 20  # bytes of a text outside of events that is decoded
MOST_LOOKED = 1 << 16  # bytes of what a file ends in, to see whether it was sound
_BOM = b"\xef\xbb\xbf"
_SPACE = re.compile(rb"[ \t\n\r]*")
_EVENTS = "traceEvents"
_KINDS = {
    b"{": "an object",
    b'"': "a string",
    b"t": "true",
    b"f": "false",
    b"n": "null",
}


class EventReader:
    """Reads one file; see the module. Only an event may be no strict JSON, if its end is clear."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.end = End()
        self.headers: list[Header] = []
        self.exact = False  # numbers with a fraction are bytes; may change between batches
        self._pieces = pieces
        self._text = b""
        self._at = 0
        self._base = 0  # of `_text` in the file
        self._mark = b"},"  # what is between two events
        self._failures = 0
        self._room = MAX_HEADER_BYTES
        self._in_events = False
        self._keys: list[str] = []

    def batches(self) -> Iterator[Batch]:
        """Yield the events; then `end` and `headers` are whole."""
        try:
            yield from self._file()
        except CutError:
            pass
        except ReadError as error:
            if self._in_events and error.event is None:
                raise ReadError(error.offset, error.reason, self.end.events) from None
            raise
        self.end.bytes = self._base + len(self._text)
        self._check_end()

    def _check_end(self) -> None:
        if not self.end.bytes:
            raise ReadError(0, "the file is empty; expected a trace")
        if not self.end.form:
            raise ReadError(0, "found no JSON; expected '{' or '['")
        if self.end.form == "object" and _EVENTS not in self._keys:
            what = (
                f'the object has no "{_EVENTS}"; this is no trace'
                if self.end.complete
                else f'the file is cut off before its "{_EVENTS}"'
            )
            raise ReadError(self.end.bytes, what)

    def _fill(self) -> bool:
        """Take the next piece; answer whether there was one."""
        piece = next(self._pieces, b"")
        self._text = self._text[self._at :] + piece
        self._base += self._at
        self._at = 0
        return bool(piece)

    def _peek(self) -> bytes:
        """Return the next byte that is no white space; nothing at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at : self._at + 1]
            if not self._fill():
                return b""

    def _unexpected(self, expected: str) -> ReadError:
        return unexpected(self._text, self._at, expected, self._base)

    def _skip_mark(self) -> None:
        while len(self._text) < len(_BOM) and _BOM.startswith(self._text) and self._fill():
            pass
        if self._text.startswith(_BOM):
            raise defect(0, "bom")

    def _file(self) -> Iterator[Batch]:
        self._skip_mark()
        byte = self._peek()
        if not byte:
            return
        if byte == b"[":
            self.end.form = "array"
            yield from self._events()
        elif byte == b"{":
            self.end.form = "object"
            yield from self._members()
        elif byte in b'"-0123456789tfnNI':
            reason = "found neither an object nor an array; a trace is one of them"
            raise ReadError(self._base + self._at, reason)
        else:
            raise self._unexpected(expected="a value")
        if self._peek():
            raise self._unexpected(expected="nothing more, because the JSON text has ended")
        self.end.complete = True

    def _members(self) -> Iterator[Batch]:
        self._at += 1
        expected, comma = "a key in quotes or '}'", -1
        while True:
            byte = self._peek()
            if byte == b"}":
                if comma >= 0:
                    raise defect(comma, "comma")
                self._at += 1
                return
            if byte != b'"':
                raise self._unexpected(expected)
            key = self._key()
            if self._peek() != b":":
                raise self._unexpected(expected="':' after a key")
            self._at += 1
            if key == _EVENTS:
                if kind := _KINDS.get(self._peek()):
                    reason = f'"{_EVENTS}" is {kind}; expected an array'
                    raise ReadError(self._base + self._at, reason)
                if self._peek() != b"[":
                    raise self._unexpected(expected="an array")
                yield from self._events()
            else:
                self._header(key)
            byte = self._peek()
            if byte not in (b",", b"}"):
                raise self._unexpected(expected="',' or '}'")
            comma, expected = -1, "a key in quotes after ','"
            if byte == b",":
                comma = self._base + self._at
                self._at += 1

    def _key(self) -> str:
        begin = self._base + self._at
        raw = self._value(MAX_HEADER_BYTES)
        if raw is None:
            raise ReadError(begin, "the key is longer than a trace has any")
        self._check(raw, begin)
        key = unquoted(raw)
        if key in self._keys:
            if key == _EVENTS:
                raise ReadError(begin, f'the key "{_EVENTS}" is there twice')
            raise defect(begin, "key")
        if len(self._keys) < MAX_HEADERS or key == _EVENTS:
            self._keys.append(key)
        return key

    def _header(self, key: str) -> None:
        self._peek()
        begin = self._base + self._at
        raw = self._value(self._room)
        if raw is not None:
            self._check(raw, begin)
        if len(self.headers) < MAX_HEADERS:
            self._room -= len(raw or b"")
            self.headers.append(Header(key, raw))

    def _check(self, raw: bytes, begin: int) -> None:
        """Refuse a text that is no strict JSON, and begins at the byte `begin` of the file.

        What ends too early is followed by what comes next here.
        """
        with suppress(UnicodeDecodeError):
            if len(raw) <= MOST_DECODED and is_sound(raw.decode()):
                return
        try:
            check(raw)
        except CutError as error:
            at = begin + error.offset - self._base
            raise unexpected(self._text, at, error.expected, self._base) from None
        except ReadError as error:
            error.offset += begin
            raise

    def _value(self, most: int, too_long: str = "") -> bytes | None:
        """Cut off the value that begins here; None, or an error, if it is longer than `most`.

        One that the file ends in is a `CutError`.
        """
        begin = self._base + self._at
        end_of, piece, dropped = ValueEnd(), self._text, False
        end = end_of.find(piece, self._at)
        parts, size = [piece], len(piece) - self._at
        while end < 0:
            if size > most:
                if too_long:
                    raise ReadError(begin, too_long)
                self._base += sum(map(len, parts))
                parts, self._at, dropped = [], 0, True
            piece = next(self._pieces, b"")
            if not piece:
                self._text = b"".join(parts)
                raise self._cut_off(dropped)
            end = end_of.find(piece, 0)
            parts.append(piece)
            size += len(piece)
        self._text = b"".join(parts) if len(parts) > 1 or dropped else piece
        end += len(self._text) - len(piece)
        raw, self._at = self._text[self._at : end], end
        return None if dropped or len(raw) > most else raw

    def _cut_off(self, dropped: bool) -> ReadError:
        """Tell a value that is cut off from one that is wrong before."""
        begin = self._base + self._at
        try:
            if not dropped and len(self._text) - self._at <= MOST_LOOKED:
                check(self._text[self._at :])
        except CutError:
            pass
        except ReadError as error:
            if error.code == "json":
                return ReadError(begin + error.offset, error.reason)
        return CutError(self._base + len(self._text), "the rest")

    def _events(self) -> Iterator[Batch]:
        self._in_events = True
        self._at += 1
        comma, is_first = -1, True
        while True:
            byte = self._peek()
            if not byte:
                raise CutError(self._base + self._at, "']'")
            if byte == b"]":
                self._in_events = False
                if comma >= 0:
                    raise defect(comma, "comma")
                break
            if not is_first and comma < 0:
                if byte != b",":
                    raise self._unexpected(expected="',' or ']'")
                comma = self._base + self._at
                self._at += 1
                continue
            if len(self._text) - self._at < ENOUGH:
                self._fill()
            batch = (
                self._many()
                or self._several()
                or self._one("a value or ']'" if is_first else "a value after ','")
            )
            comma, is_first = -1, False
            self.end.events += len(batch.events)
            yield batch
        self._at += 1

    def _batch(self, end: int) -> Batch | None:
        """Decode all that is here up to `end`; None if that is no strict JSON."""
        raw = self._text[self._at : end]
        try:
            text = f"[{raw.decode()}]"
            events = decoded(text, exact=self.exact)
        except NOT_DECODED:
            return None
        if not has_unique_keys(text, events):
            return None
        batch = Batch(events, self.end.events, self._base + self._at, raw, self.exact)
        self._at = end
        return batch

    def _many(self) -> Batch | None:
        """Decode all that is here up to the last end of an event; None if it cannot be told."""
        end = self._text.rfind(self._mark, self._at) + 1
        if end <= self._at or self._failures > MOST_FAILURES:
            return None
        batch = self._batch(end)
        self._failures = 0 if batch else self._failures + 1
        return batch

    def _several(self) -> Batch | None:
        """Decode the events that are sound one by one; None if the first one is not."""
        found = spans(self._text[self._at :], is_cut=True)
        if len(found) > 1:
            before, after = self._at + found[-2][1], self._at + found[-1][0]
            self._mark = b"}" + self._text[before : after + 1]
        while found:
            batch = self._batch(self._at + found[-1][1])
            if batch:
                return batch
            del found[len(found) // 2 :]
        return None

    def _one(self, expected: str) -> Batch:
        """Read one event in detail: one that is odd, or longer than what is here."""
        begin = self._base + self._at
        if self._text[self._at] in b",:}]":
            raise self._unexpected(expected)
        self.end.inside_event = True
        raw = self._value(MAX_EVENT_BYTES, f"the event is longer than {MAX_EVENT_BYTES} bytes")
        assert raw is not None
        self.end.inside_event = False
        event: Any = None
        fault: OddError | None = None
        try:
            self._check(raw, begin)
        except ReadError as error:
            if error.code == "json":
                raise
            fault = OddError(error.reason, "", error.offset - begin, error.code)
            # What is twice in its args is the program's.
            if not isinstance(error, KeyTwiceError) or error.depth == 1:
                event = fault
        try:
            event = SCAN_LONG(raw.decode(), 0)[0] if event is None else event
        except RecursionError:
            event = OddError("nested too deep to be read")
        return Batch([event], self.end.events, begin, raw, is_exact=True, fault=fault)
