"""What tests read out of traces, strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gpuprof
from tests.support.trace_files import load

OLD = '{"displayTimeUnit":"ns","baseTimeNanoseconds":1,"traceEvents":[]}'  # an earlier trace


def events(path: Path, phase: str = "X") -> list[dict[str, Any]]:
    return [event for event in load(path)["traceEvents"] if event["ph"] == phase]


def names(path: Path, phase: str = "X") -> list[str]:
    return [event["name"] for event in events(path, phase)]


def metadata(path: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in events(path, "M") if event["name"] == name]


def cpu_scope(name: str) -> Any:
    return gpuprof.timer(name, backend="cpu")


def measured(name: str) -> None:
    """Enter and leave a scope on the CPU's clock."""
    with cpu_scope(name):
        pass


def assert_tracks_nest(slices: list[dict[str, Any]], slack_us: float = 1e-4) -> None:
    """Check what viewers need: two slices of one track are disjoint, or one is in the other."""
    by_track: dict[int, list[dict[str, Any]]] = {}
    for event in slices:
        by_track.setdefault(event["tid"], []).append(event)
    for track in by_track.values():
        open_ends: list[float] = []
        for event in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
            end = event["ts"] + event["dur"]
            while open_ends and open_ends[-1] <= event["ts"] + slack_us:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + slack_us, event
            open_ends.append(end)


def complete_lines(part: Path) -> list[dict[str, Any]]:
    """Return the events of an array that may end anywhere."""
    lines = part.read_text().removeprefix("[").split("\n")
    return [json.loads(line.rstrip().rstrip(",")) for line in lines[:-1] if line.strip()]


SCOPES = """
import gpuprof, os, sys, time
def work(name, count=1):
    for _ in range(count):
        with gpuprof.timer(name, backend="cpu"):
            pass
"""


def files(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}
