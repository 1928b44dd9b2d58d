"""Instructions in tests: said beside the time, and deciding only where they are asked to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.pytest_projects import COMPARE, Project

DECIDE = "--gpu-benchmark-cpu-metric=instructions"
M = 1e6
ONE_TEST = "def test_a(gpu_benchmark): gpu_benchmark(sum, [1])\n"
MORE = "takes 50.0 % more instructions, 1 M -> 1.5 M: more than 3 %"
GREW = [f"INSTRUCTIONS: test_a: {MORE}", "*instructions *1 M -> 1.5 M*"]
REASON = "ENOENT: there is no hardware counter of instructions"


@pytest.fixture
def stored(project: Project) -> Project:
    """A project with a baseline of five runs, on the CPU's clock."""
    project.pytester.makepyfile(test_it=ONE_TEST)
    project.times(1.0)
    project.instructions(test_a=M)
    project.save_runs()
    return project


FAILS = "--gpu-benchmark-fail-on=instructions"
# The time and the instructions now, options, what comes of it, what is said, how many calls.
CASES: dict[str, tuple[float, Any, tuple[str, ...], str, list[str], int]] = {
    "more are shown and do not fail": (
        *(1.0, 1.5 * M, (), "passed"),
        [
            "test_a *SAME, INSTRUCTIONS",
            f"INSTRUCTIONS test_it.py::test_a: {MORE}",
            "*: 1 SAME, 1 INSTRUCTIONS",
        ],
        1,
    ),
    "they fail where they may": (1.0, 1.5 * M, (FAILS,), "failed", GREW, 2),
    "they fail where they decide": (1.0, 1.5 * M, (DECIDE,), "failed", GREW, 2),
    "more in one of two do not fail": (1.0, [1.5 * M, M], (DECIDE,), "passed", [], 2),
    "a slow time with unchanged ones fails with a note": (
        *(2.0, M, (), "failed"),
        ["SLOW: 2.00 times*", "*note *the instructions are unchanged, so the machine is the*"],
        3,
    ),
    "where they decide it passes and the time is said": (
        *(2.0, M, (DECIDE,), "passed"),
        ["note: by its time it is slow: *", "*: 1 SAME"],
        1,
    ),
    "an ini key decides too": (
        *(2.0, M, ("-o", "gpu_benchmark_cpu_metric=instructions"), "passed", [], 1),
    ),
    "where they were not counted the time decides": (
        *(2.0, REASON, (DECIDE,), "failed"),
        ["note: the time decides, not the instructions: * not counted: ENOENT: *"],
        3,
    ),
    "never stays never": (
        *(2.0, 2 * M, (DECIDE, "--gpu-benchmark-fail-on=never"), "passed", [], 1),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_instructions_beside_the_time(stored: Project, case: str) -> None:
    ms, count, options, outcome, said, calls = CASES[case]
    stored.times(ms)
    stored.instructions(test_a=count)
    done = stored.run(COMPARE, *options)
    done.assert_outcomes(**{outcome: 1})
    done.stdout.fnmatch_lines(said)
    assert len(stored.calls()) == calls


def test_why_they_were_not_counted_is_said_where_they_decide(stored: Project) -> None:
    stored.times(2.0)
    stored.instructions(test_a=REASON)
    assert "ENOENT" not in stored.run(COMPARE).stdout.str()


def test_on_the_gpus_clock_they_do_not_decide(project: Project) -> None:
    project.pytester.makepyfile(test_it=ONE_TEST)
    project.on_gpu(1.0)
    project.save_runs()
    project.on_gpu(2.0)
    done = project.run(COMPARE, DECIDE)
    done.assert_outcomes(failed=1)
    assert "instructions" not in done.stdout.str().replace("test_on_the_gpus_clock", "")
