"""A trace that is cut off made whole: strict JSON again, with every complete event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpuprof._trace_tools.batch import Batch, End
from gpuprof._trace_tools.lexer import ReadError
from gpuprof._trace_tools.reader import EventReader
from gpuprof._trace_tools.scan import own_args

MOST_SHOWN = 256


class Repair:
    """Repairs one trace, into the object form that all readers take."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self.events = self.left_out = 0
        self.end = End()
        self.lost_members: list[str] = []
        self._write = write
        self._written_members = 0

    def read(self, pieces: Iterator[bytes]) -> None:
        """Read a file and write it; what is damaged before its end is a `ReadError`."""
        reader = EventReader(pieces)
        self.end = reader.end
        begun = False
        for batch in reader.batches():
            if fault := batch.fault:
                raise ReadError(batch.offset + fault.at, fault.reason, batch.first)
            text = self._events_of(batch)
            if not text:
                continue
            if not begun:
                self._begin(reader, batch.events)
            self._write((b",\n" if begun else b"\n") + text)
            begun = True
        if not begun:
            self._begin(reader, [])
        self._write(b"\n]")
        self._write_members(reader, is_last=True)
        self._write(b"}\n")

    def _events_of(self, batch: Batch) -> bytes:
        good = [type(each) is dict and len(each) > 0 for each in batch.events]
        self.events += sum(good)
        self.left_out += len(good) - sum(good)
        if all(good):
            return batch.raw
        return b",\n".join(batch.text_of(place) for place, stays in enumerate(good) if stays)

    def _begin(self, reader: EventReader, events: list[Any]) -> None:
        """Begin the object, with what gpuprof's array form says of its clock in its first event."""
        keys = {header.key for header in reader.headers}
        self._write(b"{" if "repairedBy" in keys else b'{"repairedBy":"gpuprof",')
        self._write_members(reader, is_last=False)
        first = next((event for event in events if isinstance(event, dict) and event), {})
        base, rank = map(own_args(first).get, ("baseTimeNanoseconds", "rank"))
        if type(base) is int and "baseTimeNanoseconds" not in keys:
            self._write(b'"displayTimeUnit":"ns","baseTimeNanoseconds":%d,' % base)
        if type(rank) is int and "distributedInfo" not in keys:
            self._write(b'"distributedInfo":{"rank":%d},' % rank)
        self._write(b'"traceEvents":[')

    def _write_members(self, reader: EventReader, *, is_last: bool) -> None:
        """Write the members that have ended: before the events, or after them."""
        for header in reader.headers[self._written_members :]:
            self._written_members += 1
            if header.value is None:
                self.lost_members.append(header.key[:MOST_SHOWN])
                continue
            member = header.member()
            self._write(b"," + member if is_last else member + b",")
