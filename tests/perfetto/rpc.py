"""The messages that Perfetto's engine speaks: protocol buffers, what loading and SQL need of them.

Of `TraceProcessorRpcStream` in Perfetto's trace_processor.proto; the field numbers are its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, TypeAlias

Cell: TypeAlias = "int | float | str | bytes | None"
Field: TypeAlias = "tuple[int, int | bytes]"  # the field's number, its value


class Method(IntEnum):
    """What a request asks for."""

    APPEND = 1
    FINALIZE = 2
    QUERY = 3
    RESET = 11


class Reply(NamedTuple):
    """One answer of the engine. A query may take several; `more` is true of all but the last."""

    sequence: int
    error: str
    columns: list[str]
    cells: list[Cell]
    more: bool


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# TraceProcessorRpc
_SEQUENCE, _REQUEST, _FATAL_ERROR, _APPEND_ARGS, _QUERY_ARGS = 1, 2, 5, 101, 103
_APPEND_RESULT, _QUERY_RESULT, _FINALIZE_RESULT = 201, 203, 212
# The types of cells in QueryResult.CellsBatch
_NULL, _INTEGER, _FLOAT, _STRING, _BLOB = 1, 2, 3, 4, 5


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _chunk(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[Field]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(data, at)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}[kind]
        yield key >> 3, data[at : at + size]
        at += size


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield value - (1 << 64) if value >= 1 << 63 else value


def request(sequence: int, method: Method, argument: bytes = b"") -> bytes:
    """Return a stream of one request; `argument` is the bytes of a trace, or SQL as UTF-8."""
    body = _number(_SEQUENCE, sequence) + _number(_REQUEST, method)
    if method is Method.APPEND:
        body += _chunk(_APPEND_ARGS, argument)
    elif method is Method.QUERY:
        body += _chunk(_QUERY_ARGS, _chunk(1, argument))
    return _chunk(1, body)


class Replies:
    """Puts the engine's answers together from pieces of its stream, cut anywhere."""

    def __init__(self) -> None:
        self._pieces = bytearray()

    def feed(self, piece: bytes) -> Iterator[Reply]:
        """Return the answers that `piece` completes."""
        self._pieces += piece
        while (end := self._end_of_first()) is not None:
            message = bytes(self._pieces[:end])
            del self._pieces[:end]
            for _, body in _fields(message):
                assert isinstance(body, bytes)
                yield _reply(body)

    def _end_of_first(self) -> int | None:
        try:
            _, at = _read_varint(self._pieces, 0)
            size, at = _read_varint(self._pieces, at)
        except IndexError:
            return None
        return at + size if at + size <= len(self._pieces) else None


def _reply(message: bytes) -> Reply:
    sequence, error, columns, cells, more = 0, "", [], [], False
    for field, value in _fields(message):
        if isinstance(value, int):
            sequence = value if field == _SEQUENCE else sequence
        elif field == _FATAL_ERROR:
            error = value.decode()
        elif field in (_APPEND_RESULT, _FINALIZE_RESULT):
            of_error = 2 if field == _APPEND_RESULT else 1
            for part, content in _fields(value):
                if part == of_error and isinstance(content, bytes):
                    error = content.decode()
        elif field == _QUERY_RESULT:
            more = True
            for part, content in _fields(value):
                if isinstance(content, int):
                    continue
                if part == 1:
                    columns.append(content.decode())
                elif part == 2:
                    error = content.decode()
                elif part == 3:
                    batch, last = _batch(content)
                    cells += batch
                    more = more and not last
            more = more and not error
    return Reply(sequence, error, columns, cells, more)


def _batch(data: bytes) -> tuple[list[Cell], bool]:
    """Return a batch's cells, row by row, and whether it is the last one of the result."""
    kinds: list[int] = []
    values: dict[int, Iterator[Cell]] = {_NULL: iter(()), _INTEGER: iter(())}
    blobs: list[Cell] = []
    last = False
    for field, value in _fields(data):
        if isinstance(value, int):
            last = last or (field == 6 and value == 1)
        elif field == 1:
            kinds += _varints(value)
        elif field == 2:
            values[_INTEGER] = iter(list(_varints(value)))
        elif field == 3:
            values[_FLOAT] = iter(struct.unpack(f"<{len(value) // 8}d", value))
        elif field == 4:
            blobs.append(value)
        elif field == 5:
            texts = value.decode("utf-8", "surrogateescape").split("\0")
            values[_STRING] = iter(texts)
    values[_BLOB] = iter(blobs)
    return [None if kind == _NULL else next(values[kind]) for kind in kinds], last
