"""``gpuprof compare`` and memory: a peak that grew is shown, and ends with 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprof._cli.main import main
from gpuprof._results.baselines import Baselines, Run
from gpuprof._results.result import BenchResult
from tests.support.benchmark_results import bench

Compare = Callable[..., tuple[int, str]]
H200 = {"gpu": "NVIDIA H200", "sms": 132}
RULE = "peak memory 100 MiB -> 124 MiB, +24 %, more than 5 %"


def result(name: str, ms: float, peak: int | None) -> BenchResult:
    memory = {} if peak is None else {"peak_bytes": peak << 20, "change_bytes": 0}
    samples = [ms * (1 + (place * 7 % 40 - 20) / 10_000) for place in range(40)]
    return bench(name, samples, memory=memory, machine=H200, created="2026-11-20T00:00:00+00:00")


@pytest.fixture
def save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.chdir(tmp_path)

    def call(baseline: str, add: int | None, mul: int | None, *, ms: float = 1.0) -> None:
        results = {"add": result("add", ms, add), "mul": result("mul", 1.0, mul)}
        for _ in range(5):
            run = Run("2026-11-20T00:00:00+00:00", dict(H200), results)
            Baselines(tmp_path / ".gpuprof").append(baseline, run)

    return call


@pytest.fixture
def compare(save: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> Compare:
    def call(*options: str) -> tuple[int, str]:
        code = main(["compare", "main", "branch", *options])
        return code, capsys.readouterr().out

    return call


def test_a_peak_that_grew_is_named_and_ends_with_1(
    save: Callable[..., None], compare: Compare
) -> None:
    save("main", 100, 200)
    save("branch", 124, 200)
    code, out = compare()
    assert code == 1
    lines = out.splitlines()
    assert "floor  base memory  new memory  verdict" in lines[3]
    assert lines[5].startswith("add ")
    assert lines[5].endswith("100 MiB     124 MiB  SAME, MEMORY")
    assert lines[6].endswith("200 MiB     200 MiB  SAME")
    assert f"\n\nMEMORY add: {RULE}\n\n" in out
    assert "2 same, 1 memory, geometric mean" in lines[-1]


def test_memory_that_did_not_grow_ends_with_0(save: Callable[..., None], compare: Compare) -> None:
    save("main", 100, 200)
    save("branch", 104, 100)
    code, out = compare()
    assert code == 0
    assert "MEMORY" not in out
    assert "104 MiB" in out


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--memory-threshold", "30%"), 0),
        (("--memory-threshold", "0.2"), 1),
        (("--fail-on", "slow"), 0),
        (("--fail-on", "memory"), 1),
        (("--fail-on", "never"), 0),
    ],
)
def test_the_options(
    save: Callable[..., None], compare: Compare, options: tuple[str, ...], code: int
) -> None:
    save("main", 100, 200)
    save("branch", 124, 200)
    assert compare(*options)[0] == code


def test_both_reasons_are_given(save: Callable[..., None], compare: Compare) -> None:
    save("main", 100, 200)
    save("branch", 124, 200, ms=1.5)
    code, out = compare("--format", "markdown")
    assert code == 1
    assert "SLOW, MEMORY |" in out
    assert "- SLOW add: takes 50.0 % more time" in out
    assert f"- MEMORY add: {RULE}" in out.replace("&#62;", ">")


def test_the_json_has_the_decision_on_memory(save: Callable[..., None], compare: Compare) -> None:
    save("main", 100, 200)
    save("branch", 124, 200)
    found: dict[str, Any] = json.loads(compare("--format", "json")[1])
    assert (found["verdicts"]["same"], found["verdicts"]["memory"]) == (2, 1)
    add = found["rows"][0]["memory"]
    assert add == {
        "verdict": "memory",
        "base_bytes": 100 << 20,
        "new_bytes": 124 << 20,
        "threshold": 0.05,
        "runs": 5,
        "rule": RULE,
    }


def test_a_side_without_memory_is_a_note_and_no_failure(
    save: Callable[..., None], compare: Compare
) -> None:
    save("main", None, None)
    save("branch", 124, None)
    code, out = compare("--fail-on", "slow,memory,nodata")
    assert code == 0
    assert "note: add: peak memory was not compared: no baseline run has it; save new runs" in out


def test_results_on_the_cpus_clock_say_nothing_of_memory(
    save: Callable[..., None], compare: Compare
) -> None:
    save("main", None, None)
    save("branch", None, None)
    code, out = compare()
    assert code == 0
    assert "memory" not in out
