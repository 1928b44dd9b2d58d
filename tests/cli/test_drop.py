"""``gpuprof drop``: which runs of a baseline go, and which stay."""

from __future__ import annotations

from functools import partial

import pytest

from tests.cli.conftest import Call, printed, refusal
from tests.support.benchmark_results import saved, stored
from tests.support.pytest_projects import GPU_MACHINE, made_up

OLD, NEW = "0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98"


@pytest.fixture
def drop(call: Call) -> Call:
    """Drop runs of a baseline of four runs on a CPU and one on a GPU."""
    for day, commit in ((1, OLD), (2, OLD), (3, NEW), (4, None)):
        saved("main", date(day), made_up(1.0 + day), commit=commit)
    gpu = made_up(1.0, mode="graph", clock="cuda", l2="hot", machine=GPU_MACHINE)
    saved("main", date(5), gpu)
    return partial(call, "drop")


def date(day: int) -> str:
    return f"2026-11-{day:02d}T08:00:00+00:00"


def days(machine: str = "cpu-Test-CPU") -> list[int]:
    return [int(run.created[8:10]) for run in stored("main")[machine]]


@pytest.mark.parametrize(
    ("which", "left"),
    [
        (["3"], [1, 2, 4]),
        (["2", "4"], [1, 3]),
        (["2026-11-02"], [1, 3, 4]),
        ([OLD[:7]], [3, 4]),
        ([NEW, "2026-11-04T08:00"], [1, 2]),
    ],
)
def test_runs_are_named_by_number_date_or_commit(
    drop: Call, which: list[str], left: list[int]
) -> None:
    out = printed(drop("main", *which))
    assert days() == left
    assert days("Test-GPU") == [5]
    assert out.count("dropped from main (cpu-Test-CPU): the run of 2026-11-0") == 4 - len(left)


@pytest.mark.parametrize("which", ["7", "2025", "abcdef0"])
def test_a_run_that_is_not_there_is_refused_and_nothing_goes(drop: Call, which: str) -> None:
    err = refusal(drop("main", "2", which))
    assert f"no run of the baseline 'main' is '{which}'; expected a number" in err
    assert days() == [1, 2, 3, 4]


def test_a_number_of_several_machines_needs_one_of_them(drop: Call) -> None:
    err = refusal(drop("main", "1"))
    assert "'1' may be any of the run of 2026-11-0" in err
    assert drop("main", "1", "--machine", "Test-GPU")[0] == 0
    assert (days(), days("Test-GPU")) == ([1, 2, 3, 4], [])


def test_a_baseline_that_is_not_there_is_refused(drop: Call) -> None:
    assert "no baseline is called 'other'" in refusal(drop("other", "1"))
