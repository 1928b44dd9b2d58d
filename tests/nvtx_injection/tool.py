"""What the NVTX tool of the tests was told, read in the process that told it."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass

KINDS = (
    *("domain", "register", "category", "push", "pop", "mark", "start", "end"),
    *("schema", "thread", "stream"),
)
_REGISTERED = 3
_ARGB = 1
# Payload types to how struct reads the eight bytes.
_PAYLOADS = {1: "<Q", 2: "<q", 3: "<d"}
_ARRAY = 0xDFBD0009 - (1 << 32)  # NVTX_PAYLOAD_TYPE_EXT
# NVTX's types of elements, from INT8 on and from FLOAT16 on; 32 is a byte.
_ELEMENTS = dict(enumerate("bBhHiIqQ", 11)) | {42: "e", 43: "f", 44: "d", 32: "B"}


class _Event(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int32),
        ("tid", ctypes.c_uint32),
        ("domain", ctypes.c_char_p),
        ("text", ctypes.c_char_p),
        ("message_type", ctypes.c_int32),
        ("category", ctypes.c_uint32),
        ("color_type", ctypes.c_int32),
        ("color", ctypes.c_uint32),
        ("payload_type", ctypes.c_int32),
        ("unused", ctypes.c_uint32),
        ("payload", ctypes.c_uint64),
        ("id", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("bytes", ctypes.POINTER(ctypes.c_uint8)),
    ]


@dataclass(frozen=True)
class Event:
    """One call that the tool got; what a kind does not have is None."""

    kind: str
    tid: int
    domain: str | None
    text: str | None
    registered: bool
    category: int
    color: int | None
    payload: int | float | list[int | float] | None
    id: int


class Tool:
    """The tool that NVTX_INJECTION64_PATH names, which NVTX loads too."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["NVTX_INJECTION64_PATH"])
        self._library.injection_count.restype = ctypes.c_size_t
        self._library.injection_event.argtypes = [ctypes.c_size_t]
        self._library.injection_event.restype = ctypes.POINTER(_Event)

    def events(self, *kinds: str) -> list[Event]:
        """Return all calls so far, or those of some kinds."""
        count = self._library.injection_count()
        raw = [self._library.injection_event(i).contents for i in range(count)]
        schema = KINDS.index("schema")
        schemas = {event.id: event.payload for event in raw if event.kind == schema}
        found = [_read(event, schemas) for event in raw]
        return [event for event in found if not kinds or event.kind in kinds]

    def calls(self) -> list[str]:
        """Return pushes, pops, marks, starts and ends in short: ``push a``, ``pop``."""
        return [
            f"{event.kind} {event.text}" if event.text is not None else event.kind
            for event in self.events("push", "pop", "mark", "start", "end")
        ]


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8")  # strict: what is given must be UTF-8


def _array(event: _Event, schemas: dict[int, int]) -> list[int | float]:
    """Decode an array payload: the number of its elements, then the elements."""
    element = event.payload
    while element in schemas:
        element = schemas[element]
    content = bytes(event.bytes[: event.size])
    (count,) = struct.unpack_from("<Q", content)
    return list(struct.unpack(f"<{count}{_ELEMENTS[element]}", content[8:]))


def _read(event: _Event, schemas: dict[int, int]) -> Event:
    payload: int | float | list[int | float] | None = None
    if event.payload_type == _ARRAY:
        payload = _array(event, schemas)
    elif event.payload_type:
        form = _PAYLOADS[event.payload_type]
        (payload,) = struct.unpack(form, struct.pack("<Q", event.payload))
    return Event(
        kind=KINDS[event.kind],
        tid=event.tid,
        domain=_text(event.domain),
        text=_text(event.text),
        registered=event.message_type == _REGISTERED,
        category=event.category,
        color=event.color if event.color_type == _ARGB else None,
        payload=payload,
        id=event.id,
    )
