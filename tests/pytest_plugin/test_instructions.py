"""Instructions in tests: said beside the time, and deciding only where they are asked to."""

from __future__ import annotations

import pytest

from tests.support.pytest_projects import COMPARE, Project

DECIDE = "--gpu-benchmark-cpu-metric=instructions"
M = 1e6
ONE_TEST = "def test_a(gpu_benchmark): gpu_benchmark(sum, [1])\n"
MORE = "takes 50.0 % more instructions, 1 M -> 1.5 M: more than 3 %"
REASON = "ENOENT: there is no hardware counter of instructions"


@pytest.fixture
def stored(project: Project) -> Project:
    """A project with a baseline of five runs, on the CPU's clock."""
    project.pytester.makepyfile(test_it=ONE_TEST)
    project.times(1.0)
    project.instructions(test_a=M)
    project.save_runs()
    return project


def now(project: Project, ms: float, count: object) -> None:
    project.times(ms)
    project.instructions(test_a=count)


def test_more_instructions_are_shown_and_do_not_fail(stored: Project) -> None:
    now(stored, 1.0, 1.5 * M)
    done = stored.run(COMPARE)
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(
        [
            "test_a *SAME, INSTRUCTIONS",
            f"INSTRUCTIONS test_it.py::test_a: {MORE}",
            "*: 1 SAME, 1 INSTRUCTIONS",
        ]
    )


@pytest.mark.parametrize("option", ["--gpu-benchmark-fail-on=instructions", DECIDE])
def test_they_fail_where_they_are_asked_to(stored: Project, option: str) -> None:
    now(stored, 1.0, 1.5 * M)
    done = stored.run(COMPARE, option)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([f"INSTRUCTIONS: test_a: {MORE}", "*instructions *1 M -> 1.5 M*"])
    assert len(stored.calls()) == 2, "measured again"


def test_more_instructions_in_one_of_two_measurements_do_not_fail(stored: Project) -> None:
    now(stored, 1.0, [1.5 * M, M])
    stored.run(COMPARE, DECIDE).assert_outcomes(passed=1)


def test_a_slow_time_with_unchanged_instructions_fails_with_a_note(stored: Project) -> None:
    now(stored, 2.0, M)
    done = stored.run(COMPARE)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["SLOW: 2.00 times*", "*note *the instructions are unchanged, so the machine is the*"]
    )


def test_where_they_decide_it_passes_and_the_time_is_said(stored: Project) -> None:
    now(stored, 2.0, M)
    done = stored.run(COMPARE, DECIDE)
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["note: by its time it is slow: *", "*: 1 SAME"])
    assert len(stored.calls()) == 1


def test_the_ini_key_decides_too(stored: Project) -> None:
    stored.pytester.makeini("[pytest]\ngpu_benchmark_cpu_metric = instructions\n")
    now(stored, 2.0, M)
    stored.run(COMPARE).assert_outcomes(passed=1)


def test_where_they_were_not_counted_the_time_decides(stored: Project) -> None:
    now(stored, 2.0, REASON)
    done = stored.run(COMPARE, DECIDE)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["note: the time decides, not the instructions: * not counted: ENOENT: *"]
    )
    done = stored.run(COMPARE)
    assert "ENOENT" not in done.stdout.str()


def test_on_the_gpus_clock_they_do_not_decide(project: Project) -> None:
    project.pytester.makepyfile(test_it=ONE_TEST)
    project.on_gpu(1.0)
    project.save_runs()
    project.on_gpu(2.0)
    done = project.run(COMPARE, DECIDE)
    done.assert_outcomes(failed=1)
    assert "instructions" not in done.stdout.str().replace("test_on_the_gpus_clock", "")


def test_never_stays_never(stored: Project) -> None:
    now(stored, 2.0, 2 * M)
    stored.run(COMPARE, DECIDE, "--gpu-benchmark-fail-on=never").assert_outcomes(passed=1)


def test_an_unknown_metric_is_a_usage_error(stored: Project) -> None:
    done = stored.run(COMPARE, "--gpu-benchmark-cpu-metric=cycles")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(
        ["*cpu-metric: expected one of 'time', 'instructions', 'callgrind', got *"]
    )
