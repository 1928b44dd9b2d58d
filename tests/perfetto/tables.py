"""What is in a trace, as plain values: the same type for what was written and what Perfetto shows.

Times are nanoseconds. A track is `(pid, tid)` of a thread or a lane that is written as one, or
`(pid, "async")`, `(pid, "process")`, `("global",)` for what belongs to no thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.perfetto.engine import TraceProcessor

Track: TypeAlias = "tuple[int | str, ...]"
Value: TypeAlias = "int | float | str"
Point: TypeAlias = "tuple[Track, str, int]"  # a slice: its track, its name, when it began

UNFINISHED = -1  # the duration of a slice whose end is not in the file

_SLICES = """
    select s.id, s.ts, s.dur, s.depth, s.parent_id as parent, s.name, s.category,
        t.type, thread.tid, coalesce(tp.pid, pp.pid) as pid
    from slice s join track t on t.id = s.track_id
    left join thread_track tt on tt.id = t.id left join thread using (utid)
    left join process tp on tp.upid = thread.upid
    left join process_track pt on pt.id = t.id left join process pp on pp.upid = pt.upid
    order by s.id"""
_ARGS = """
    select s.id, a.key, a.display_value, a.int_value, a.real_value, a.string_value, a.value_type
    from slice s join args a using (arg_set_id) where a.key glob 'args.*'"""
_COUNTERS = "select t.name, c.ts, c.value from counter c join counter_track t on t.id = c.track_id"
_FLOWS = "select slice_out, slice_in from flow"
_THREADS = """
    select p.pid, t.tid, t.name from thread t join process p using (upid) where t.name != ''"""
_PROCESSES = "select pid, name from process where name != ''"
_TRACKS = {
    "legacy_async_process_slice": "async",
    "legacy_async_global_slice": "global",
    "chrome_process_instant": "process",
    "legacy_chrome_global_instants": "global",
}


@dataclass(frozen=True)
class Slice:
    """A slice, or an instant: `duration` 0. `inside`: the slices around it, outermost first."""

    track: Track
    name: str
    begin: int
    duration: int
    inside: tuple[str, ...] = ()
    category: str = ""
    args: Mapping[str, Value] = field(default_factory=dict)

    @property
    def point(self) -> Point:
        return self.track, self.name, self.begin


@dataclass
class Tables:
    """All of a trace: threads and processes that have a name. A nested argument is `a.b[0]`."""

    slices: list[Slice] = field(default_factory=list)
    counters: list[tuple[str, int, float]] = field(default_factory=list)
    flows: list[tuple[Point, Point]] = field(default_factory=list)
    threads: dict[Track, str] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)

    def named(self, name: str) -> list[Slice]:
        """Return the slices of this name, by when they began."""
        return sorted((s for s in self.slices if s.name == name), key=lambda s: s.begin)

    def one(self, name: str) -> Slice:
        """Return the only slice of this name."""
        (found,) = self.named(name)
        return found

    def on(self, track: Track) -> list[Slice]:
        """Return the slices of a track, in the order in which Perfetto would draw them."""
        mine = (s for s in self.slices if s.track == track)
        return sorted(mine, key=lambda s: (s.begin, len(s.inside)))


def differences(written: Tables, shown: Tables) -> list[str]:
    """Return what one has and the other has not; empty if both are the same."""
    result: list[str] = []
    for what in ("slices", "counters", "flows"):
        ours, theirs = (Counter(map(repr, getattr(side, what))) for side in (written, shown))
        result += [f"{what}: only written: {row}" for row in ours - theirs]
        result += [f"{what}: only shown: {row}" for row in theirs - ours]
    for what in ("threads", "processes"):
        ours, theirs = getattr(written, what), getattr(shown, what)
        result += [
            f"{what}: {key}: written {ours.get(key)!r}, shown {theirs.get(key)!r}"
            for key in sorted(ours.keys() | theirs.keys())
            if ours.get(key) != theirs.get(key)
        ]
    return result


def _plain(row: Mapping[str, object]) -> Value:
    for kind in ("int_value", "real_value", "string_value"):
        value = row[kind]
        if isinstance(value, (int, float, str)):
            return value
    message = f"an argument without a value: {row}"
    raise AssertionError(message)


def _track(row: Mapping[str, object]) -> Track:
    kind = str(row["type"])
    if kind == "thread_execution":
        return int(str(row["pid"])), int(str(row["tid"]))
    where = _TRACKS[kind]
    return (where,) if where == "global" else (int(str(row["pid"])), where)


def _ordered(slices: Iterable[Slice]) -> list[Slice]:
    return sorted(slices, key=lambda s: (s.begin, len(s.inside), repr(s)))


def shown(engine: TraceProcessor, trace: bytes) -> Tables:
    """Return what Perfetto's tables hold of a trace; AssertionError if it found anything wrong."""
    text = engine.text
    engine.load(trace)
    errors = engine.errors()
    assert not errors, errors
    result = Tables()
    args: dict[object, dict[str, Value]] = {}
    for row in engine.query(_ARGS):
        value = _plain(row)
        key = text(str(row["key"]).removeprefix("args."))
        args.setdefault(row["id"], {})[key] = text(value) if isinstance(value, str) else value
    slices: dict[object, Slice] = {}
    for row in engine.query(_SLICES):
        around = slices.get(row["parent"])
        slices[row["id"]] = Slice(
            track=_track(row),
            name=text(str(row["name"])),
            begin=int(str(row["ts"])),
            duration=int(str(row["dur"])),
            inside=(*around.inside, around.name) if around else (),
            category=text(str(row["category"] or "")),
            args=dict(sorted(args.get(row["id"], {}).items())),
        )
    result.slices = _ordered(slices.values())
    for row in engine.query(_COUNTERS):
        number = row["value"]
        assert isinstance(number, float)
        result.counters.append((text(str(row["name"])), int(str(row["ts"])), number))
    for row in engine.query(_FLOWS):
        result.flows.append((slices[row["slice_out"]].point, slices[row["slice_in"]].point))
    for row in engine.query(_THREADS):
        track = (int(str(row["pid"])), int(str(row["tid"])))
        result.threads[track] = text(str(row["name"]))
    for row in engine.query(_PROCESSES):
        result.processes[int(str(row["pid"]))] = text(str(row["name"]))
    return result
