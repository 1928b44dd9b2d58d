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
