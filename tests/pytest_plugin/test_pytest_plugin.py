"""The fixture ``gpu_benchmark``, its marker and its switches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, run_command
from tests.support.pytest_projects import Project

# Plugins that these tests do not need, and that take long to import.
OTHERS = [
    part
    for name in ("cacheprovider", "benchmark", "hypothesispytest", "xdist")
    for part in ("-p", f"no:{name}")
]
ONE_TEST = """
def test_a(gpu_benchmark):
    gpu_benchmark(sum, [1, 2])
"""


def test_the_fixture_returns_the_functions_value_and_has_the_result(project: Project) -> None:
    project.pytester.makepyfile("""
        def test_a(gpu_benchmark):
            assert gpu_benchmark.result is None
            assert gpu_benchmark(sorted, [2, 1], reverse=True) == [2, 1]
            assert gpu_benchmark.result.median_ms == 1.0
            assert gpu_benchmark.result.name.endswith("::test_a")
            assert gpu_benchmark.decision is None
    """)
    project.run().assert_outcomes(passed=1)


def test_the_value_is_that_of_the_first_call(project: Project) -> None:
    project.pytester.makepyfile("""
        def test_a(gpu_benchmark):
            calls = []
            def count():
                calls.append(None)
                return len(calls)
            assert gpu_benchmark(count) == 1
            assert len(calls) > 1
    """)
    project.run().assert_outcomes(passed=1)


def test_a_second_use_in_one_test_is_an_error_that_says_what_to_do(project: Project) -> None:
    project.pytester.makepyfile("""
        def test_a(gpu_benchmark):
            gpu_benchmark(sum, [1])
            gpu_benchmark.pedantic(sum, ([1],))
    """)
    shown = project.check(failed=1)
    shown.fnmatch_lines(["*InvalidStateError: gpu_benchmark was used twice*parametrise*"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sum([1])", "*TypeError: gpu_benchmark got int*gpu_benchmark(f, x), not*"),
        ("lambda: coroutine()", "*TypeError: the function returned a coroutine*lambda: loop.run*"),
        ("coroutine", "*TypeError: the function returned a coroutine*lambda: loop.run*"),
    ],
)
def test_what_cannot_be_measured_is_a_type_error(project: Project, given: str, said: str) -> None:
    project.pytester.makepyfile(f"""
        async def coroutine():
            pass

        def test_a(gpu_benchmark):
            gpu_benchmark({given})
    """)
    project.run().stdout.fnmatch_lines([said])


def test_a_few_samples_are_shown_without_a_precision(project: Project) -> None:
    project.pytester.makepyfile(
        "def test_a(gpu_benchmark): gpu_benchmark.pedantic(sum, [[1]], rounds=5)"
    )
    done = project.run()
    done.stdout.fnmatch_lines(["test_a *1.00 ms *5 *cpu*"])
    done.stdout.no_fnmatch_line("test_a *%*")


def test_every_test_with_the_fixture_has_the_marker(project: Project) -> None:
    project.pytester.makepyfile("""
        import pytest

        @pytest.fixture
        def through_another(gpu_benchmark):
            return gpu_benchmark

        def test_a(gpu_benchmark):
            gpu_benchmark(sum, [1])

        @pytest.mark.parametrize("size", [1, 2])
        def test_b(through_another, size):
            through_another(sum, [size])

        def test_c():
            pass
    """)
    arguments = ("--strict-markers", "-W", "error", "-m")
    project.run(*arguments, "gpu_benchmark").assert_outcomes(passed=3, deselected=1)
    project.run(*arguments, "not gpu_benchmark").assert_outcomes(passed=1, deselected=3)


def test_the_markers_arguments_reach_the_measurement_and_the_closest_wins(project: Project) -> None:
    project.pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu_benchmark(mode="batched", min_samples=33, nbytes=8)
        class TestAll:
            @pytest.mark.gpu_benchmark(mode="isolated", cold_l2=True)
            def test_a(self, gpu_benchmark):
                gpu_benchmark(sum, [1])

            def test_b(self, gpu_benchmark):
                gpu_benchmark(sum, [1])

            @pytest.mark.gpu_benchmark(mode="isolated", nbytes=9)
            @pytest.mark.parametrize(
                "size", [pytest.param(1, marks=pytest.mark.gpu_benchmark(mode="graph"))]
            )
            def test_c(self, gpu_benchmark, size):
                gpu_benchmark(sum, [size])
    """)
    project.run().assert_outcomes(passed=3)
    first, second, third = project.calls()
    assert {**first, "name": ""} == {
        "name": "",
        "mode": "isolated",
        "cold_l2": True,
        "scopes": False,
        "min_samples": 33,
        "nbytes": 8,
    }
    assert (second["mode"], second["cold_l2"]) == ("batched", False)
    assert (third["mode"], third["nbytes"], third["min_samples"]) == ("graph", 9, 33)


@pytest.mark.parametrize("how", ["option", "ini", "environment"])
def test_switched_off_it_calls_the_function_once(
    project: Project, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.pytester.makepyfile("""
        import pytest

        @pytest.mark.gpu_benchmark(max_ms=0.5)
        def test_a(gpu_benchmark):
            calls = []
            gpu_benchmark(calls.append, 1)
            assert calls == [1]
            assert gpu_benchmark.result is None

        def test_b(gpu_benchmark):
            calls = []
            gpu_benchmark.pedantic(calls.append, setup=lambda: ((2,), {}), warmup_rounds=3)
            assert calls == [2]
    """)
    if how == "ini":
        project.pytester.makeini("[pytest]\ngpu_benchmark_disable = true\n")
    if how == "environment":
        monkeypatch.setenv("GPUPROF_DISABLE", "1")
    switch = ["--gpu-benchmark-disable"] if how == "option" else []
    project.check(*switch, "--gpu-benchmark-save=main", "--gpu-benchmark-compare=none", passed=2)
    assert project.calls() == []
    assert not (project.path / ".gpuprof").exists()


def test_a_fixture_that_is_not_used_is_warned_of(project: Project) -> None:
    project.pytester.makepyfile("def test_a(gpu_benchmark): pass")
    shown = project.check("-W", "default", passed=1, warnings=1)
    shown.fnmatch_lines(["*test_a has the fixture gpu_benchmark but measured nothing*"])


def test_a_unittest_class_can_use_it_through_a_fixture_of_its_own(project: Project) -> None:
    project.times(2.0)
    project.pytester.makepyfile(
        test_u="""
        import unittest
        import pytest

        @pytest.mark.gpu_benchmark(max_ms=1.0)
        class TestAll(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _with(self, gpu_benchmark):
                self.benchmark = gpu_benchmark

            def test_slow(self):
                self.assertEqual(self.benchmark(sum, [1, 2]), 3)

            def test_wrong(self):
                self.benchmark(sum, [1, 2])
                self.fail("the body's own")
        """
    )
    shown = project.check(failed=2)
    shown.fnmatch_lines(
        ["FAILED *test_slow - Failed: TOO SLOW*", "FAILED *test_wrong - *the body's own"]
    )


def test_a_limit_fails_without_a_baseline_after_measuring_again(project: Project) -> None:
    project.times(test_over=[2.0, 1.5], test_once=[2.0, 0.9])
    project.pytester.makepyfile("""
        import pytest

        pytestmark = pytest.mark.gpu_benchmark(max_ms=1.0)

        def test_over(gpu_benchmark):
            gpu_benchmark(sum, [1])

        def test_once(gpu_benchmark):
            gpu_benchmark(sum, [1])
            assert gpu_benchmark.result.median_ms == 0.9

        def test_under(gpu_benchmark):
            gpu_benchmark(sum, [1])
    """)
    shown = project.check(failed=1, passed=2)
    shown.fnmatch_lines(
        [
            "TOO SLOW: 1.50 ms, and max_ms allows 1.00 ms",
            "*median *95 % interval *min *samples",
            "*now *2.00 ms *",
            "*measured again *1.50 ms *",
            "*measured     cpu mode, host time; no GPU time was measured, on Test CPU",
        ]
    )
    shown.no_fnmatch_line("*Traceback*")
    shown.no_fnmatch_line("*gpuprof/_pytest/*")
    names = [call["name"].rpartition("::")[2] for call in project.calls()]
    assert names == ["test_over", "test_over", "test_once", "test_once", "test_under"]


def test_an_xfail_mark_covers_the_time_too(project: Project) -> None:
    project.times(2.0)
    project.pytester.makepyfile("""
        import pytest

        @pytest.mark.xfail
        @pytest.mark.gpu_benchmark(max_ms=1.0)
        def test_a(gpu_benchmark):
            gpu_benchmark(sum, [1])
    """)
    project.run().assert_outcomes(xfailed=1)


def test_a_run_that_measures_nothing_says_so_where_it_was_to_save(project: Project) -> None:
    project.pytester.makepyfile("def test_a(): pass")
    result = project.run("--gpu-benchmark-save=main")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*nothing was measured for --gpu-benchmark-save"])


def test_collecting_only_writes_nothing(project: Project) -> None:
    project.pytester.makepyfile(ONE_TEST)
    done = project.run("--collect-only", "--gpu-benchmark-json=out.json", "--gpu-benchmark-save=a")
    assert done.ret == 0
    assert not (project.path / "out.json").exists()
    assert not (project.path / ".gpuprof").exists()


def run_pytest(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as a process of its own, where gpuprof's entry point is installed."""
    site = folder / "site"
    metadata = site / "named_gpuprof-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: named-gpuprof\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\ngpuprof = gpuprof._pytest.plugin\n")
    paths = [str(site), os.environ.get("PYTHONPATH", ""), str(ROOT)]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    command = (sys.executable, "-m", "pytest", *OTHERS, *arguments)
    return run_command(*command, cwd=folder, **variables)


def test_the_plugin_loads_by_its_entry_point_and_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(ONE_TEST, encoding="utf-8")
    with_it = run_pytest(tmp_path, "--gpu-benchmark-disable", "-W", "error")
    assert with_it.returncode == 0, with_it.stdout + with_it.stderr
    without = run_pytest(tmp_path, "-p", "no:gpuprof")
    assert "fixture 'gpu_benchmark' not found" in without.stdout
    assert "gpu-benchmark" not in without.stdout


def test_a_start_that_uses_no_benchmark_imports_little_of_gpuprof(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(): pass", encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "import json, sys\n"
        "def pytest_unconfigure():\n"
        "    json.dump(sorted(sys.modules), open('modules.json', 'w'))\n",
        encoding="utf-8",
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    modules = json.loads((tmp_path / "modules.json").read_text(encoding="utf-8"))
    own = {name for name in modules if name.partition(".")[0] == "gpuprof"}
    package = "gpuprof._pytest"
    light = {f"{package}.{name}" for name in ("plugin", "options", "settings")}
    assert own == {"gpuprof", "gpuprof._common", "gpuprof._common.checks", package, *light}
    assert not {"numpy", "scipy", "torch"} & set(modules)


def test_a_real_measurement_without_a_gpu_is_on_the_cpu_clock_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "@pytest.mark.gpu_benchmark(warmup_s=0.0, min_time_s=0.0, max_time_s=1.0)\n"
        "def test_a(gpu_benchmark):\n"
        "    assert gpu_benchmark(sum, range(1000)) == 499500\n"
        "    assert gpu_benchmark.result.clock == 'cpu'\n"
        "    assert gpu_benchmark.result.count >= 30\n"
        "def test_b(gpu_benchmark):\n"
        "    setup = lambda: (([3, 1, 2],), {})\n"
        "    assert gpu_benchmark.pedantic(sorted, setup=setup, rounds=5) == [1, 2, 3]\n"
        "    assert gpu_benchmark.result.count == 5\n"
        "    assert gpu_benchmark.result.median_ms > 0\n",
        encoding="utf-8",
    )
    done = run_pytest(tmp_path, "--gpu-benchmark-save=main", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu_benchmark: 2 benchmarks on the CPU clock, no GPU time: " in done.stdout
    (file,) = (tmp_path / ".gpuprof" / "baselines" / "main").glob("*.jsonl")
    assert file.name.startswith("cpu-")
