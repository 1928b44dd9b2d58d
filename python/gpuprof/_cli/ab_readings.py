"""What one run of a command left behind: results of benchmarks, statistics of scopes, or neither.

The file is one of ``--gpu-benchmark-json``, of `BenchResult.to_json` or of `Stats.to_json`; a run
without a file has its wall time and its CPU time. Each name has one time a run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gpuprof._common.records import format_of
from gpuprof._results.eligible import difference
from gpuprof._results.result import BenchResult
from gpuprof._results.result_files import kind_of, load_data
from gpuprof._timing.stats import Stats
from gpuprof.errors import BaselineError

WALL, CPU, BOTH, JSON, STATS = "wall", "cpu", "both", "json", "stats"
_OF_PROCESS = {WALL: ("wall time",), CPU: ("CPU time",), BOTH: ("wall time", "CPU time")}
SAID = {
    WALL: "wall time of the processes",
    CPU: "CPU time of the processes and of those that they waited for",
    BOTH: "wall and CPU time of the processes",
    JSON: "the median of each benchmark of a run",
    STATS: "the median of each scope of a run",
}


@dataclass(frozen=True)
class Time:
    """The time of one name in one run, with what it has to have in common with the others."""

    ms: float
    clock: str
    result: BenchResult | None = None

    @property
    def tick_ms(self) -> float:
        return self.result.tick_ms if self.result is not None else 0.0

    def difference(self, other: Time) -> str | None:
        """Return why this one, of the base, cannot be compared with the new one; None if it can."""
        if self.result is not None and other.result is not None:
            return difference(self.result, other.result)
        if self.clock != other.clock:
            return f"the baseline has another clock: {self.clock}, not {other.clock}"
        return None


class Reading(NamedTuple):
    """All times of one run, and how long its processes took."""

    measure: str
    times: Mapping[str, Time]
    wall_s: float
    cpu_s: float


def read(path: Path, measure: str | None, wall_s: float, cpu_s: float) -> Reading:
    """Read what a run that took that long left at `path`; None for `measure` finds out what.

    A BaselineError says why it cannot be read, and what was expected.
    """
    is_file = measure not in _OF_PROCESS and os.path.lexists(path)
    there = is_file and path.lstat().st_size > 0
    if measure in _OF_PROCESS or (measure is None and not there):
        measure = measure or BOTH
        both = {"wall time": Time(1e3 * wall_s, "wall"), "CPU time": Time(1e3 * cpu_s, "CPU")}
        times = {name: both[name] for name in _OF_PROCESS[measure]}
        return Reading(measure, times, wall_s, cpu_s)
    if not there:
        wanted = "--gpu-benchmark-json={out}" if measure == JSON else "--stats {out}"
        message = (
            f"it left no file: give it the file's name with {{out}} in the command, as in "
            f"{wanted}, or let it write to the path in the variable GPUPROF_AB_OUT"
        )
        raise BaselineError(message)
    data = load_data(path)
    is_stats = isinstance(data, dict) and data.get("format") == format_of(Stats)
    found = STATS if is_stats else JSON
    if measure is not None and found != measure:
        what = {STATS: "statistics of scopes", JSON: "results of benchmarks"}
        message = f"it left {what[found]}, where --measure {measure} expects {what[measure]}"
        raise BaselineError(message)
    if is_stats:
        times = _of_stats(data)
    else:
        results = kind_of(path, data)[1].results.items()
        times = {name: Time(each.median_ms, each.clock, each) for name, each in results}
    if not times:
        message = "it left a file in which nothing was measured"
        raise BaselineError(message)
    return Reading(found, times, wall_s, cpu_s)


def _of_stats(data: Mapping[str, Any]) -> dict[str, Time]:
    try:
        stats = Stats.from_dict(data)
    except ValueError as error:
        message = f"its statistics cannot be read: {error!r}"
        raise BaselineError(message) from error
    return {
        _name_of(key): Time(row.time.p50_ms, row.clock)
        for key, row in stats.items()
        if row.time.count
    }


def _name_of(key: Any) -> str:
    if isinstance(key, str):
        return key
    which, clock = key
    return f"{which if isinstance(which, str) else ' > '.join(which)} ({clock})"
