"""Memory in tests: a test whose peak grew fails, by name; what does not fail, and how it is set."""

from __future__ import annotations

import pytest

from tests.support.pytest_projects import COMPARE, TWO_TESTS, Project, marked

GREW = "MEMORY: test_b: peak memory 1.21 GiB -> 1.50 GiB, +24 %, more than 5 %"


@pytest.fixture
def stored(project: Project) -> Project:
    """A project with a baseline of five runs, of 100 and of 1,239 MiB."""
    project.pytester.makepyfile(test_it=TWO_TESTS)
    project.on_gpu(1.0)
    project.memory(test_a=100, test_b=1239)
    project.save_runs()
    return project


def test_the_test_whose_peak_grew_fails_by_name_and_in_words(stored: Project) -> None:
    stored.memory(test_a=100, test_b=1536)
    shown = stored.check(COMPARE, passed=1, failed=1)
    shown.fnmatch_lines(
        [
            "*_ test_b _*",
            GREW,
            "*median *95 % interval *min *memory *samples",
            "*baseline 'main' *1.00 ms *1.21 GiB *5 runs",
            "*now *1.00 ms *1.50 GiB *45",
            "*measured again *1.00 ms *1.50 GiB *45",
            "*memory       peak memory 1.21 GiB -> 1.50 GiB, +24 %, more than 5 %",
            "test_a *100 MiB *SAME",
            "test_b *1.50 GiB *SAME, MEMORY",
            "MEMORY test_it.py::test_b: peak memory 1.21 GiB -> 1.50 GiB, +24 %, more than 5 %",
            "*: 2 SAME, 1 MEMORY",
            "FAILED test_it.py::test_b - Failed: MEMORY: test_b: peak memory 1.21 GiB -> 1*",
        ]
    )


def test_unchanged_memory_passes_without_a_second_measurement(stored: Project) -> None:
    shown = stored.check(COMPARE, passed=2)
    assert len(stored.calls()) == 2
    assert "MEMORY" not in shown.str()


@pytest.mark.parametrize("again_ms", [1.0, 1.5])  # it is no measurement of the time
def test_a_peak_that_is_high_only_once_does_not_fail(stored: Project, again_ms: float) -> None:
    fields = stored.plan()["fields"]
    stored.times(1.0, fields=fields, test_b=[1.0, again_ms])
    stored.memory(test_a=100, test_b=[1536, 1239])
    stored.check(COMPARE, passed=2)
    assert len(stored.calls()) == 3
    stored.times(1.0, fields=fields)
    stored.memory(test_a=100, test_b=[1536, 1400])
    shown = stored.check(COMPARE, passed=1, failed=1)
    shown.fnmatch_lines(["MEMORY: test_b: *1.21 GiB -> 1.37 GiB, +13 %, more than 5 %"])


def test_a_test_that_is_slower_and_takes_more_says_both(stored: Project) -> None:
    stored.times(1.0, fields=stored.plan()["fields"], test_b=1.5)
    stored.memory(test_a=100, test_b=1536)
    shown = stored.check(COMPARE, passed=1, failed=1)
    shown.fnmatch_lines(["SLOW: 1.50 times*", GREW, "test_b *SLOW, MEMORY"])


@pytest.mark.parametrize("fail_on", ["slow", "never", "ambiguous,nodata,incomparable"])
def test_growth_that_is_not_to_fail_is_shown_all_the_same(stored: Project, fail_on: str) -> None:
    stored.memory(test_a=100, test_b=1536)
    shown = stored.check(COMPARE, f"--gpu-benchmark-fail-on={fail_on}", passed=2)
    shown.fnmatch_lines(["*: 2 SAME, 1 MEMORY"])
    assert len(stored.calls()) == 2


def test_memory_alone_may_fail(stored: Project) -> None:
    stored.times(1.0, fields=stored.plan()["fields"], test_a=1.5)
    stored.memory(test_a=100, test_b=1536)
    shown = stored.check(COMPARE, "--gpu-benchmark-fail-on=memory", passed=1, failed=1)
    shown.fnmatch_lines([GREW])


@pytest.mark.parametrize(("threshold", "failed"), [("30%", 0), ("0.3", 0), (" 20 % ", 1)])
def test_the_threshold_is_an_option_and_an_ini_key(
    stored: Project, threshold: str, failed: int
) -> None:
    stored.memory(test_a=100, test_b=1536)
    for given in ("--gpu-benchmark-memory-threshold", "-ogpu_benchmark_memory_threshold"):
        stored.check(COMPARE, f"{given}={threshold}", passed=2 - failed, failed=failed)


@pytest.mark.parametrize(("threshold", "failed"), [("0.3", 0), ("0.2", 1)])
def test_the_markers_threshold_wins(stored: Project, threshold: str, failed: int) -> None:
    stored.pytester.makepyfile(test_it=marked("test_b", f"memory_threshold={threshold}"))
    stored.memory(test_a=100, test_b=1536)
    stored.check(COMPARE, "--gpu-benchmark-memory-threshold=25%", passed=2 - failed, failed=failed)


@pytest.mark.parametrize("threshold", ["5 percent", "", "-1%", "101%", "nan", "5"])
def test_a_wrong_threshold_is_a_usage_error(stored: Project, threshold: str) -> None:
    shown = stored.refuse(COMPARE, f"--gpu-benchmark-memory-threshold={threshold}")
    said = ": expected a number from 0 to 1, got *also 5%" if threshold else " is empty*"
    shown.fnmatch_lines([f"*--gpu-benchmark-memory-threshold{said}"])


def test_the_file_has_the_memory_and_its_decision(stored: Project) -> None:
    stored.memory(test_a=100, test_b=1536)
    stored.run(COMPARE, "--gpu-benchmark-json=out.json")
    first, second = (each["gpuprof"] for each in stored.written()["benchmarks"])
    assert first["decision"]["memory"]["verdict"] == "same"
    assert second["decision"]["memory"]["verdict"] == "memory"
    assert second["decision"]["memory"]["base_bytes"] == 1239 << 20
    assert second["result"]["memory"] == {"peak_bytes": 1536 << 20, "change_bytes": 0}
    assert second["failure"].startswith(GREW)
