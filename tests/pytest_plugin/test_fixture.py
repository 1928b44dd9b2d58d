"""The fixture beside the test: wrong markers, its group, tracebacks, waiting, empty options."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.processes import run_command
from tests.support.pytest_projects import Project

WRONG_MARKERS = {
    "treshold=0.1": "has the unknown argument 'treshold'; it takes these arguments",
    "0.1": "has the positional argument 0.1; it takes these arguments",
    "threshold=5": "has a wrong argument: threshold: expected a number above 0 and up to 1, got 5",
    "max_ms=0": "has a wrong argument: max_ms: expected a finite number above 0, got 0",
    "mode='fast'": "has a wrong argument: mode: expected one of 'auto', 'graph', 'batched', 'isol",
    "group=1": "has a wrong argument: group: expected a str, got 1",
    "launches=1": "has a wrong argument: launches: expected True or False, got 1",
    "memory_threshold=5": "has a wrong argument: memory_threshold: expected a number from 0 to 1,",
    "memory_threshold='5%'": "has a wrong argument: memory_threshold: expected a number from 0 to",
    "memory_threshold=True": "has a wrong argument: memory_threshold: expected a number from 0 to",
    "min_rounds=0": "has a wrong argument: min_rounds: expected a whole number of at least 1",
    "min_rounds=2.0": "has a wrong argument: min_rounds: expected a whole number of at least 1",
    "disable_gc=1": "has a wrong argument: disable_gc: expected True or False, got 1",
    "warmup='hot'": "has a wrong argument: warmup: expected one of 'on', 'off', 'auto', got 'hot'",
    "max_time=1, max_time_s=2": "has 'max_time_s' under two names",
}


def run_alone(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Test a file in a process of its own, with the plugin and no other."""
    (folder / "test_it.py").write_text(textwrap.dedent(text), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--tb=short", "-p", "gpuprof._pytest.plugin"]
    return run_command(*command, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


@pytest.mark.parametrize("arguments", WRONG_MARKERS)
def test_a_wrong_marker_fails_its_test_and_names_what_is_accepted(
    project: Project, arguments: str
) -> None:
    project.pytester.makepyfile(f"""
        import pytest

        @pytest.mark.gpu_benchmark({arguments})
        def test_a(gpu_benchmark):
            gpu_benchmark(sum, [1])

        @pytest.mark.gpu_benchmark({arguments})
        def test_unused(gpu_benchmark):
            pass

        def test_b(gpu_benchmark):
            gpu_benchmark(sum, [1])
    """)
    text = project.check(failed=2, passed=1).str()
    assert f"test_a: the marker gpu_benchmark {WRONG_MARKERS[arguments]}" in text
    assert f"test_unused: the marker gpu_benchmark {WRONG_MARKERS[arguments]}" in text
    assert "by name: threshold, memory_threshold, min_rounds, max_time_s, rel_precision, " in text
    assert len(project.calls()) == 1


def test_a_test_may_set_its_group(project: Project) -> None:
    project.pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu_benchmark(group="marked")
        def test_a(gpu_benchmark):
            assert gpu_benchmark.group == "marked"
            gpu_benchmark.group = "set"
            gpu_benchmark(sum, [1])

        def test_b(gpu_benchmark):
            assert gpu_benchmark.group is None
            gpu_benchmark(sum, [1])
            with pytest.raises(TypeError, match="^group: expected a str, got 1"):
                gpu_benchmark.group = 1
    """)
    project.check("--gpu-benchmark-json=out.json", passed=2).fnmatch_lines(["group set"])
    groups = {each["name"]: each["group"] for each in project.written()["benchmarks"]}
    assert groups == {"test_a": "set", "test_b": None}


def test_a_traceback_shows_the_test_and_its_function_and_nothing_between(tmp_path: Path) -> None:
    code = """
        calls = []

        def fail(at):
            calls.append(1)
            if len(calls) == at:
                raise LookupError("of the function")

        def test_first(gpu_benchmark):
            gpu_benchmark(fail, 1)

        def test_measured(gpu_benchmark):
            calls.clear()
            gpu_benchmark(fail, 3)
    """
    done = run_alone(tmp_path, code)
    assert done.returncode == 1
    shown = [line for line in done.stdout.splitlines() if re.match(r"\S+\.py:\d+: in ", line)]
    names = [line.rpartition(" ")[2] for line in shown]
    assert names == ["test_first", "fail", "test_measured", "fail"]


@pytest.mark.parametrize("option", ["save", "compare", "storage", "json", "fail-on"])
@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize("how", ["option", "ini key"])
def test_a_value_that_is_empty_is_a_usage_error(
    project: Project, option: str, value: str, how: str
) -> None:
    project.pytester.makepyfile("def test_a(gpu_benchmark): gpu_benchmark(sum, [1])")
    key = f"gpu_benchmark_{option.replace('-', '_')}"
    if how == "option":
        name, said = (
            f"--gpu-benchmark-{option}",
            project.refuse(f"--gpu-benchmark-{option}={value}"),
        )
    else:
        name, said = f"the ini key {key}", project.refuse("-o", f"{key}={value}")
    said.fnmatch_lines([f"*{name} is empty, as from an unset variable; give it a value *"])


def test_a_storage_folder_that_cannot_be_one_is_a_usage_error(project: Project) -> None:
    project.pytester.makepyfile("def test_a(gpu_benchmark): gpu_benchmark(sum, [1])")
    (project.path / ".gpuprof").mkdir()
    (project.path / ".gpuprof" / "baselines").write_text("in the way", encoding="utf-8")
    said = project.refuse("--gpu-benchmark-save=main")
    said.fnmatch_lines(["*--gpu-benchmark-save: the folder *main cannot be written*"])


@pytest.mark.parametrize(("scopes", "counted"), [(False, 0), (True, 2 + 7)])
def test_scopes_of_rounds_count_if_asked_for(tmp_path: Path, scopes: bool, counted: int) -> None:
    code = f"""
        import gpuprof
        import pytest

        @pytest.mark.gpu_benchmark(scopes={scopes})
        def test_a(gpu_benchmark):
            def function():
                with gpuprof.timer("inner"):
                    pass

            gpu_benchmark.pedantic(function, setup=lambda: None, rounds=7, warmup_rounds=2)
            assert sum(row.time.count for row in gpuprof.stats().values()) == {counted}
    """
    done = run_alone(tmp_path, code)
    assert done.returncode == 0, done.stdout
