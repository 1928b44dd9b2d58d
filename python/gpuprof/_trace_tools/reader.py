"""The events of a trace, a batch at a time, from bytes that come in pieces.

Reads the two forms of the Trace Event Format: an object with the array "traceEvents" and other
members before or after it, and the array alone, whose end may be missing. Whole events are cut out
where one ends and the next begins, and decoded together. Where that fails they are looked at one by
one, and the `lexer` says what is wrong. Memory is bounded by a piece and the longest event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gpuprof._trace_tools.batch import (
    NOT_DECODED,
    SCAN,
    Batch,
    End,
    Header,
    decoded,
    has_unique_keys,
    spans,
)
from gpuprof._trace_tools.lexer import (
    CutError,
    OddError,
    ReadError,
    ValueEnd,
    check,
    defect,
    unexpected,
)

MAX_EVENT_BYTES = 64 << 20
MAX_HEADER_BYTES = 4 << 20
MAX_HEADERS = 256
ENOUGH = 1 << 15  # bytes that are worth a batch
MOST_LOOKED = 1 << 16  # bytes of what a file ends in, to see whether it was sound
_BOM = b"\xef\xbb\xbf"
_LONGEST_WORD = 9
_SPACE = re.compile(rb"[ \t\n\r]*")
_LAST_GAP = re.compile(rb".*\}(?=[ \t\n\r]*,[ \t\n\r]*\{)", re.DOTALL)
_EVENTS = "traceEvents"


class EventReader:
    """Reads one file; see the module. Only an event may be no strict JSON, if its end is clear."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.end = End()
        self.headers: list[Header] = []
        self._pieces = pieces
        self._text = bytearray()
        self._at = 0
        self._base = 0  # of `_text` in the file
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
            if self._in_events and error.event is None and error.code == "json":
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
        """Forget what was read, and take the next piece; answer whether there was one."""
        del self._text[: self._at]
        self._base += self._at
        self._at = 0
        piece = next(self._pieces, b"")
        self._text += piece
        return bool(piece)

    def _peek(self) -> bytes:
        """Return the next byte that is no white space; nothing at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return bytes(self._text[self._at : self._at + 1])
            if not self._fill():
                return b""

    def _unexpected(self, expected: str) -> ReadError:
        return unexpected(self._text, self._at, expected, self._base)

    def _file(self) -> Iterator[Batch]:
        while len(self._text) < len(_BOM) and _BOM.startswith(self._text) and self._fill():
            pass
        if self._text.startswith(_BOM):
            raise defect(0, "bom")
        byte = self._peek()
        if not byte:
            return
        if byte == b"[":
            self.end.form = "array"
            yield from self._events()
        elif byte == b"{":
            self.end.form = "object"
            yield from self._members()
        else:
            raise self._unexpected(expected="'{' or '['")
        if self._peek():
            raise self._unexpected(expected="nothing more, because the JSON text has ended")
        self.end.complete = True

    def _items(self, close: bytes, expected: str) -> Iterator[None]:
        """Go from item to item of the object or array that begins here, and past its end."""
        self._at += 1
        comma = -1
        while (byte := self._peek()) != close:
            if not byte or byte in b",:}]":
                raise self._unexpected(expected)
            yield
            byte, comma = self._peek(), -1
            if byte == b",":
                comma = self._base + self._at
                self._at += 1
            elif byte != close:
                raise self._unexpected(expected=f"',' or '{close.decode()}'")
        if comma >= 0:
            raise defect(comma, "comma")
        self._at += 1

    def _members(self) -> Iterator[Batch]:
        for _ in self._items(b"}", "a key in quotes"):
            if self._peek() != b'"':
                raise self._unexpected(expected="a key in quotes")
            key = self._key()
            if self._peek() != b":":
                raise self._unexpected(expected="':' after a key")
            self._at += 1
            if key != _EVENTS:
                self._header(key)
            elif self._peek() == b"[":
                yield from self._events()
            else:
                raise self._unexpected(expected=f'an array, as "{_EVENTS}" is')

    def _key(self) -> str:
        begin = self._base + self._at
        raw = self._value(MAX_HEADER_BYTES)
        if raw is None:
            raise ReadError(begin, "the key is longer than a trace has any")
        self._check(raw, begin)
        key: str = json.loads(raw)
        if key in self._keys:
            raise defect(begin, "key")
        if len(self._keys) < MAX_HEADERS or key == _EVENTS:
            self._keys.append(key)
        return key

    def _header(self, key: str) -> None:
        self._peek()
        begin = self._base + self._at
        raw = self._value(self._room)
        try:
            if raw is not None:
                self._check(raw, begin)
        except RecursionError:
            raw = None
        if len(self.headers) < MAX_HEADERS:
            self._room -= len(raw or b"")
            self.headers.append(Header(key, raw))

    def _check(self, raw: bytes, begin: int) -> None:
        """Refuse a text that is no strict JSON, and begins at the byte `begin` of the file."""
        try:
            check(raw)
        except CutError as error:  # something else comes next
            at = begin + error.offset - self._base
            raise unexpected(self._text, at, "a value", self._base) from None
        except ReadError as error:
            error.offset += begin
            raise

    def _value(self, most: int, too_long: str = "") -> bytes | None:
        """Cut off the value that begins here; None, or an error, if it is longer than `most`.

        One that the file ends in is a `CutError`.
        """
        end_of = ValueEnd(self._peek())
        begin, size, dropped = self._base + self._at, 0, False
        while (end := end_of.find(self._text, self._at + size)) < 0:
            size = len(self._text) - self._at
            if size > most:
                if too_long:
                    raise ReadError(begin, too_long)
                del self._text[self._at :]
                self._base += size
                size, dropped = 0, True
            if not self._fill():
                raise self._cut_off(dropped)
        raw, self._at = bytes(self._text[self._at : end]), end
        return None if dropped or len(raw) > most else raw

    def _cut_off(self, dropped: bool) -> ReadError:
        """Tell a value that is cut off from one that is wrong before."""
        begin, size = self._base + self._at, len(self._text) - self._at
        try:
            if not dropped and size <= MOST_LOOKED:
                check(bytes(self._text[self._at :]))
        except RecursionError:
            pass
        except ReadError as error:
            if error.code == "json" and error.offset <= size - _LONGEST_WORD:
                return ReadError(begin + error.offset, error.reason)
        return CutError(begin + size, "the text ends here; expected the rest")

    def _events(self) -> Iterator[Batch]:
        self._in_events = True
        for _ in self._items(b"]", "an event"):
            if len(self._text) - self._at < ENOUGH:
                self._fill()
            batch = self._many() or self._several() or self._one()
            self.end.events += len(batch.events)
            yield batch
        self._in_events = False

    def _batch(self, end: int) -> Batch | None:
        """Decode all that is here up to `end`; None if that is no strict JSON."""
        raw = bytes(self._text[self._at : end])
        try:
            text = f"[{raw.decode()}]"
            events = decoded(text, raw)
        except NOT_DECODED:
            return None
        if not has_unique_keys(text, events):
            return None
        batch = Batch(events, self.end.events, self._base + self._at, raw)
        self._at = end
        return batch

    def _many(self) -> Batch | None:
        """Decode all that is here up to the last end of an event; None if it cannot be told."""
        end = _LAST_GAP.match(self._text, self._at)
        return self._batch(end.end()) if end else None

    def _several(self) -> Batch | None:
        """Decode the events that are sound one by one; None if the first one is not."""
        found = spans(bytes(self._text[self._at :]), is_cut=True)
        while found:
            batch = self._batch(self._at + found[-1][1])
            if batch:
                return batch
            del found[len(found) // 2 :]
        return None

    def _one(self) -> Batch:
        """Read one event in detail: one that is odd, or longer than what is here."""
        begin = self._base + self._at
        self.end.inside_event = True
        too_long = f"the event is longer than {MAX_EVENT_BYTES} bytes"
        raw = self._value(MAX_EVENT_BYTES, too_long)
        if raw is None:
            raise ReadError(begin, too_long)
        self.end.inside_event = False
        event: Any = None
        fault: OddError | None = None
        try:
            try:
                self._check(raw, begin)
            except ReadError as error:
                if error.code == "json":
                    raise
                fault = OddError(error.reason, error.offset - begin, error.code)
                if not error.is_inner:  # what is twice in its args is the program's
                    event = fault
            event = event or SCAN(raw.decode(), 0)[0]
        except RecursionError:
            event = OddError("nested too deep to be read")
        except ValueError:
            event = OddError("a number of too many digits")
        return Batch([event], self.end.events, begin, raw, fault=fault)
