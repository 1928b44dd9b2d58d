"""``gpuprof compare`` beside the time: memory and launches end with 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from gpuprof.results import Launches
from tests.cli.conftest import Call
from tests.support.benchmark_results import bench, csv_lines, saved

Compare = Callable[..., tuple[int, str]]
H200 = {"gpu": "NVIDIA H200", "sms": 132, "cpu": "Test CPU", "python": "3"}
WHEN = "2026-11-20T00:00:00+00:00"
GREW = "peak memory 100 MiB -> 124 MiB, +24 %, more than 5 %"
OTHER = "launches were not compared: the baseline has torch 2.10.0, now it is 2.11.0"


def result(name: str, *, ms: float = 1.0, count: int = 40, **changes: Any) -> gpuprof.BenchResult:
    samples = [ms * (1 + (place * 7 % 40 - 20) / 10_000) for place in range(count)]
    return bench(name, samples, machine=H200, created=WHEN, **changes)


def peak(mib: int | None, **more: Any) -> dict[str, Any]:
    memory = {} if mib is None else {"peak_bytes": mib << 20, "change_bytes": 0}
    return {"memory": memory, **more}


def counts(kernels: int, torch: str = "2.11.0") -> dict[str, Any]:
    return {"launches": Launches({"gemm": kernels}, versions={"torch": torch})}


@pytest.fixture
def compare(call: Call) -> Compare:
    """Compare five runs of each side; the benchmark "add" is as given."""

    def compare(
        base: dict[str, Any], new: dict[str, Any], *options: str, mul: Any = None
    ) -> tuple[int, str]:
        for name, changes, beside in zip(
            ("main", "branch"), (base, new), mul or (None, None), strict=True
        ):
            others = [] if beside is None else [result("mul", **beside)]
            for _ in range(5):
                saved(name, WHEN, result("add", **changes), *others)
        return call("compare", "main", "branch", *options)[:2]

    return compare


GROWN = peak(100), peak(124)
MORE_LAUNCHES = counts(2), counts(3)


@pytest.mark.parametrize(
    ("sides", "options", "code", "said"),
    [
        (GROWN, "", 1, f"\n\nMEMORY add: {GREW}\n\n"),
        (GROWN, "--memory-threshold 30%", 0, "100 MiB     124 MiB"),
        (GROWN, "--memory-threshold 0.2", 1, "more than 20 %"),
        (GROWN, "--fail-on slow", 0, "MEMORY add: "),
        (GROWN, "--fail-on memory", 1, "MEMORY add: "),
        (GROWN, "--fail-on never", 0, "MEMORY add: "),
        (
            (peak(None), peak(124)),
            "--fail-on slow,memory,nodata",
            0,
            "note: peak memory was not compared: no baseline run has it; save new runs",
        ),
        (
            MORE_LAUNCHES,
            "",
            1,
            "\n\nLAUNCHES add: launches more: +1 gemm, 2 -> 3 kernels\n\n",
        ),
        ((counts(2), counts(1)), "", 0, "note: launches less: -1 gemm, 2 -> 1 kernels"),
        (MORE_LAUNCHES, "--fail-on slow,memory", 0, "LAUNCHES add: "),
        (MORE_LAUNCHES, "--fail-on launches", 1, "LAUNCHES add: "),
        (MORE_LAUNCHES, "--fail-on=never", 0, "LAUNCHES add: "),
        ((counts(2, torch="2.10.0"), counts(3)), "", 0, OTHER),
        ((counts(2, torch="2.10.0"), counts(3)), "--fail-on incomparable", 1, OTHER),
        # Not 3, although no time could be compared.
        (({**counts(2), "count": 1},) * 2, "", 0, "NODATA"),
    ],
)
def test_what_grew_is_named_and_fails_as_the_options_say(
    compare: Compare, sides: tuple[dict[str, Any], ...], options: str, code: int, said: str
) -> None:
    found, out = compare(*sides, *options.split())
    assert (found, said in out) == (code, True), out


@pytest.mark.parametrize(
    ("base", "new", "shown", "not_shown"),
    [
        (peak(100), peak(104), "104 MiB", "MEMORY"),
        (peak(200), peak(100), "200 MiB", "MEMORY"),
        (peak(None), peak(None), "SAME", "memory"),  # as on the CPU's clock
        (counts(2), counts(2), "SAME", "launches"),
    ],
)
def test_what_did_not_grow_ends_with_0(
    compare: Compare, base: dict[str, Any], new: dict[str, Any], shown: str, not_shown: str
) -> None:
    code, out = compare(base, new)
    assert (code, shown in out, not_shown in out) == (0, True, False), out


def test_the_table_has_both_peaks_of_each_benchmark(compare: Compare) -> None:
    _, out = compare(peak(100), peak(124), mul=(peak(200), peak(200)))
    lines = out.splitlines()
    assert "floor  base memory  new memory  verdict" in lines[3]
    assert lines[5].startswith("add ")
    assert lines[5].endswith("100 MiB     124 MiB  SAME, MEMORY")
    assert lines[6].endswith("200 MiB     200 MiB  SAME")
    assert "2 same, 1 memory, geometric mean" in lines[-1]


def test_a_note_names_its_benchmark_where_there_are_several(compare: Compare) -> None:
    _, out = compare(peak(None), peak(124), mul=(peak(None), peak(None)))
    assert "note: add: peak memory was not compared: no baseline run has it; save new runs" in out


def test_launches_stand_beside_the_verdict_on_the_time(compare: Compare) -> None:
    _, out = compare(counts(2), counts(3))
    assert "SAME, LAUNCHES" in out
    assert "1 same, 1 launches" in out.splitlines()[-1]


def test_both_reasons_are_given(compare: Compare) -> None:
    code, out = compare(peak(100), peak(124, ms=1.5), "--format", "markdown")
    assert code == 1
    assert "SLOW, MEMORY |" in out
    assert "- SLOW add: takes 50.0 % more time" in out
    assert f"- MEMORY add: {GREW}" in out.replace("&#62;", ">")


def test_the_json_has_the_decisions(compare: Compare) -> None:
    base, new = peak(100, **counts(2)), peak(124, **counts(3))
    content: dict[str, Any] = json.loads(compare(base, new, "--format", "json")[1])
    verdicts = content["verdicts"]
    assert (verdicts["same"], verdicts["memory"], verdicts["launches"]) == (1, 1, 1)
    (row,) = content["rows"]
    assert row["launches"]["changes"] == "+1 gemm, 2 -> 3 kernels"
    assert row["memory"] == {
        "verdict": "memory",
        "base_bytes": 100 << 20,
        "new_bytes": 124 << 20,
        "threshold": 0.05,
        "runs": 5,
        "rule": GREW,
    }


def test_the_csv_has_the_counts(compare: Compare) -> None:
    _, out = compare(counts(2), counts(3), "--format=csv")
    (line,) = csv_lines(out)
    assert (line["launches_base_total"], line["launches_new_total"]) == ("2", "3")
    assert [line[f"{kind}verdict"] for kind in ("", "launches_")] == ["same", "launches"]
