"""A test that may be slower is measured again in processes of its own: real ones, of real tests."""

from __future__ import annotations

import os
import shutil
import subprocess
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
# The plugins of other packages take as long to load as all else does.
PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "gpuprof._pytest.plugin"}


@pytest.fixture(scope="module")
def stored_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose test has five stored runs."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in {
        "tox.ini": "[pytest]\n",
        "test_it.py": TEST,
        "conftest.py": CONFTEST,
        "steps.txt": "500",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--gpu-benchmark-save=main", *QUICK],
        cwd=folder,
        env={**os.environ, **PLUGINS, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    ((run,),) = stored("main", folder / ".gpuprof").values()
    for _ in range(4):
        saved("main", run.created, *run.results.values(), folder=folder / ".gpuprof")
    (folder / "pids.txt").unlink()
    return folder


@pytest.fixture
def slower(
    stored_runs: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """A project whose test takes ten times as long as in its stored runs."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    for name, value in PLUGINS.items():
        monkeypatch.setenv(name, value)
    shutil.copytree(stored_runs, pytester.path, dirs_exist_ok=True)
    (pytester.path / "steps.txt").write_text("5000")
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


def test_workers_measure_again_in_other_processes_too(
    slower: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PLUGINS:  # as most projects have it: all that is installed
        monkeypatch.delenv(name)
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
