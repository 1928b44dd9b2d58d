"""The file of ``--gpu-benchmark-json``: what pytest-benchmark's tools and ours read."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from typing import Any

import pytest

from gpuprof import BenchResult, Verdict
from gpuprof.results import Decision
from tests.support.benchmark_results import answer
from tests.support.processes import run_command
from tests.support.pytest_projects import Project, made_up

TESTS = """
import pytest

@pytest.mark.gpu_benchmark(group="sums")
@pytest.mark.parametrize("size", [1, 2], ids=["one", "two"])
def test_a(gpu_benchmark, size):
    gpu_benchmark(sum, [size])

def test_b(gpu_benchmark):
    gpu_benchmark.extra_info.update(note="hello", bad=float("inf"), nested={"x": (1, 2)})
    gpu_benchmark(sum, [1])
"""
# pytest-benchmark's own plugin, beside ours.
BESIDE = ("-p", "pytest_benchmark.plugin", "--benchmark-max-time=0.001", "--benchmark-min-rounds=1")


@pytest.fixture
def written(project: Project) -> Any:
    project.on_gpu(1.0)
    project.pytester.makepyfile(test_it=TESTS)
    project.run("--gpu-benchmark-json=out.json").assert_outcomes(passed=3)
    return project.written()


def kinds(value: Any) -> Any:
    """Return what a document is made of: its keys, and the kinds of values."""
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    if isinstance(value, list):
        return [kinds(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def test_it_has_what_pytest_benchmark_writes(project: Project, written: Any) -> None:
    project.pytester.makepyfile(test_other="def test_c(benchmark): benchmark(sum, [1])")
    project.run(*BESIDE, "--benchmark-json=theirs.json", "test_other.py").assert_outcomes(passed=1)
    theirs, ours = project.written("theirs.json"), written
    assert theirs.keys() <= ours.keys()
    assert theirs["commit_info"].keys() - {"error"} <= ours["commit_info"].keys()
    (one,) = theirs["benchmarks"]
    for each in ours["benchmarks"]:
        assert one.keys() <= each.keys()
        assert kinds(one["stats"]) == kinds(each["stats"])


def test_a_benchmark_has_names_parameters_and_seconds(written: Any) -> None:
    first, _, last = written["benchmarks"]
    assert first["name"] == "test_a[one]"
    assert first["fullname"] == "test_it.py::test_a[one]"
    assert (first["group"], first["param"], first["params"]) == ("sums", "one", {"size": 1})
    assert first["stats"]["median"] == pytest.approx(1e-3)
    assert (last["group"], last["param"], last["params"]) == (None, None, None)
    assert last["extra_info"] == {"note": "hello", "bad": None, "nested": {"x": [1, 2]}}


def figures(project: Project, result: BenchResult) -> dict[str, Any]:
    """Return what the file has of a result under the names of pytest-benchmark."""
    fields = {"samples_ms": result.samples_ms, "calls_per_sample": result.calls_per_sample}
    project.times(fields=fields)
    project.pytester.makepyfile("def test_a(gpu_benchmark): gpu_benchmark(sum, [1])")
    project.run("--gpu-benchmark-json=out.json").assert_outcomes(passed=1)
    (benchmark,) = project.written()["benchmarks"]
    found: dict[str, Any] = benchmark["stats"]
    return found


def test_the_figures_are_those_of_the_samples(project: Project) -> None:
    result = made_up(3.0, 45, calls_per_sample=5)
    stats = figures(project, result)
    data = [ms / 1e3 for ms in result.samples_ms]
    assert stats["data"] == data
    assert stats["rounds"] == 45
    assert stats["iterations"] == 5
    assert stats["mean"] == pytest.approx(statistics.fmean(data))
    assert stats["stddev"] == pytest.approx(statistics.stdev(data))
    assert stats["median"] == pytest.approx(statistics.median(data))
    assert stats["iqr"] == pytest.approx(stats["q3"] - stats["q1"])
    assert stats["total"] == pytest.approx(math.fsum(data))
    assert stats["ops"] == pytest.approx(1 / stats["mean"])


def test_outliers_are_counted_as_pytest_benchmark_does(project: Project) -> None:
    from dataclasses import replace

    from pytest_benchmark.stats import Stats

    result = made_up(3.0, 45)
    result = replace(result, samples_ms=(*result.samples_ms, 9.0, 0.5))
    theirs = Stats()
    for ms in result.samples_ms:
        theirs.update(ms / 1e3)
    ours = figures(project, result)
    for name in ("outliers", "ld15iqr", "hd15iqr", "min", "max", "median", "mean", "stddev"):
        expected = getattr(theirs, name)
        assert ours[name] == (expected if name == "outliers" else pytest.approx(expected))


def test_pytest_benchmarks_compare_reads_it(project: Project, written: Any) -> None:
    project.on_gpu(1.2)
    project.run("--gpu-benchmark-json=later.json").assert_outcomes(passed=3)
    options = ["--csv=table.csv", "--columns=min,median,mean,stddev,iqr,outliers,ops,rounds"]
    done = run_command(
        *(sys.executable, "-m", "pytest_benchmark", "compare", *options, "out.json", "later.json"),
        cwd=project.path,
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )
    assert done.returncode == 0, done.stderr
    assert "Failed to load" not in done.stdout + done.stderr
    assert "benchmark 'sums': 4 tests" in done.stdout
    for name in ("test_a[one] (out)", "test_a[two] (later)", "test_b (out)", "test_b (later)"):
        assert name in done.stdout
    assert len((project.path / "table.csv").read_text(encoding="utf-8").splitlines()) == 7


def test_our_own_reader_reads_it(
    project: Project, written: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    code, out, err = answer(capsys, "list", project.path / "out.json", "--format", "json")
    assert (code, err) == (0, "")
    rows = {row["benchmark"]: row for row in json.loads(out)["rows"]}
    assert set(rows) == {each["fullname"] for each in written["benchmarks"]}
    assert rows["test_it.py::test_b"]["extra_info"]["note"] == "hello"
    assert rows["test_it.py::test_b"]["machine"] == "Test-GPU"


def test_it_has_the_whole_result_and_the_decision_also_of_tests_that_fail(
    project: Project, written: Any
) -> None:
    assert all(each["gpuprof"]["decision"] is None for each in written["benchmarks"])
    project.save_runs()
    project.times(1.0, fields=project.plan()["fields"], test_b=[1.6, 1.5])
    done = project.run("--gpu-benchmark-compare=main", "--gpu-benchmark-json=out.json")
    done.assert_outcomes(passed=2, failed=1)
    own = project.written()["benchmarks"][-1]["gpuprof"]
    assert own["outcome"] == "failed"
    assert own["failure"].startswith("SLOW: ")
    assert Decision.from_dict(own["decision"]).verdict is Verdict.SLOW
    medians = [each["summary"]["median_ms"] for each in (*own["earlier"], own["result"])]
    assert medians == pytest.approx([1.6, 1.5, 1.5])


def test_it_says_the_machine_and_the_commit(project: Project) -> None:
    project.pytester.makepyfile(TESTS)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=project.path, check=True, timeout=30)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=project.path, capture_output=True, text=True, check=True
    ).stdout.strip()
    project.run("--gpu-benchmark-json=out.json", "--gpu-benchmark-save=main")
    written = project.written()
    assert written["commit_info"]["id"] == head
    assert written["commit_info"]["dirty"] is False
    assert written["machine_info"]["gpuprof"]["cpu"] == "Test CPU"
    assert project.saved()["cpu-Test-CPU"][0].commit == head
    project.pytester.makepyfile(f"{TESTS}\n# changed")
    project.run("--gpu-benchmark-save=main")
    assert project.saved()["cpu-Test-CPU"][1].commit == f"{head}-dirty"


def test_it_is_written_though_nothing_was_measured(project: Project) -> None:
    project.pytester.makepyfile("def test_a(): pass")
    project.run("--gpu-benchmark-json=out.json").assert_outcomes(passed=1)
    assert project.written()["benchmarks"] == []


def test_a_file_that_cannot_be_written_fails_the_session_and_leaves_nothing(
    project: Project,
) -> None:
    lost = """
        def test_that_replaces_the_folder():
            import os
            os.rmdir("folder")
            open("folder", "x").close()
    """
    project.pytester.makepyfile(TESTS, test_lost=lost)
    (project.path / "folder").mkdir()
    done = project.run("--gpu-benchmark-json=folder/out.json")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["the JSON file was not written: *"])


def test_a_file_in_the_place_of_its_folder_is_told_before_anything_is_measured(
    project: Project,
) -> None:
    project.pytester.makepyfile(TESTS)
    (project.path / "file").write_text("", encoding="utf-8")
    said = project.refuse("--gpu-benchmark-json=file/out.json")
    said.fnmatch_lines(["*--gpu-benchmark-json: the folder * cannot be written"])


def test_a_file_that_is_no_regular_one_is_left_as_it_is(project: Project) -> None:
    project.pytester.makepyfile(TESTS)
    os.mkfifo(project.path / "pipe")
    said = project.refuse("--gpu-benchmark-json=pipe")
    said.fnmatch_lines(["*--gpu-benchmark-json is *pipe', no regular file; expected a file"])
    assert (project.path / "pipe").is_fifo()


def test_a_file_of_somebody_else_is_left_as_it_is(project: Project) -> None:
    project.pytester.makepyfile(TESTS)
    (project.path / "conf.json").write_text("{}", encoding="utf-8")
    for name, why in (("conf.json", "is there and is not results"), ("out.py", "ends in .json")):
        said = project.refuse(f"--gpu-benchmark-json={name}")
        said.fnmatch_lines([f"*--gpu-benchmark-json: *{why}*"])
    assert (project.path / "conf.json").read_text(encoding="utf-8") == "{}"


def test_a_link_is_written_through(project: Project) -> None:
    project.pytester.makepyfile(TESTS)
    (project.path / "sub").mkdir()
    (project.path / "link").symlink_to("sub/out.json")
    project.run("--gpu-benchmark-json=link").assert_outcomes(passed=3)
    assert (project.path / "link").is_symlink()
    assert len(project.written("sub/out.json")["benchmarks"]) == 3


def test_what_no_json_can_hold_fails_the_session_and_the_rest_goes_on(project: Project) -> None:
    project.pytester.makepyfile("""
        def test_a(gpu_benchmark):
            gpu_benchmark(sum, [1])
            gpu_benchmark.extra_info["digits"] = 10**5000
    """)
    done = project.run("--gpu-benchmark-json=out.json", "--gpu-benchmark-save=main")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(
        ["the JSON file was not written: *", "the baseline 'main' was not saved: *"]
    )
    done.assert_outcomes(passed=1)


def test_extra_info_takes_nothing_but_a_mapping(project: Project) -> None:
    project.pytester.makepyfile("""
        import pytest

        def test_a(gpu_benchmark):
            gpu_benchmark(sum, [1])
            gpu_benchmark.extra_info = {"size": 1}
            with pytest.raises(TypeError, match="extra_info: expected a dict, got"):
                gpu_benchmark.extra_info = [1]
    """)
    project.run("--gpu-benchmark-json=out.json").assert_outcomes(passed=1)
    assert project.written()["benchmarks"][0]["extra_info"] == {"size": 1}


def test_both_fixtures_work_in_one_session(project: Project) -> None:
    project.pytester.makepyfile("""
        def test_ours(gpu_benchmark):
            assert gpu_benchmark(sum, [1]) == 1

        def test_theirs(benchmark):
            assert benchmark(sum, [2]) == 2

        def test_both(gpu_benchmark, benchmark):
            assert gpu_benchmark(sum, [1]) == benchmark(sum, [1])
    """)
    files = ("--gpu-benchmark-json=ours.json", "--benchmark-json=theirs.json")
    switches = ("--benchmark-sort=mean", "--gpu-benchmark-sort=mean", "--gpu-benchmark-columns=min")
    shown = project.check(*BESIDE, *files, *switches, passed=3)
    shown.fnmatch_lines(
        ["*gpu_benchmark: 2 benchmarks on the CPU clock*", "* benchmark: 2 tests *"]
    )
    names = [
        [each["name"] for each in project.written(file)["benchmarks"]]
        for file in ("ours.json", "theirs.json")
    ]
    assert names == [["test_ours", "test_both"], ["test_theirs", "test_both"]]
    project.run(*BESIDE, "--benchmark-disable", "--gpu-benchmark-disable").assert_outcomes(passed=3)
    project.run(*BESIDE, "--benchmark-skip").assert_outcomes(passed=1, skipped=2)
    project.run(*BESIDE, "--gpu-benchmark-only").assert_outcomes(passed=2, skipped=1)


def test_it_is_strict_json(project: Project) -> None:
    project.pytester.makepyfile("""
        import math
        import pytest

        @pytest.mark.parametrize("value", [math.nan, object(), "\\ud800"])
        def test_a(gpu_benchmark, value):
            gpu_benchmark(sum, [1])
    """)
    project.run("--gpu-benchmark-json=out.json", "--gpu-benchmark-save=main").assert_outcomes(
        passed=3
    )
    text = (project.path / "out.json").read_text(encoding="ascii")
    found = json.loads(text, parse_constant=pytest.fail)
    assert found["benchmarks"][0]["params"] == {"value": None}


def test_an_object_that_has_no_text_does_not_lose_the_rest(project: Project) -> None:
    project.pytester.makepyfile("""
        import pytest

        class Silent:
            def __str__(self):
                raise OSError
            __repr__ = __str__

        @pytest.mark.parametrize("value", [Silent()], ids=["silent"])
        def test_a(gpu_benchmark, value):
            gpu_benchmark.extra_info[1] = value
            gpu_benchmark(sum, [1])
    """)
    project.run("--gpu-benchmark-json=out.json").assert_outcomes(passed=1)
    (found,) = project.written()["benchmarks"]
    assert "Silent object at" in found["params"]["value"]
    assert "Silent object at" in found["extra_info"]["1"]
