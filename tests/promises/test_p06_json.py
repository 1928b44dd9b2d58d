"""P6: what is written as JSON is strict JSON, whatever the names and values are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

import gpuprof
from tests.support.ids import short

HOSTILE = [
    '"',
    "\\",
    "\n\r\t\x00\x1f\x7f",
    "\ud800",
    "\u2028\u2029",
    "\u202e",
    "</script>",
    "é😀",
    "x" * 10_000,
]


def _refuse(constant: str) -> NoReturn:
    message = f"{constant} is no JSON"
    raise ValueError(message)


@pytest.mark.parametrize("name", HOSTILE, ids=short)
def test_statistics_of_a_hostile_name(name: str) -> None:
    with gpuprof.timer(name, backend="cpu") as sample:
        pass
    text = gpuprof.stats().to_json()
    parsed = json.loads(text.encode("utf-8"), parse_constant=_refuse)
    assert len(parsed["rows"]) == 1
    assert len(json.dumps(sample.to_dict(), allow_nan=False).encode()) < 40_000


@pytest.mark.parametrize("name", HOSTILE, ids=short)
def test_benchmarks_of_a_hostile_name(name: str) -> None:
    quick: Any = {"warmup_s": 0.0, "max_time_s": 0.01}
    result = gpuprof.benchmark(int, name=name, params={name: float("nan")}, **quick)
    compared = gpuprof.compare({name: int, "other": int}, rounds=6, **quick)
    swept = gpuprof.sweep(lambda **_: int, {name: [name, float("inf")]}, **quick)
    for each in (result, compared, swept):
        json.loads(each.to_json().encode("ascii"), parse_constant=_refuse)


@pytest.mark.parametrize("name", HOSTILE, ids=short)
def test_a_trace_with_a_hostile_name_is_complete_and_strict(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with gpuprof.trace(path, args={"run": name}) as writer:
        with gpuprof.timer(name, backend="cpu"):
            pass
        writer.counter(name, {name: 1.0})
        writer.instant(name, cat=name, args={name: name})
    parsed = json.loads(path.read_bytes(), parse_constant=_refuse)
    assert [event["ph"] for event in parsed["traceEvents"] if event["ph"] != "M"] == ["X", "C", "i"]
