"""What one trace says of itself, before it is merged with others."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from gpuprof._trace.batch import Batch, End, Header, Odd
from gpuprof._trace.json_scanner import ReadError, members
from gpuprof._trace.reader import EventReader
from gpuprof._trace.values import MOST_NS, Event, OddError, check_labels, not_an_object, phase_of

MOST_PROCESSES = 20_000
MOST_PID = 256  # characters
MOST_RANK = 1 << 20
MOST_MEMBER = 4096
BASE = "baseTimeNanoseconds"
_LABELS = ("ph", "name", "cat", "pid", "tid")
_get_labels = itemgetter(*_LABELS)


def bad(batch: Batch, place: int, error: OddError) -> ReadError:
    """Say where the member is that cannot be used."""
    found = members(batch.text_of(place)).get(error.member)
    at = batch.offset_of(place) + (found.begin if found else 0)
    return ReadError(at, error.reason, batch.first + place)


def checked(batch: Batch, known: set[tuple[Any, ...]]) -> list[Event]:
    """Return the events, if all can be merged."""
    with contextlib.suppress(KeyError, TypeError):
        if known.issuperset(map(_get_labels, batch.events)):
            return batch.events
    for place, event in enumerate(batch.events):
        try:
            if isinstance(event, Odd):
                raise ReadError(batch.offset + event.at, event.reason, batch.first)
            if not isinstance(event, dict):
                raise not_an_object(event)
            labels = tuple(map(event.get, _LABELS))
            try:
                if labels in known:
                    continue
            except TypeError:
                pass  # one that cannot be a label
            phase_of(event)
            check_labels(event)
            if None not in labels and len(known) < MOST_PROCESSES:
                known.add(labels)
        except OddError as error:
            raise bad(batch, place, error) from None
    return batch.events


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


class Scan:
    """What one file says of itself; `read` it first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.base: int | None = None  # nanoseconds since the epoch
        self.rank: int | None = None
        # In the order of their first event: whether a process has labels.
        self.processes: dict[int | str | bytes, bool] = {}
        self.headers: list[Header] = []
        self.end = End()

    def read(self, pieces: Iterator[bytes]) -> None:
        """Read a whole file."""
        reader = EventReader(pieces, exact=True)
        known: set[tuple[Any, ...]] = set()
        for batch in reader.batches():
            events = checked(batch, known)
            for pid in dict.fromkeys([event["pid"] for event in events if "pid" in event]):
                if pid not in self.processes:
                    self._add(pid, batch)
            for event in events:
                if event["ph"] == "M":
                    self._take_metadata(event)
        self.end = reader.end
        self._take_headers(reader.headers)

    def _add(self, pid: int | str | bytes, batch: Batch) -> None:
        if len(self.processes) >= MOST_PROCESSES:
            what = f"there are more than {MOST_PROCESSES} processes"
            raise ReadError(batch.offset, what, batch.first)
        if len(str(pid)) > MOST_PID:
            what = f"a pid is longer than {MOST_PID} characters"
            raise ReadError(batch.offset, what, batch.first)
        self.processes[pid] = False

    def _take_metadata(self, event: Event) -> None:
        name, args = event.get("name"), event.get("args")
        # What gpuprof's array form says in its first event.
        if name == "gpuprof" and isinstance(args, dict):
            self.base = _whole(args.get(BASE)) if self.base is None else self.base
            self.rank = _whole(args.get("rank")) if self.rank is None else self.rank
        if name == "process_labels" and "pid" in event:
            self.processes[event["pid"]] = True

    def _take_headers(self, headers: list[Header]) -> None:
        for header in headers:
            value = _decoded(header)
            if header.key == BASE:
                self.base = _whole(value)
            elif header.key == "viztracer_metadata" and isinstance(value, dict):
                base = _whole(value.get(BASE))
                self.base = self.base if base is None else base
            elif header.key == "distributedInfo" and isinstance(value, dict):
                rank = _whole(value.get("rank"))
                self.rank = self.rank if rank is None else rank
        known = (BASE, "displayTimeUnit")
        self.headers = [
            header
            for header in headers
            if header.key not in known and header.value and len(header.value) <= MOST_MEMBER
        ]
        if self.rank is not None and not 0 <= self.rank <= MOST_RANK:
            self.rank = None
        if self.base is not None and not 0 <= self.base <= MOST_NS:
            raise ReadError(0, f'"{BASE}" is {self.base}; expected nanoseconds since 1970')


def _decoded(header: Header) -> object:
    if header.key not in (BASE, "viztracer_metadata", "distributedInfo") or not header.value:
        return None
    try:
        value: object = json.loads(header.value)
    except (ValueError, RecursionError):
        return None
    return value
