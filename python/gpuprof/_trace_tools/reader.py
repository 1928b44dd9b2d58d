"""The events of a trace, a batch at a time, from bytes that come in pieces.

Reads the two forms of the Trace Event Format: an object with the array "traceEvents" and other
members before or after it, and the array alone, whose end may be missing. Whole events are cut out
where one ends and the next begins, and decoded together. Where that fails they are decoded one by
one, and an event that the standard library refuses is given to the lexer in `json_scanner`. Memory
is bounded by a piece and the longest event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuprof._trace_tools.batch import (
    GAP,
    NOT_DECODED,
    SCAN,
    SCAN_EXACT,
    SCAN_ODD,
    Batch,
    End,
    Header,
    Odd,
    decoded,
    first_fault,
    has_unique_keys,
)
from gpuprof._trace_tools.json_scanner import (
    NAMES,
    CutError,
    Defect,
    ReadError,
    ValueEnd,
    defects_of,
    mended,
    tokens,
    unexpected,
    unquoted,
)

MAX_EVENT_BYTES = 64 << 20
MAX_HEADER_BYTES = 16 << 20
MAX_HEADERS = 256
ENOUGH = 1 << 15  # bytes that are worth a batch
MOST_FAILURES = 8
MOST_LOOKED = 1 << 16  # bytes of what a file ends in, to see whether it was sound
_BOM = b"\xef\xbb\xbf"
_SPACE = re.compile(rb"[ \t\n\r]*")
_EVENTS = "traceEvents"


class EventReader:
    """Reads one file; see the module.

    A `tolerant` one hands out what can be mended, with the defects; else such an event is `Odd`,
    and such a file a `ReadError`. With `exact`, numbers with a fraction are bytes. A `quick` one
    may miss a key that is there twice where the file has white space before its colons.
    """

    def __init__(
        self,
        pieces: Iterator[bytes],
        *,
        tolerant: bool = False,
        exact: bool = False,
        quick: bool = False,
    ) -> None:
        self.end = End()
        self.headers: list[Header] = []
        self.defects: list[Defect] = []  # outside of events; places are the file's
        self._pieces = pieces
        self.exact = exact  # may change between batches
        self._tolerant, self._quick = tolerant, quick
        self._text = b""
        self._at = 0
        self._base = 0  # of `_text` in the file
        self._mark = b"},"  # what is between two events
        self._failures = 0
        self._room = MAX_HEADER_BYTES
        self._in_events = False

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
            if not self._tolerant:
                raise ReadError(0, "found a byte order mark; expected '{' or '['")
            self.defects.append(Defect("bom", 0, 0, len(_BOM), 0))
            self._at = len(_BOM)

    def _file(self) -> Iterator[Batch]:
        self._keys: list[str] = []
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
            if byte == b"}" and (comma < 0 or self._tolerant):
                if comma >= 0:
                    self.defects.append(Defect("comma", comma, comma, comma + 1, 1))
                self._at += 1
                return
            if byte != b'"':
                raise self._unexpected(expected)
            key, is_new = self._key()
            if self._peek() != b":":
                raise self._unexpected(expected="':' after a key")
            self._at += 1
            if key == _EVENTS:
                if self._peek() != b"[":
                    raise self._not_events()
                yield from self._events()
            else:
                self._header(key, is_new)
            byte = self._peek()
            if byte not in (b",", b"}"):
                raise self._unexpected(expected="',' or '}'")
            comma, expected = -1, "a key in quotes after ','"
            if byte == b",":
                comma = self._base + self._at
                self._at += 1

    def _not_events(self) -> ReadError:
        begin = self._base + self._at
        if not self._peek():
            return self._unexpected("an array")
        try:
            kind = next(tokens(self._value(MAX_HEADER_BYTES) or b"{", [])).kind
        except CutError as error:
            return error
        except ReadError as error:
            return self._moved(error, begin)
        return ReadError(begin, f'"{_EVENTS}" is {NAMES[kind]}; expected an array')

    def _key(self) -> tuple[str, bool]:
        begin = self._base + self._at
        raw = self._value(MAX_HEADER_BYTES)
        if raw is None:
            raise ReadError(begin, "the key is longer than a trace has any")
        self._lex(raw, begin)
        key = unquoted(raw)
        is_new = key not in self._keys
        if not is_new:
            if not self._tolerant or key == _EVENTS:
                shown = unquoted(b'"' + raw[1:65].rstrip(b'"\\') + b'"')
                raise ReadError(begin, f'the key "{shown}" is there twice')
            self.defects.append(Defect("key", begin, begin, begin + len(raw), 1))
        elif len(self._keys) < MAX_HEADERS or key == _EVENTS:
            self._keys.append(key)
        return key, is_new

    def _header(self, key: str, is_new: bool) -> None:
        self._peek()
        begin = self._base + self._at
        raw = self._value(self._room)
        if raw is not None:
            self._lex(raw, begin)
        if is_new and len(self.headers) < MAX_HEADERS:
            self._room -= len(raw or b"")
            self.headers.append(Header(key, raw))

    def _lex(self, raw: bytes, begin: int) -> None:
        """Check a text that is outside of the events."""
        try:
            if not self._tolerant:
                for _ in tokens(raw):
                    pass
                return
            for defect in defects_of(raw):
                moved = {name: getattr(defect, name) + begin for name in ("at", "begin", "end")}
                self.defects.append(defect._replace(**moved))
        except ReadError as error:
            raise self._moved(error, begin) from None

    def _moved(self, error: ReadError, begin: int) -> ReadError:
        """Place an error in the file; what ends too early is followed by what comes next here."""
        at = begin + error.offset
        if isinstance(error, CutError):
            return unexpected(self._text, at - self._base, error.expected, self._base)
        return ReadError(at, error.reason)

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
                for _ in tokens(self._text[self._at :], [] if self._tolerant else None):
                    pass
        except CutError:
            pass
        except ReadError as error:
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
            if byte == b"]" and (comma < 0 or self._tolerant):
                if comma >= 0:
                    self.defects.append(Defect("comma", comma, comma, comma + 1, 1))
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
        self._in_events = False

    def _batch(self, events: list[object], end: int, *, exact: bool) -> Batch:
        """Hand out the events whose text ends at `end`."""
        raw = self._text[self._at : end]
        batch = Batch(events, self.end.events, self._base + self._at, raw, exact)
        self._at = end
        return batch

    def _many(self) -> Batch | None:
        """Decode all that is here up to the last end of an event; None if it cannot be told."""
        end = self._text.rfind(self._mark, self._at) + 1
        if end <= self._at or self._failures > MOST_FAILURES:
            return None
        self._failures += 1
        try:
            text = f"[{self._text[self._at : end].decode()}]"
            events = decoded(text, exact=self.exact)
        except NOT_DECODED:
            return None
        if not has_unique_keys(text, events, quick=self._quick):
            return None
        self._failures = 0
        return self._batch(events, end, exact=self.exact)

    def _several(self) -> Batch | None:
        """Decode one event after the other; None if the first one cannot be."""
        rest = self._text[self._at :]
        try:
            text = rest.decode()
        except UnicodeDecodeError as error:
            text = rest[: error.start].decode()
        scan = SCAN_EXACT if self.exact else SCAN
        events: list[object] = []
        ends: list[int] = []
        at, gap = 0, None
        while at < len(text) and text[at] in '{["':
            try:
                event, end = scan(text, at)
            except NOT_DECODED:
                break
            events.append(event)
            ends.append(end)
            if (found := GAP.match(text, end)) is None:
                break
            gap, at = found, found.end()
        if gap is not None:
            self._mark = f"}}{gap[0]}{text[at : at + 1]}".encode()
        while events and not has_unique_keys(
            f"[{text[: ends[len(events) - 1]]}]", events, quick=self._quick
        ):
            del events[len(events) // 2 :]
        if not events:
            return None
        end = ends[len(events) - 1]
        size = end if text.isascii() else len(text[:end].encode())
        return self._batch(events, self._at + size, exact=self.exact)

    def _one(self, expected: str) -> Batch:
        """Read one event in detail: one that is odd, or longer than what is here."""
        begin = self._base + self._at
        if self._text[self._at] in b",:}]":
            raise self._unexpected(expected)
        self.end.inside_event = True
        raw = self._value(MAX_EVENT_BYTES, f"the event is longer than {MAX_EVENT_BYTES} bytes")
        assert raw is not None
        self.end.inside_event = False
        try:
            defects = defects_of(raw)
        except ReadError as error:
            raise self._moved(error, begin) from None
        odd = None if self._tolerant else first_fault(raw, defects)
        try:
            event = odd or SCAN_ODD(mended(raw, defects).decode(), 0)[0]
        except RecursionError:
            event = Odd("nested too deep to be read")
        return Batch([event], self.end.events, begin, raw, is_exact=True, defects=defects)
