"""A test that may be slower is measured again in processes of its own: real ones, of real tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.benchmark_results import saved, stored
from tests.support.pytest_projects import COMPARE

# Its time is a number in a file, counted in square roots, so that a test can make it slower.
TEST = """
import os
from pathlib import Path

STEPS = int(Path("steps.txt").read_text())
PIDS = Path("pids.txt")


def work():
    for number in range(STEPS):
        number**0.5


def test_it(gpu_benchmark, request):
    with PIDS.open("a") as file:
        file.write(f"{os.getpid()} {request.config.getoption('--device', 'none')}\\n")
    gpu_benchmark(work)
"""
CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--device")
"""
# Long enough for 30 samples on a machine that is busy.
QUICK = ("--gpu-benchmark-max-time=0.5", "--gpu-benchmark-warmup=off", "-p", "no:randomly")


@pytest.fixture
def slower(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose test takes ten times as long as in its five stored runs."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_it=TEST, conftest=CONFTEST)
    steps = pytester.path / "steps.txt"
    steps.write_text("500")
    done = pytester.runpytest_subprocess("--gpu-benchmark-save=main", *QUICK)
    done.assert_outcomes(passed=1)
    folder = pytester.path / ".gpuprof"
    ((run,),) = stored("main", folder).values()
    for _ in range(4):
        saved("main", run.created, *run.results.values(), folder=folder)
    steps.write_text("5000")
    (pytester.path / "pids.txt").unlink()
    return pytester


def pids(project: pytest.Pytester) -> list[list[str]]:
    return [line.split() for line in (project.path / "pids.txt").read_text().splitlines()]


def test_each_measurement_has_a_process_of_its_own_and_this_ones_options(
    slower: pytest.Pytester,
) -> None:
    done = slower.runpytest_subprocess(
        COMPARE, "--gpu-benchmark-json=out.json", "--junitxml=x.xml", "--device=two", *QUICK
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["SLOW: *", "*now *", "*measured again *", "*measured again *"])
    found = pids(slower)
    assert len({pid for pid, _ in found}) == len(found) == 3
    assert {device for _, device in found} == {"two"}
    assert (slower.path / "x.xml").read_text().count("<testcase") == 1


def test_without_reruns_this_process_measures_once_more(slower: pytest.Pytester) -> None:
    done = slower.runpytest_subprocess(COMPARE, "--gpu-benchmark-reruns=0", *QUICK)
    done.assert_outcomes(failed=1)
    assert done.stdout.str().count("measured again") == 1
    assert len(pids(slower)) == 1


def test_where_it_runs_in_no_other_process_this_one_measures_and_says_so(
    slower: pytest.Pytester,
) -> None:
    text = (slower.path / "test_it.py").read_text()
    refuses = 'import os\nassert "GPUPROF_BENCHMARK_RESULT" not in os.environ, "no second one"\n'
    (slower.path / "test_it.py").write_text(refuses + text)
    done = slower.runpytest_subprocess(COMPARE, *QUICK)
    done.assert_outcomes(failed=1, warnings=1)
    done.stdout.fnmatch_lines(
        ["*gpu_benchmark: measured again in this process, because a process of its own ended with*"]
    )
    assert len(pids(slower)) == 1


def test_workers_measure_again_in_other_processes_too(slower: pytest.Pytester) -> None:
    done = slower.runpytest_subprocess(COMPARE, "-n", "1", "test_it.py", *QUICK)
    done.assert_outcomes(failed=1)
    assert len({pid for pid, _ in pids(slower)}) == 3


def test_a_test_of_a_folder_elsewhere_is_found_again(slower: pytest.Pytester) -> None:
    (slower.path / "below").mkdir()
    command = ("-c", "../tox.ini", "--rootdir=..", "../test_it.py::test_it", COMPARE, *QUICK)
    slower.chdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(slower.path / "below")
        for file in ("steps.txt", "pids.txt"):
            Path(file).symlink_to(slower.path / file)
        done = slower.run(sys.executable, "-m", "pytest", *command)
    done.assert_outcomes(failed=1)
    assert len({pid for pid, _ in pids(slower)}) == 3


def test_only_the_first_process_judges_by_max_ms(slower: pytest.Pytester) -> None:
    limited = TEST.replace(
        "def test_it", "import pytest\n@pytest.mark.gpu_benchmark(max_ms=1e-6)\ndef test_it"
    )
    slower.makepyfile(test_it=limited)
    done = slower.runpytest_subprocess(*QUICK)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["TOO SLOW: *", "*now *", "*measured again *"])
    assert len(pids(slower)) == 2
