"""Hooks of ``conftest.py`` files, timers of the caller's, and profiles."""

from __future__ import annotations

import pytest

from tests.support.pytest_projects import COMPARE, Project

HOOKS = """
def pytest_gpu_benchmark_update_machine_info(config, machine_info):
    machine_info.setdefault("by", []).append("PLACE")

def pytest_gpu_benchmark_update_commit_info(config, commit_info):
    commit_info["id"] = "ab12"
    commit_info["message"] = "first"

def pytest_gpu_benchmark_update_json(config, benchmarks, output_json):
    assert benchmarks is output_json["benchmarks"]
    output_json["names"] = [each["name"] for each in benchmarks]
"""
ONE_TEST = "def test_a(gpu_benchmark): gpu_benchmark(sum, [1])"
JSON = "--gpu-benchmark-json=out.json"


@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n", "1")])
def test_conftest_files_change_what_is_written(project: Project, workers: tuple[str, ...]) -> None:
    project.pytester.makepyfile(
        **{
            "conftest": HOOKS.replace("PLACE", "top"),
            "inner/conftest": HOOKS.replace("PLACE", "inner"),
            "inner/test_it": ONE_TEST,
        }
    )
    project.run(*workers, JSON, "--gpu-benchmark-save=main", "inner").assert_outcomes(passed=1)
    written = project.written()
    assert sorted(written["machine_info"]["by"]) == ["inner", "top"]
    assert (written["commit_info"]["id"], written["commit_info"]["message"]) == ("ab12", "first")
    assert written["names"] == ["test_a"]
    ((run,),) = project.saved().values()
    assert run.commit == "ab12"


def test_what_a_hook_adds_may_be_no_json(project: Project) -> None:
    project.pytester.makepyfile(ONE_TEST)
    project.pytester.makeconftest(
        "def pytest_gpu_benchmark_update_json(output_json): output_json['x'] = object()"
    )
    done = project.run(JSON)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["the JSON file was not written: *not JSON serializable"])


def test_a_misspelt_hook_is_an_error(project: Project) -> None:
    project.pytester.makepyfile(ONE_TEST)
    project.pytester.makeconftest("def pytest_gpu_benchmark_update_jsn(config): pass")
    assert project.run().ret != 0


TIMED = """
    import pytest

    class Ticks:
        now = 0.0

        def read(self):
            self.now += 0.001
            return self.now

    ticks = Ticks()

    @pytest.mark.gpu_benchmark(timer=ticks.read, warmup=False, max_time=0.01)
    def test_marker(gpu_benchmark):
        gpu_benchmark(sum, [1])
        assert gpu_benchmark.result.clock == "custom: test_it.Ticks.read"

    @pytest.mark.gpu_benchmark(timer=ticks.read)
    def test_rounds(gpu_benchmark):
        called = []
        gpu_benchmark.pedantic(called.append, [1], rounds=4)
        assert called == [1] * 4
        # The clock moves on by as much in a call as in an empty loop.
        assert gpu_benchmark.result.samples_ms == pytest.approx((0,) * 4, abs=1e-9)

    def test_option(gpu_benchmark):
        gpu_benchmark.pedantic(sum, [[1]], rounds=40)
        assert gpu_benchmark.result.clock == CLOCK
"""
TIMER = "--gpu-benchmark-timer=time.process_time"


def test_a_timer_is_read_in_place_of_the_clock(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugin = ("-p", "gpuprof._pytest.plugin")
    pytester.makepyfile(test_it=f'CLOCK = "cpu"\n{TIMED}'.replace("\n    ", "\n"))
    pytester.runpytest_subprocess(*plugin, "--gpu-benchmark-save=main").assert_outcomes(passed=3)
    pytester.makepyfile(
        test_it=f'CLOCK = "custom: time.process_time"\n{TIMED}'.replace("\n    ", "\n")
    )
    done = pytester.runpytest_subprocess(*plugin, COMPARE, TIMER, "-k", "option")
    done.assert_outcomes(passed=1, deselected=2)
    done.stdout.fnmatch_lines(["*has another clock: cpu, not custom: time.process_time*"])


@pytest.mark.parametrize("timer", ["bogus", "time.bogus", "no_such_module.time", "math.pi"])
def test_what_is_no_timer_is_a_usage_error(project: Project, timer: str) -> None:
    project.pytester.makepyfile(ONE_TEST)
    done = project.run(f"--gpu-benchmark-timer={timer}")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--gpu-benchmark-timer: expected a function that returns seconds*"])


PROFILED = """
    import pytest

    def work(calls):
        calls.append(1)
        return sorted(calls)

    def test_a(gpu_benchmark):
        calls = []
        gpu_benchmark.pedantic(work, (calls,), rounds=3)
        assert len(calls) == 3 + EXTRA

    @pytest.mark.gpu_benchmark(cprofile=MARKER)
    def test_b(gpu_benchmark):
        did = []
        gpu_benchmark.pedantic(
            lambda: did.append("call"),
            setup=lambda: did.append("setup"),
            teardown=lambda: did.append("end"),
        )
        assert did == ["setup", "call", "end"] * 2
"""


def test_a_profile_is_of_one_more_call(project: Project) -> None:
    text = PROFILED.replace("EXTRA", "1").replace("MARKER", "True")
    project.pytester.makepyfile(text)
    done = project.run("--gpu-benchmark-cprofile=ncalls", JSON)
    done.assert_outcomes(passed=2)
    heading = "ncalls\ttottime\tpercall\tcumtime\tpercall\tfilename:lineno(function)"
    done.stdout.fnmatch_lines(
        ["cProfile, in seconds", "*::test_a", heading, "1\t*(work)", "*::test_b", heading]
    )
    first, second = project.written()["benchmarks"]
    counted = [row["ncalls"] for row in first["cprofile"]]
    assert counted == sorted(counted, reverse=True)
    times = [row["cumtime"] for row in second["cprofile"]]
    assert times == sorted(times, reverse=True)
    assert any("sorted" in row["function_name"] for row in first["cprofile"])


def test_nothing_is_profiled_unless_asked_for_or_where_nothing_is_measured(
    project: Project,
) -> None:
    text = PROFILED.replace("EXTRA", "0").replace("MARKER", "False").replace("* 2", "* 1")
    project.pytester.makepyfile(text)
    project.run(JSON).assert_outcomes(passed=2)
    assert all("cprofile" not in each for each in project.written()["benchmarks"])
    project.pytester.makepyfile("def test_a(gpu_benchmark): gpu_benchmark(sum, [1])")
    project.run("--gpu-benchmark-cprofile=ncalls", "--gpu-benchmark-disable").assert_outcomes(
        passed=1
    )
