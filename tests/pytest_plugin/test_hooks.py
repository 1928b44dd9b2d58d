"""Hooks of ``conftest.py`` files, timers of the caller's, and profiles."""

from __future__ import annotations

import pytest

from tests.support.pytest_projects import Project

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
