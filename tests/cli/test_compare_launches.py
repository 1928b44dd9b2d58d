"""``gpuprof compare`` and what is counted: more launches end with 1, more instructions if asked."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuprof._cli.main import main
from gpuprof._common.instructions import Instructions
from gpuprof._common.launches import Launches
from gpuprof._results.baselines import Baselines, Run
from gpuprof._results.result import BenchResult
from tests.support.benchmark_results import bench

Compare = Callable[..., tuple[int, str]]
H200 = {"gpu": "NVIDIA H200", "sms": 132, "cpu": "Test CPU", "python": "3"}
WHEN = "2026-11-20T00:00:00+00:00"


def result(
    name: str,
    kernels: dict[str, int],
    instructions: float | None,
    count: int = 40,
    torch: str = "2.11.0",
) -> BenchResult:
    samples = [1.0 + (place * 7 % 40 - 20) / 10_000 for place in range(count)]
    counted = {"launches": Launches(kernels, versions={"torch": torch})}
    if instructions:
        counted["instructions"] = Instructions((instructions,) * 9)  # type: ignore[assignment]
    return bench(name, samples, **counted, machine=H200, created=WHEN)


@pytest.fixture
def compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Compare:
    monkeypatch.chdir(tmp_path)

    def call(
        base: dict[str, int],
        new: dict[str, int],
        *options: str,
        instructions: tuple[float, float] | None = None,
        count: int = 40,
        torch: tuple[str, str] = ("2.11.0", "2.11.0"),
    ) -> tuple[int, str]:
        before, now = instructions or (None, None)
        sides = (("main", base, before, torch[0]), ("branch", new, now, torch[1]))
        for name, kernels, figure, version in sides:
            for _ in range(5):
                results = {"add": result("add", kernels, figure, count, version)}
                Baselines(tmp_path / ".gpuprof").append(name, Run(WHEN, dict(H200), results))
        code = main(["compare", "main", "branch", *options])
        return code, capsys.readouterr().out

    return call


def test_more_launches_are_named_and_end_with_1(compare: Compare) -> None:
    code, out = compare({"gemm": 2}, {"gemm": 2, "add_k": 1})
    assert code == 1
    assert "\n\nLAUNCHES add: launches more: +1 add_k, 2 -> 3 kernels\n\n" in out
    assert "SAME, LAUNCHES" in out
    assert "1 same, 1 launches" in out.splitlines()[-1]


def test_the_same_launches_end_with_0(compare: Compare) -> None:
    code, out = compare({"gemm": 2}, {"gemm": 2})
    assert code == 0
    assert "launches" not in out


def test_fewer_launches_are_a_note(compare: Compare) -> None:
    code, out = compare({"gemm": 2}, {"gemm": 1})
    assert code == 0
    assert "note: launches less: -1 gemm, 2 -> 1 kernels" in out


@pytest.mark.parametrize(
    ("options", "code"),
    [(("--fail-on", "slow,memory"), 0), (("--fail-on", "launches"), 1), (("--fail-on=never",), 0)],
)
def test_what_fails_is_an_option(compare: Compare, options: tuple[str, ...], code: int) -> None:
    found, out = compare({"gemm": 2}, {"gemm": 3}, *options)
    assert (found, "LAUNCHES add: " in out) == (code, True)


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--fail-on", "instructions"), 1)])
def test_more_instructions_are_named_and_fail_if_asked(
    compare: Compare, options: tuple[str, ...], code: int
) -> None:
    found, out = compare({}, {}, *options, instructions=(1e6, 1.5e6))
    assert found == code
    assert "INSTRUCTIONS add: takes 50.0 % more instructions, 1 M -> 1.5 M: more than 3 %" in out


def test_checks_of_launches_alone_are_compared(compare: Compare) -> None:
    code, out = compare({"gemm": 2}, {"gemm": 2}, count=1)
    assert code == 0, "not 3, although no time could be compared"
    assert "NODATA" in out


def test_the_json_has_the_decisions(compare: Compare) -> None:
    _, out = compare({"gemm": 2}, {"gemm": 3}, "--format=json", instructions=(1e6, 1e6))
    content: dict[str, Any] = json.loads(out)
    assert content["verdicts"]["launches"] == 1
    (row,) = content["rows"]
    assert row["launches"]["changes"] == "+1 gemm, 2 -> 3 kernels"
    assert row["instructions"]["verdict"] == "same"


def test_the_csv_has_the_counts(compare: Compare) -> None:
    _, out = compare({"gemm": 2}, {"gemm": 3}, "--format=csv", instructions=(1e6, 2e6))
    (line,) = csv.DictReader(out.splitlines())
    assert (line["base_launches"], line["new_launches"]) == ("2", "3")
    assert (float(line["base_instructions"]), float(line["new_instructions"])) == (1e6, 2e6)
    assert line["verdict"] == "same launches instructions"


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--fail-on", "incomparable"), 1)])
def test_launches_of_another_torch_fail_as_incomparable_if_asked(
    compare: Compare, options: tuple[str, ...], code: int
) -> None:
    found, out = compare({"gemm": 2}, {"gemm": 3}, *options, torch=("2.10.0", "2.11.0"))
    assert found == code
    assert "launches were not compared: the baseline has torch 2.10.0, now it is 2.11.0" in out
