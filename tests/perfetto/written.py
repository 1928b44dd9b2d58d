"""What a trace file says, read by a strict parser and understood without Perfetto.

Knows the phases that gpuprof writes: X, i, C, b, e, s, t, f and M. Slices of a track nest by their
times; a flow joins the innermost slices around its points.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeAlias

from tests.perfetto.tables import UNFINISHED, Point, Slice, Tables, Track, Value

Event: TypeAlias = "dict[str, Any]"

_INT64 = 1 << 63


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    assert len(result) == len(pairs), f"a key twice: {[key for key, _ in pairs]}"
    return result


def _refuse(constant: str) -> None:
    message = f"not JSON: {constant}"
    raise AssertionError(message)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse, parse_float=Decimal, strict=True
)


def plain(data: bytes) -> bytes:
    """Return the JSON of a file that may be compressed."""
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def strict(data: bytes) -> dict[str, Any]:
    """Return a finished trace: one object, UTF-8, no NaN, no key twice, nothing behind it."""
    import orjson

    orjson.loads(plain(data))
    result = _DECODER.decode(plain(data).decode("utf-8", "strict"))
    assert isinstance(result, dict)
    assert next(reversed(result)) == "traceEvents", "readers look for the other keys before it"
    return result


def complete_events(data: bytes) -> list[Event]:
    """Return the whole events of an unfinished trace in the array form, cut off anywhere."""
    text = plain(data).decode("utf-8", "ignore")
    assert text[:1] in ("", "[")
    result: list[Event] = []
    at = 1
    while True:
        while text[at : at + 1] in (" ", "\n", ","):
            at += 1
        try:
            event, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError:
            return result
        result.append(event)


def _nanoseconds(microseconds: int | Decimal) -> int:
    value = Decimal(microseconds) * 1000
    assert value == int(value), f"{microseconds} us is no whole number of nanoseconds"
    return int(value)


def _category(event: Event) -> str:
    return str(event.get("cat", ""))


def _flat(value: object, key: str) -> Iterator[tuple[str, Value]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{key}[{index}]")
    elif isinstance(value, Decimal):
        yield key, float(value)
    elif isinstance(value, int):
        assert -_INT64 <= value < _INT64, f"{value} must be written as text"
        yield key, int(value)
    elif value is not None:
        yield key, str(value)


def _args(*events: Event) -> dict[str, Value]:
    pairs = (pair for event in events for pair in _flat(event.get("args", {}), ""))
    return dict(sorted(pairs))


def _thread(event: Event) -> Track:
    pid, tid = event["pid"], event["tid"]
    assert 0 < tid < 1 << 32, f"Perfetto takes the process for thread {tid}"
    return pid, tid


def _instant_track(event: Event) -> Track:
    scope = event.get("s", "t")
    if scope == "t":
        return _thread(event)
    return (event["pid"], "process") if scope == "p" else ("global",)


def _nested(slices: list[Slice]) -> Iterator[Slice]:
    """Return a track's slices with what they are in; of equals, the first in the file is around."""
    around: list[Slice] = []
    for each in sorted(slices, key=lambda s: (s.begin, -s.duration)):
        while around and around[-1].begin + around[-1].duration <= each.begin:
            # What lasts no time lies in another of its kind at the same moment.
            if around[-1].duration == 0 and around[-1].begin == each.begin:
                break
            around.pop()
        if around:
            end = around[-1].begin + around[-1].duration
            assert each.begin + each.duration <= end, f"{each} crosses {around[-1]}"
        done = replace(each, inside=tuple(outer.name for outer in around))
        around.append(done)
        yield done


def _async(events: list[Event]) -> Iterator[Slice]:
    """Pair `b` with `e`, which share an identity; those of one identity nest."""
    open_: dict[object, list[Event]] = {}
    for event in sorted(events, key=lambda e: e["ts"]):
        local = event.get("id2", {}).get("local")
        track: Track = ("global",) if local is None else (event["pid"], "async")
        identity = (track, str(event.get("id", local)), _category(event))
        stack = open_.setdefault(identity, [])
        if event["ph"] == "b":
            stack.append(event)
        elif stack:
            first = stack.pop()
            yield _between(track, first, event, stack)
    for (track, *_), stack in open_.items():  # type: ignore[misc]
        for depth, first in enumerate(stack):
            yield _between(track, first, None, stack[:depth])


def _between(track: Track, first: Event, last: Event | None, around: list[Event]) -> Slice:
    begin = _nanoseconds(first["ts"])
    return Slice(
        track=track,
        name=first["name"],
        begin=begin,
        duration=UNFINISHED if last is None else _nanoseconds(last["ts"]) - begin,
        inside=tuple(outer["name"] for outer in around),
        category=_category(first),
        args=_args(first, *([] if last is None else [last])),
    )


class _Threads:
    """The slices of each thread by their begin, to find the innermost one at a moment."""

    def __init__(self, slices: list[Slice]) -> None:
        self._of: dict[Track, list[Slice]] = {}
        for each in sorted(slices, key=lambda s: (s.begin, len(s.inside))):
            self._of.setdefault(each.track, []).append(each)

    def at(self, event: Event) -> Point | None:
        now = _nanoseconds(event["ts"])
        mine = self._of.get(_thread(event), [])
        for each in reversed(mine[: bisect_right(mine, now, key=lambda s: s.begin)]):
            if each.begin + each.duration >= now:
                return each.point
        return None


def _flows(events: list[Event], slices: list[Slice]) -> Iterator[tuple[Point, Point]]:
    threads = _Threads(slices)
    last: dict[object, Point] = {}
    for event in sorted(events, key=lambda e: e["ts"]):
        here = threads.at(event)
        assert here is not None, f"an arrow in no slice is not drawn: {event}"
        if event["ph"] == "s":
            assert event["id"] not in last, f"a second arrow of the same number: {event}"
        elif event["id"] in last:
            yield last[event["id"]], here
        if event["ph"] == "f":
            assert event.get("bp") == "e", f"an arrow to the next slice, not this one: {event}"
            last.pop(event["id"], None)
        else:
            last[event["id"]] = here


def written(events: list[Event]) -> Tables:
    """Return what the events of a file say."""
    result = Tables()
    on_threads: dict[Track, list[Slice]] = {}
    async_: list[Event] = []
    flows: list[Event] = []
    for event in events:
        phase = event["ph"]
        if phase == "M":
            _metadata(result, event)
            continue
        if phase == "C":
            for series, value in event["args"].items():
                name = f"{event['name']} {series}"
                result.counters.append((name, _nanoseconds(event["ts"]), float(value)))
        elif phase in ("b", "e"):
            async_.append(event)
        elif phase in ("s", "t", "f"):
            flows.append(event)
        else:
            assert phase in ("X", "i"), event
            track = _thread(event) if phase == "X" else _instant_track(event)
            duration = _nanoseconds(event["dur"]) if phase == "X" else 0
            begin = _nanoseconds(event["ts"])
            assert begin >= 0, f"Perfetto drops what is before zero: {event}"
            assert duration >= 0, event
            on_threads.setdefault(track, []).append(
                Slice(track, event["name"], begin, duration, (), _category(event), _args(event))
            )
    for slices in on_threads.values():
        result.slices += _nested(slices)
    result.flows = list(_flows(flows, result.slices))
    result.slices += _async(async_)
    result.slices.sort(key=lambda s: (s.begin, len(s.inside), repr(s)))
    return result


def _metadata(result: Tables, event: Event) -> None:
    if event["name"] == "process_name":
        result.processes[event["pid"]] = event["args"]["name"]
    elif event["name"] == "thread_name":
        result.threads[_thread(event)] = event["args"]["name"]
