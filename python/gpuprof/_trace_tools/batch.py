"""Events of a trace that are decoded together, by orjson where that is installed.

Both decoders are strict but for keys that are there twice; these are found by counting.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gpuprof._trace_tools.lexer import OddError, ReadError, check

GAP = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(  # type: ignore[attr-defined]
    parse_constant=_refuse_constant
).scan_once
_loads: Callable[[str], Any] | None = None
with suppress(ImportError):
    _loads = importlib.import_module("orjson").loads
NOT_DECODED = (ValueError, RecursionError, StopIteration)
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)


def decoded(text: str, raw: bytes) -> Any:
    """Decode a list, whose items are `raw`; one of `NOT_DECODED` is raised.

    By orjson where that is installed, unless there may be a whole number above 64 bits, which it
    rounds.
    """
    if _loads and b"0" * 20 not in raw.translate(_ZEROS):
        with suppress(ValueError):  # a lone surrogate, or what the other refuses too
            return _loads(text)
    value, end = SCAN(text, 0)
    if end != len(text):
        raise ValueError(end)
    return value


def has_unique_keys(text: str, events: list[Any]) -> bool:
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
    try:
        check(text.encode())
    except (ReadError, RecursionError):
        return False
    return True


@dataclass
class Batch:
    events: list[Any]  # `OddError` for one that could not be decoded
    first: int  # the index of the first one
    offset: int  # the byte of the file where it begins
    raw: bytes  # from there to the end of the last one
    fault: OddError | None = None  # why the only one is no strict JSON
    _spans: list[tuple[int, int]] = field(default_factory=list)

    def spans(self) -> list[tuple[int, int]]:
        if not self._spans:
            whole = [(0, len(self.raw))]
            self._spans = whole if len(self.events) == 1 else spans(self.raw, is_cut=False)
        return self._spans

    def text_of(self, number: int) -> bytes:
        begin, end = self.spans()[number]
        return self.raw[begin:end]

    def offset_of(self, number: int) -> int:
        return self.offset + self.spans()[number][0]


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


@dataclass
class End:
    """How a file ended, as far as it was read."""

    form: str = ""  # "array" or "object"
    complete: bool = False
    events: int = 0  # complete ones
    bytes: int = 0
    inside_event: bool = False  # it is cut off there

    @property
    def may_go_on(self) -> bool:
        """Whether it is the array form without its end, cut off after an event."""
        return not self.complete and self.form == "array" and not self.inside_event


@dataclass
class Header:
    """A member of the file beside its events; `value` is its text, None where it is too long."""

    key: str
    value: bytes | None

    def member(self) -> bytes:
        return json.dumps(self.key).encode() + b":" + (self.value or b"null")

    def number(self, key: str, default: int | None) -> int | None:
        """Return the whole number that it has as `key`, if it is an object with one."""
        value = self.decoded()
        found = value.get(key) if isinstance(value, dict) else None
        return found if type(found) is int else default

    def decoded(self) -> Any:
        """Return what it says, None where that is not known."""
        with suppress(ValueError, RecursionError):
            return json.loads(self.value or b"null")
        return None
