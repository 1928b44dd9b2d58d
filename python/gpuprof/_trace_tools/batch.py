"""Events of a trace that are decoded together, by orjson where that is installed.

Both decoders are strict but for keys that are there twice; these are found by counting.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gpuprof._trace_tools.lexer import unquoted
from gpuprof._trace_tools.values import OddError

MOST_INT_DIGITS = 4000  # Python refuses to convert longer ones
GAP = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
_KEY = re.compile(r'[ \t\n\r,]*("(?:[^"\\]|\\.)*")[ \t\n\r]*:[ \t\n\r]*')

Scan = Callable[[str, int], tuple[Any, int]]


def _refuse_constant(name: str) -> NoReturn:
    message = f"{name} is not JSON"
    raise ValueError(message)


def _long_int(digits: str) -> int | bytes:
    return int(digits) if len(digits) < MOST_INT_DIGITS else digits.encode()


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        message = "a key is there twice"
        raise ValueError(message)
    return found


def _scanner(**options: Any) -> Scan:
    decoder: Any = json.JSONDecoder(**{"parse_constant": _refuse_constant, **options})
    scan: Scan = decoder.scan_once
    return scan


# "Exact" scanners leave numbers with a fraction as bytes: all digits, and no strings of the file.
SCAN = _scanner()
_SCAN_EXACT = _scanner(parse_float=str.encode)
_SCAN_UNIQUE = _scanner(object_pairs_hook=_refuse_twice)
SCAN_LONG = _scanner(parse_float=str.encode, parse_int=_long_int)
_loads: Callable[[str], Any] | None
try:
    _loads = importlib.import_module("orjson").loads
except ImportError:
    _loads = None
NOT_DECODED = (ValueError, RecursionError, StopIteration)


def decoded(text: str, *, exact: bool) -> Any:
    """Decode a whole text, by orjson where that is installed; one of `NOT_DECODED` is raised."""
    if _loads and not exact:
        try:
            return _loads(text)
        except ValueError:
            pass  # a lone surrogate, or what the other refuses too
    value, end = (_SCAN_EXACT if exact else SCAN)(text, 0)
    if end != len(text):
        raise ValueError(end)
    return value


def has_unique_keys(text: str, events: list[Any]) -> bool:
    """Whether no object has a key twice."""
    if {*map(type, events)} == {dict}:
        keys = sum(map(len, events))
        if (colons := text.count(":")) != keys:
            args = [event["args"] for event in events if "args" in event]
            keys += sum([len(one) for one in args if type(one) is dict])
        if colons == keys:  # there are none but those of the keys
            return True
        is_spaced = any(space in text for space in (" :", "\n:", "\t:", "\r:"))
        if not is_spaced and text.count('":') == keys:
            return True
    return is_sound(text)


def is_sound(text: str) -> bool:
    """Whether this is one value of strict JSON, without a key twice in an object."""
    try:
        return _SCAN_UNIQUE(text, 0)[1] == len(text)
    except NOT_DECODED:
        return False


@dataclass
class Batch:
    """Events that follow each other in a file."""

    events: list[Any]  # `OddError` for one that could not be decoded
    first: int  # the index of the first one
    offset: int  # the byte of the file where it begins
    raw: bytes  # from there to the end of the last one
    is_exact: bool  # numbers with a fraction are bytes
    fault: OddError | None = None  # why the only one is no strict JSON
    _spans: list[tuple[int, int]] = field(default_factory=list)

    def spans(self) -> list[tuple[int, int]]:
        """Return begin and end of each event in `raw`."""
        if not self._spans:
            whole = [(0, len(self.raw))]
            self._spans = whole if len(self.events) == 1 else spans(self.raw, is_cut=False)
        return self._spans

    def text_of(self, number: int) -> bytes:
        """Return the JSON text of one event, as it stands in the file."""
        begin, end = self.spans()[number]
        return self.raw[begin:end]

    def offset_of(self, number: int) -> int:
        """Return the byte of the file where one event begins."""
        return self.offset + self.spans()[number][0]

    def exact_events(self) -> list[Any]:
        """Return the events, numbers with a fraction as bytes."""
        if not self.is_exact:
            self.events, self.is_exact = decoded(f"[{self.raw.decode()}]", exact=True), True
        return self.events


def spans(raw: bytes, *, is_cut: bool) -> list[tuple[int, int]]:
    """Return begin and end of the values in a list's text.

    Of one that may be cut off, only up to the first number or word, which may go on.
    """
    text = raw.decode("latin-1")  # a character for each byte
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(text) and (not is_cut or text[at] in '{["'):
        try:
            end = SCAN(text, at)[1]
        except NOT_DECODED:
            break
        found.append((at, end))
        gap = GAP.match(text, end)
        at = gap.end() if gap else len(text)
    return found


def members(text: bytes) -> dict[str, tuple[int, int]]:
    """Return begin and end of the values in an object's text; the last of a name counts."""
    found: dict[str, tuple[int, int]] = {}
    string, at = text.decode("latin-1"), 1
    while text[:1] == b"{" and (key := _KEY.match(string, at)):
        at = SCAN_LONG(string, key.end())[1]
        found[unquoted(text[key.start(1) : key.end(1)])] = key.end(), at
    return found


@dataclass
class End:
    """How a file ended, as far as it was read."""

    form: str = ""  # "array" or "object"
    complete: bool = False
    events: int = 0  # complete ones
    bytes: int = 0
    inside_event: bool = False  # it is cut off there


@dataclass
class Header:
    """A member of the file beside its events; `value` is its text, None where it is too long."""

    key: str
    value: bytes | None
