"""Merging files that say how their clocks were measured: offsets, drift, and what is ignored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.trace_files import load

BASE = 1_790_000_000_000_000_000
MS = 1_000_000


def anchor(at_us: float, offset_ns: int, error_ns: int = 20_000, **odd: Any) -> dict[str, Any]:
    """Return an instant of a file whose clock is 5 s at its time 0."""
    args = {
        "clock_ns": 5_000_000_000 + round(at_us * 1000),
        "offset_ns": offset_ns,
        "error_ns": error_ns,
        "reference": "run",
    }
    named = {"name": "clock offset to rank 0", "cat": "gpuprof.clock", "s": "t"}
    return {"ph": "i", "pid": 1, "tid": 1, "ts": at_us, **named, "args": args | odd}


def mark(at_us: float) -> dict[str, Any]:
    return {"ph": "i", "name": "mark", "pid": 1, "tid": 1, "ts": at_us, "s": "t"}


def file(folder: Path, rank: int, *events: dict[str, Any], wall_ms: float = 0.0) -> Path:
    path = folder / f"rank{rank}.json"
    data = {
        "baseTimeNanoseconds": BASE + round(wall_ms * MS),
        "distributedInfo": {"rank": rank},
        "traceEvents": events,
    }
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def merged(folder: Path, *files: Path, options: tuple[str, ...] = ()) -> tuple[str, dict[str, Any]]:
    output = folder / "merged.json"
    command = [sys.executable, "-m", "gpuprof", "trace", "merge", *files, "-o", output, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout, load(output)


def marks(data: dict[str, Any]) -> list[float]:
    return [event["ts"] for event in data["traceEvents"] if event["name"] == "mark"]


def test_the_measured_clock_counts_and_the_wall_clock_does_not(tmp_path: Path) -> None:
    zero = file(tmp_path, 0, anchor(0, 0, 0), mark(100.5))
    # 5 ms behind rank 0's clock, on a host whose wall clock is an hour ahead.
    one = file(tmp_path, 1, anchor(0, 5 * MS, 25_000), mark(100.5), wall_ms=3_600_000.0)
    said, data = merged(tmp_path, zero, one)
    assert marks(data) == [100.5, 5100.5]
    assert data["baseTimeNanoseconds"] == BASE
    assert "rank1.json, rank 1: moved by 5.00 ms (clock measured to within 25.0 µs)" in said
    clock = data["mergedFrom"][1]["clock"]
    assert clock == {
        "reference": "run",
        "offsetNanoseconds": [5 * MS],
        "errorNanoseconds": 25_000,
    }


def test_between_two_measurements_the_offset_is_linear(tmp_path: Path) -> None:
    zero = file(tmp_path, 0, anchor(0, 0, 0))
    one = file(
        tmp_path,
        1,
        mark(50.0),
        anchor(100.0, 2 * MS, 10_000),
        mark(100.0),
        mark(350.0),
        mark(600.0),
        anchor(1100.0, 2 * MS + 1000, 40_000),
        mark(1100.0),
        mark(2000.0),
    )
    said, data = merged(tmp_path, one, zero)
    assert marks(data) == [2050.0, 2100.0, 2350.25, 2600.5, 3101.0, 4001.0]
    assert "measured to within 40.0 µs" in said


def test_a_drift_counts_also_where_the_first_offset_moves_nothing(tmp_path: Path) -> None:
    zero = file(tmp_path, 0, anchor(0, 0, 0))
    one = file(tmp_path, 1, anchor(0, 0), anchor(1000.0, 2000), mark(500.0))
    _, data = merged(tmp_path, zero, one)
    assert marks(data) == [501.0]


def test_a_file_of_another_run_or_without_a_clock_is_placed_by_its_wall_clock(
    tmp_path: Path,
) -> None:
    zero = file(tmp_path, 0, anchor(0, 0, 0), mark(1.0))
    other = file(tmp_path, 1, anchor(0, 9 * MS, reference="other"), mark(1.0), wall_ms=3.0)
    plain = file(tmp_path, 2, mark(1.0), wall_ms=4.0)
    said, data = merged(tmp_path, zero, other, plain)
    assert marks(data) == [1.0, 3001.0, 4001.0]
    assert "rank1.json, rank 1: moved by 3.00 ms, pids" in said
    assert "rank2.json, rank 2: moved by 4.00 ms, pids" in said
    assert ["clock" in source for source in data["mergedFrom"]] == [True, False, False]


def test_a_merged_file_is_merged_again_by_its_base(tmp_path: Path) -> None:
    zero = file(tmp_path, 0, anchor(0, 0, 0), mark(1.0))
    one = file(tmp_path, 1, anchor(0, 5 * MS), mark(1.0))
    merged(tmp_path, zero, one)
    first = (tmp_path / "merged.json").rename(tmp_path / "first.json")
    two = file(tmp_path, 2, mark(1.0), wall_ms=7.0)
    _, data = merged(tmp_path, first, two)
    assert marks(data) == [1.0, 5001.0, 7001.0]


def test_without_aligning_the_times_stay(tmp_path: Path) -> None:
    zero = file(tmp_path, 0, anchor(0, 0, 0), mark(1.0))
    one = file(tmp_path, 1, anchor(0, 5 * MS), mark(1.0))
    _, data = merged(tmp_path, zero, one, options=("--no-align",))
    assert marks(data) == [1.0, 1.0]


@pytest.mark.parametrize(
    "odd",
    [
        {"offset_ns": "5"},
        {"offset_ns": 1.5},
        {"offset_ns": None},
        {"error_ns": -1},
        {"clock_ns": 1 << 70},
        {"offset_ns": True},
        {"reference": 7},
        {"reference": "x" * 1000},
    ],
)
def test_an_instant_that_says_nothing_usable_is_ignored(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    zero = file(tmp_path, 0, anchor(0, 0, 0), mark(1.0))
    said = anchor(0, 5 * MS)
    said["args"].update(odd)
    one = file(tmp_path, 1, said, mark(1.0), wall_ms=2.0)
    _, data = merged(tmp_path, zero, one)
    assert marks(data) == [1.0, 2001.0]
