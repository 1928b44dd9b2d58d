"""The plugin under pytest-xdist: workers measure and judge, the controller saves and shows."""

from __future__ import annotations

import pytest

from tests.support.pytest_projects import COMPARE, Project

XDIST = ("-p", "xdist.plugin", "-p", "xdist.looponfail")
SAVE = "--gpu-benchmark-save=main"
TESTS = """
import pytest

@pytest.mark.parametrize("size", [1, 2, 3])
def test_a(gpu_benchmark, size):
    gpu_benchmark(sum, [size])

def test_b(gpu_benchmark):
    gpu_benchmark.extra_info["dtype"] = float
    gpu_benchmark(sum, [1])
"""


@pytest.fixture
def workers(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose tests run in two workers."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    run = project.run

    def run_in_workers(*arguments: str) -> pytest.RunResult:
        return run(*XDIST, "-n2", *arguments)

    project.run = run_in_workers  # type: ignore[method-assign]
    return project


def test_workers_measure_and_the_controller_saves_compares_and_writes(workers: Project) -> None:
    workers.pytester.makepyfile(test_it=TESTS)
    workers.on_gpu(1.0)
    workers.save_runs()
    (runs,) = workers.saved().values()
    keys = {"test_a[1]", "test_a[2]", "test_a[3]", "test_b"}
    assert set(runs[0].results) == {f"test_it.py::{key}" for key in keys}
    workers.times(1.0, fields=workers.plan()["fields"], **{"test_a[2]": 2.0})
    shown = workers.check(COMPARE, "--gpu-benchmark-json=out.json", passed=3, failed=1)
    shown.fnmatch_lines(
        [
            "SLOW: 2.00 times the time of baseline 'main': 2.00 ms, was 1.00 ms",
            "*gpu_benchmark: 4 benchmarks: Test GPU*",
            "*: 1 SLOW, 3 SAME",
            "wrote out.json",
            "FAILED test_it.py::test_a?2? - Failed: SLOW*",
        ]
    )
    written = {each["name"]: each for each in workers.written()["benchmarks"]}
    assert set(written) == keys
    assert written["test_b"]["extra_info"] == {"dtype": "<class 'float'>"}
    assert written["test_a[2]"]["params"] == {"size": 2}
    assert written["test_a[2]"]["gpuprof"]["outcome"] == "failed"
    assert [call["name"] for call in workers.calls()].count("test_it.py::test_a[2]") == 3


def test_a_group_of_workers_does_not_change_a_tests_name(workers: Project) -> None:
    workers.pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.xdist_group("one")
        def test_a(gpu_benchmark):
            gpu_benchmark(sum, [1])
        """
    )
    workers.run(SAVE, "--dist=loadgroup").assert_outcomes(passed=1)
    (runs,) = workers.saved().values()
    assert set(runs[0].results) == {"test_it.py::test_a"}


def test_a_wrong_marker_fails_its_test_here_too(workers: Project) -> None:
    workers.pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu_benchmark(limit=1)
        def test_a(gpu_benchmark):
            gpu_benchmark(sum, [1])
    """)
    assert "has the unknown argument 'limit'" in workers.check(failed=1).str()


def test_a_missing_baseline_is_a_usage_error_before_workers_start(workers: Project) -> None:
    workers.pytester.makepyfile(test_it=TESTS)
    assert "no baseline is called 'main'" in workers.refuse(COMPARE).str()
