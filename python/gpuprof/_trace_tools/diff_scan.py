"""What one trace has for a comparison: time by scope and by kernel, and idle time.

Reads gpuprof's traces and torch's. A kernel is joined to the call that launched it by
``args.correlation``, and to the scope that was open there on the launching thread, unless
``args.scope`` says it. Memory is bounded: past the limits below, what comes is summed up by name
alone or left out, and the notes say so. Times are nanoseconds from the first event's.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpuprof._trace_tools import idle
from gpuprof._trace_tools.merge import PID_STEP
from gpuprof._trace_tools.nesting import TOP, enclosing
from gpuprof._trace_tools.scan import (
    EXACT_US,
    Event,
    Scan,
    args_of,
    check_labels,
    own_args,
    shortened,
)

MOST_WORK = 1_000_000
MOST_SCOPES = 1_000_000
MOST_NAMES = 50_000
MOST_NAME = 4096
NONE = TOP  # in the place of a number
OTHER = "(other)"
HOST_SCOPES = frozenset(("scope", "annotation", "user_annotation"))
GPU_SCOPES = frozenset(("gpu", "gpu_in_graph", "gpu_graph"))
WORK = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
CALLS = frozenset(("cuda_runtime", "cuda_driver"))
_LAUNCHES = re.compile("launch|memcpy|memset", re.IGNORECASE)
# torch numbers its steps, so that no two traces would have one in common.
_STEP = re.compile(r"ProfilerStep#\d+")


class Spans:
    """Begin, end, name and track of many ranges, and the number that joins each to others."""

    def __init__(self) -> None:
        self.begin, self.end = array("d"), array("d")
        self.name, self.track, self.link = array("l"), array("l"), array("q")

    def __len__(self) -> int:
        return len(self.begin)

    def add(self, begin: float, size: float, name: int, track: int, link: int) -> None:
        self.begin.append(begin)
        self.end.append(begin + size)
        self.name.append(name)
        self.track.append(track)
        self.link.append(link)

    def size(self, place: int) -> float:
        return self.end[place] - self.begin[place]

    def by_track(self) -> dict[int, list[int]]:
        """Return the places of each track's ranges, outer ones first."""
        found = defaultdict(list)
        for place, track in enumerate(self.track):
            found[track].append(place)
        for places in found.values():
            places.sort(key=lambda place: (self.begin[place], -self.end[place]))
        return found


class Numbers(dict[Any, int]):
    """A number for each thing met, at most `MOST_NAMES`; `NONE` past that."""

    def __missing__(self, key: Any) -> int:
        if len(self) >= MOST_NAMES:
            return NONE
        return self.setdefault(key, len(self))


class Nested:
    """The paths of nested ranges, and which was open on a track at a time."""

    def __init__(self, spans: Spans, names: list[str], slack: float) -> None:
        self.path: list[str] = [""] * len(spans)
        self._parent = array("q", [NONE]) * len(spans)
        self._spans, self._tracks = spans, spans.by_track()
        for places in self._tracks.values():
            rows = [(spans.begin[at], spans.begin[at] - spans.end[at], at) for at in places]
            outer = enclosing(rows, slack)
            for place, (_, _, around) in zip(places, outer, strict=True):
                name = names[spans.name[place]]
                self.path[place] = name if around == NONE else f"{self.path[around]}/{name}"
                self._parent[place] = around

    def at(self, track: int, time: float) -> str:
        """Return the innermost path; one that begins there counts, one that ends there does not."""
        places = self._tracks.get(track, [])
        after = bisect_right(places, time, key=self._spans.begin.__getitem__)
        place = places[after - 1] if after else NONE
        while place != NONE and self._spans.end[place] <= time:
            place = self._parent[place]
        return "" if place == NONE else self.path[place]


@dataclass
class Figures:
    count: int = 0
    ns: float = 0.0

    def add(self, ns: float) -> None:
        self.count += 1
        self.ns += ns

    def per(self, calls: int) -> tuple[float, float]:
        """Return how often, and how many milliseconds, for each of so many calls."""
        return self.count / calls, self.ns / 1e6 / calls


@dataclass
class Contents:
    """What is compared. Rows are by kind (`KINDS`) and name."""

    which: str  # "A" or "B"
    rows: dict[str, dict[str, Figures]] = field(default_factory=dict)
    idle: dict[str, Figures] = field(default_factory=dict)  # by cause, of all devices
    busy: float = 0.0
    devices: int = 0
    launched: int = 0  # pieces of GPU work whose launch is known
    rank: int | None = None
    ranks: int = 1  # how many processes' traces were merged into it
    notes: list[str] = field(default_factory=list)

    @property
    def work(self) -> int:
        return sum(each.count for each in self.rows["kernel"].values())


# Of rows: the GPU's time of scopes that were measured, kernels by the scope that launched them, the
# host's time of scopes, and kernels, copies and memsets by name.
KINDS = ("gpu", "launched", "host", "kernel")


class _Call(NamedTuple):
    """A call that launched work: its begin, when the GPU was given the work, and its track."""

    begin: float
    given: float
    track: int


class DiffScan(Scan):
    """Reads one trace, "A" or "B": `read` it, then ask for `contents`."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self._found = Contents(which)
        self._base: int | None = None
        self._names = Numbers()
        self._tracks = Numbers()
        self._devices = Numbers()
        self._kernels: dict[int, Figures] = defaultdict(Figures)
        self._gpu: dict[int, Figures] = defaultdict(Figures)
        self._host = Spans()
        self._work = Spans()  # the track is the device's number, the link that of its launch
        self._scope: dict[int, str] = {}  # of work that says it
        self._launches: dict[int, _Call] = {}
        self._ranks: set[int] = set()
        self._unkept_work = self._unkept_scopes = 0

    def read(self, pieces: Iterator[bytes]) -> None:
        super().read(pieces)
        for header in self.reader.headers:
            if header.key == "distributedInfo":
                self._found.rank = header.number("rank", self._found.rank)

    def visit(self, event: Event) -> None:
        category, phase = event.get("cat"), event.get("ph")
        if phase == "X":
            if type(category) is not str:
                return
            if category in WORK:
                self._take_work(event, *self._span(event))
            elif category in CALLS:
                self._take_call(event, *self._span(event))
            elif category in HOST_SCOPES:
                self._take_host(event, *self._span(event))
            elif category in GPU_SCOPES:
                self._take_gpu(event, self._span(event)[1])
        elif phase == "M" and type(rank := own_args(event).get("rank")) is int:
            self._found.rank = rank

    def _span(self, event: Event) -> tuple[float, float]:
        """Return begin and length, the begin from the first one on."""
        check_labels(event)
        begin: Any = event.get("ts")
        size: Any = event.get("dur")
        if (
            type(begin) in (int, float)
            and type(size) in (int, float)
            and 0 <= begin < EXACT_US
            and 0 <= size < EXACT_US
        ):
            return self._since_first(round(begin * 1000.0)), size * 1000.0
        exact, length, _ = self.span(event)
        return self._since_first(exact), float(length)

    def _since_first(self, time: int) -> float:
        if self._base is None:
            self._base = time
        return float(time - self._base)

    def _number(self, name: str) -> int:
        name = shortened(name, MOST_NAME)
        return self._names["ProfilerStep" if _STEP.fullmatch(name) else name]

    def _track(self, event: Event) -> int:
        if len(self._ranks) < MOST_NAMES:
            self._ranks.add(_rank_of(event))
        return self._tracks[event.get("pid", ""), event.get("tid", "")]

    def _take_work(self, event: Event, begin: float, size: float) -> None:
        name = self._number(event.get("name", ""))
        self._kernels[name].add(size)
        if len(self._work) >= MOST_WORK:
            self._unkept_work += 1
            return
        args = args_of(event)
        if type(args.get("scope")) is str:
            self._scope[len(self._work)] = shortened(args["scope"], MOST_NAME)
        device = args.get("device")
        number = self._devices[
            _rank_of(event), device if type(device) is int else str(event.get("pid"))
        ]
        self._work.add(begin, size, name, number, _correlation_of(event))

    def _take_call(self, event: Event, begin: float, size: float) -> None:
        name = str(event.get("name"))
        correlation = _correlation_of(event)
        if correlation == NONE or not _LAUNCHES.search(name):
            return
        before = self._launches.get(correlation)
        if before is not None and before.begin <= begin:
            return  # a driver's call inside of the runtime's
        if before is not None or len(self._launches) < MOST_WORK:
            # gpuprof draws the calls on a track beside the thread's.
            thread = args_of(event).get("thread")
            track = self._track({**event, "tid": thread} if type(thread) is int else event)
            given = idle.launched_at(name, begin, begin + size)
            self._launches[correlation] = _Call(begin, given, track)

    def _take_host(self, event: Event, begin: float, size: float) -> None:
        if len(self._host) >= MOST_SCOPES:
            self._unkept_scopes += 1
            return
        name = self._number(event.get("name", ""))
        self._host.add(begin, size, name, self._track(event), NONE)

    def _take_gpu(self, event: Event, size: float) -> None:
        self._track(event)  # which counts its process
        args = args_of(event)
        longer: Any = args.get("gpu_us")  # where the slice was cut to fit its track
        if type(longer) in (int, float) and longer >= 0:
            size = longer * 1000.0
        path = args.get("path")
        name = path if isinstance(path, str) else event.get("name", "")
        self._gpu[self._number(name)].add(size)

    def contents(self) -> Contents:
        found, work = self._found, self._work
        names = [*self._names, OTHER]  # the last one is that of `NONE`
        host = Nested(self._host, names, self.slack)
        rows: dict[str, dict[str, Figures]] = {kind: defaultdict(Figures) for kind in KINDS}
        for place, path in enumerate(host.path):
            rows["host"][path].add(self._host.size(place))
        for kind, totals in (("gpu", self._gpu), ("kernel", self._kernels)):
            rows[kind] = {names[name]: figures for name, figures in totals.items()}
        calls = [self._launches.get(link) for link in work.link]
        for place, call in enumerate(calls):
            path = self._scope.get(place) or (host.at(call.track, call.begin) if call else "")
            rows["launched"][path or "(no scope)"].add(work.size(place))
        if set(rows["launched"]) == {"(no scope)"}:
            rows["launched"].clear()
        found.rows, found.devices = rows, len(self._devices)
        found.launched = len(calls) - calls.count(None)
        found.ranks = max(len(self._ranks), 1)
        found.notes = self._notes()
        found.idle = {cause: Figures() for cause in idle.CAUSES}
        for places in work.by_track().values():
            gaps = list(idle.gaps(self._given(place, calls[place]) for place in places))
            for gap in gaps:
                found.idle[gap.cause].add(gap.ns)
            span = max(work.end[place] for place in places) - work.begin[places[0]]
            found.busy += span - sum(gap.ns for gap in gaps)
        return found

    def _given(self, place: int, call: _Call | None) -> idle.Work:
        work, given = self._work, call.given if call else None
        launch = None if work.link[place] == NONE else work.link[place]
        return work.begin[place], work.end[place], launch, given

    def _notes(self) -> list[str]:
        notes = self.notes()
        if self._unkept_work:
            notes.append(
                f"idle time and kernels by scope are of the first "
                f"{MOST_WORK:,} pieces of GPU work; {self._unkept_work:,} came later"
            )
        if self._unkept_scopes:
            notes.append(f"{self._unkept_scopes:,} scopes past the first were not counted")
        return notes


def _rank_of(event: Event) -> int:
    """Return which of the processes in a merged trace an event belongs to."""
    pid = event.get("pid")
    return pid // PID_STEP if type(pid) is int and 0 <= pid < 1 << 62 else 0


def _correlation_of(event: Event) -> int:
    """Return what joins work and its launch, another number in each rank; `NONE` without."""
    number = args_of(event).get("correlation")
    if type(number) is not int or not 0 < number < 1 << 32:
        return NONE
    rank = _rank_of(event)
    return rank << 32 | number if rank < 1 << 30 else NONE
