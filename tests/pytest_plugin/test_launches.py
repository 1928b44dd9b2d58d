"""Launches in tests: a test that launches more fails, in words; what does not fail, and how."""

from __future__ import annotations

import json

import pytest

from tests.support.pytest_projects import COMPARE, TWO_TESTS, Project, marked

STEP = {"sgemm": 2, "add_k": 12}
MORE = {**STEP, "add_k": 14}
GREW = "LAUNCHES: test_b: launches more: +2 add_k, 14 -> 16 kernels"
CHECKS = """
def test_b(gpu_benchmark):
    assert gpu_benchmark.check_launches(sum, [1]).num_kernels >= 14
"""


@pytest.fixture
def stored(project: Project) -> Project:
    """A project with a baseline of five runs."""
    project.pytester.makepyfile(test_it=TWO_TESTS)
    project.on_gpu(1.0)
    project.launches(test_a=STEP, test_b=STEP)
    project.save_runs()
    return project


def test_the_test_that_launches_more_fails_by_name_and_in_words(stored: Project) -> None:
    stored.launches(test_a=STEP, test_b=MORE)
    shown = stored.check(COMPARE, passed=1, failed=1)
    assert len(stored.calls()) == 2, "there is no chance in it, so it is not measured again"
    shown.fnmatch_lines(
        [
            "*_ test_b _*",
            GREW,
            "*launches     launches more: +2 add_k, 14 -> 16 kernels",
            "test_a *SAME",
            "test_b *SAME, LAUNCHES",
            "LAUNCHES test_it.py::test_b: launches more: +2 add_k, 14 -> 16 kernels",
            "*: 2 SAME, 1 LAUNCHES",
            "FAILED test_it.py::test_b - Failed: LAUNCHES: test_b: launches more: +2*",
        ]
    )


def test_the_same_launches_pass(stored: Project) -> None:
    shown = stored.check(COMPARE, passed=2)
    assert "LAUNCHES" not in shown.str()
    assert "note:" not in shown.str()


def test_fewer_launches_pass_and_are_said(stored: Project) -> None:
    stored.launches(test_a=STEP, test_b={"fused_k": 1, "sgemm": 2})
    shown = stored.check(COMPARE, passed=2)
    less = "launches less: +1 fused_k, -12 add_k, 14 -> 3 kernels"
    shown.fnmatch_lines([f"note: test_it.py::test_b: {less}", "*: 2 SAME"])


def test_another_version_of_a_library_is_not_compared(project: Project) -> None:
    project.pytester.makepyfile(test_it=TWO_TESTS)
    project.on_gpu(1.0)
    project.launches(versions={"torch": "2.10.0"}, test_a=STEP, test_b=STEP)
    project.save_runs()
    project.launches(versions={"torch": "2.11.0"}, test_a=STEP, test_b=MORE)
    shown = project.check(COMPARE, passed=2)
    why = "launches were not compared: the baseline has torch 2.10.0, now it is 2.11.0"
    shown.fnmatch_lines([f"note: {why}"])
    shown = project.check(COMPARE, "--gpu-benchmark-fail-on=incomparable", failed=2)
    shown.fnmatch_lines([f"INCOMPARABLE: test_a: {why}"])


def test_a_baseline_without_counts_is_no_failure_and_a_note(project: Project) -> None:
    project.pytester.makepyfile(test_it=TWO_TESTS)
    project.on_gpu(1.0)
    project.save_runs()
    for path in (project.path / ".gpuprof" / "baselines" / "main").glob("*.jsonl"):
        runs = [json.loads(line) for line in path.read_text().splitlines()]
        for run in runs:
            for result in run["results"].values():  # as gpuprof wrote before it counted
                for key in ("launches", "memory", "peaks"):
                    del result[key]
        path.write_text("\n".join(map(json.dumps, runs)))
    project.launches(test_a=STEP, test_b=STEP)
    project.memory(test_a=100, test_b=1536)
    shown = project.check(
        COMPARE, "--gpu-benchmark-fail-on=launches,memory,nodata,incomparable", passed=2
    )
    shown.fnmatch_lines(
        [
            "note: peak memory was not compared: no *",
            "note: launches were not compared: no baseline run has them; save new*",
            "*: 2 SAME",
        ]
    )


def test_a_second_measurement_that_launches_other_work_is_a_note(stored: Project) -> None:
    stored.times(1.0, fields=stored.plan()["fields"], test_b=1.5)
    stored.launches(test_a=STEP, test_b=[MORE, STEP])
    shown = stored.check(COMPARE, passed=1, failed=1)
    shown.fnmatch_lines(
        ["SLOW: 1.50 times*", "note: test_it.py::test_b: *: calls differ in what they launch: *"]
    )
    assert "LAUNCHES" not in shown.str()


def test_the_measurer_is_asked_for_launches_where_there_is_a_baseline(stored: Project) -> None:
    stored.run(COMPARE)
    assert [call["launches"] for call in stored.calls()] == [True, True]
    stored.run()
    assert not any("launches" in call for call in stored.calls())


def test_the_marker_turns_counting_off(stored: Project) -> None:
    stored.pytester.makepyfile(test_it=marked("test_", "launches=False"))
    stored.run(COMPARE)
    assert [call["launches"] for call in stored.calls()] == [False, False]


# Without the time


@pytest.fixture
def checked(project: Project) -> Project:
    project.pytester.makepyfile(test_it=CHECKS)
    project.on_gpu(1.0)
    project.launches(test_b=STEP)
    project.save_runs(1)
    return project


def test_launches_alone_are_checked_against_a_single_run(checked: Project) -> None:
    checked.times(9.0, fields=checked.plan()["fields"])  # which nobody looks at
    checked.launches(test_b=STEP)
    checked.check(COMPARE, passed=1).fnmatch_lines(["*: 1 SAME"])
    checked.launches(test_b=MORE)
    shown = checked.check(COMPARE, failed=1)
    shown.fnmatch_lines(["*_ test_b _*", GREW, "*: 1 LAUNCHES"])
    assert "median" not in shown.str().partition("last saved")[0], "no table of times"


def test_fewer_and_incomparable_launches_are_said(checked: Project) -> None:
    checked.launches(test_b={"sgemm": 14})
    checked.run(COMPARE).assert_outcomes(failed=1)
    checked.pytester.makepyfile(test_it=CHECKS.replace("14", "1"))
    checked.launches(test_b={"fused_k": 1})
    shown = checked.check(COMPARE, passed=1)
    shown.fnmatch_lines(["note: launches less: +1 fused_k, -12 add_k, -2 sgemm, *"])


def test_a_new_check_passes(checked: Project) -> None:
    checked.pytester.makepyfile(test_new=CHECKS.replace("test_b", "test_new"))
    checked.launches(test_b=STEP, test_new=STEP)
    checked.check(COMPARE, passed=2).fnmatch_lines(["*: 1 SAME, 1 NODATA"])


def test_a_check_that_cannot_count_is_an_error(project: Project) -> None:
    project.pytester.makepyfile(test_it=CHECKS)
    shown = project.check(failed=1)
    shown.fnmatch_lines(["*InvalidStateError: check_launches: it gives no GPU any work*"])


def test_a_check_is_the_one_use_of_the_fixture(checked: Project) -> None:
    checked.pytester.makepyfile(
        test_it="""
        def test_b(gpu_benchmark):
            gpu_benchmark.check_launches(sum, [1])
            gpu_benchmark(sum, [1])
        """
    )
    checked.check(failed=1).fnmatch_lines(["*gpu_benchmark was used twice in one test*"])


def test_a_check_refuses_a_function_that_returns_a_coroutine(checked: Project) -> None:
    checked.pytester.makepyfile(
        test_it="""
        async def step():
            pass

        def test_b(gpu_benchmark):
            gpu_benchmark.check_launches(lambda: step())
        """
    )
    shown = checked.check("--gpu-benchmark-disable", failed=1)
    shown.fnmatch_lines(["*TypeError: the function returned a coroutine*"])


def test_a_disabled_check_calls_once(checked: Project) -> None:
    checked.pytester.makepyfile(
        test_it="""
        def test_b(gpu_benchmark):
            calls = []
            assert gpu_benchmark.check_launches(calls.append, 1) is None
            assert calls == [1]
        """
    )
    checked.run("--gpu-benchmark-disable").assert_outcomes(passed=1)
    assert not checked.calls()


# Assertions


def test_an_assertion_on_two_signatures_or_counts_says_the_difference(project: Project) -> None:
    project.pytester.makepyfile("""
        import gpuprof

        def sign(digits, **kernels):
            return gpuprof.results.GraphSignature(digits, gpuprof.results.Launches(kernels))

        def test_counts():
            assert gpuprof.results.Launches({"a": 1, "b": 2}) == gpuprof.results.Launches({"a": 1})

        def test_signatures():
            assert sign("12", a=2) == sign("34", a=1)

        def test_text():
            assert sign("12", a=1) == "1234"
    """)
    shown = project.check(failed=3)
    shown.fnmatch_lines(
        [
            "E*assert 3 kernels == 1 kernel",
            "E*the first, by the second: +2 b, 1 -> 3 kernels",
            "E*the first, by the second: +1 a, 1 -> 2 kernels",
        ]
    )
