"""One file of tests under pytest-benchmark, and under gpuprof with the fixture renamed.

The file is like those in public projects. Both really measure, on the CPU clock.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import OF_PYTHON, environment
from tests.support.warm import WarmPython

TESTS = '''
"""How long waiting takes."""
import time

import pytest


def wait(ms):
    time.sleep(ms / 1000)
    return ms


@pytest.fixture
def numbers():
    return list(range(500))


@pytest.mark.parametrize("ms", [8, 1])
@pytest.mark.benchmark(group="waiting", min_rounds=5, max_time=0.02, disable_gc=True, warmup=False)
def test_wait(benchmark, ms):
    benchmark.extra_info["unit"] = "ms"
    assert benchmark(wait, ms) == ms


@pytest.mark.benchmark(max_time=0.02, warmup=False)
def test_sum(benchmark, numbers):
    result = benchmark(lambda: sum(numbers))
    assert result == sum(numbers)
    if benchmark.enabled:
        assert 0 < benchmark.stats["min"] <= benchmark.stats["median"]


class TestPedantic:
    @pytest.mark.benchmark(group="pedantic")
    def test_rounds(self, benchmark):
        torn = []

        def setup():
            return (1,), {}

        value = benchmark.pedantic(
            wait, setup=setup, teardown=torn.append, rounds=7, warmup_rounds=2, iterations=1
        )
        assert value == 1
        assert benchmark.disabled or (len(torn) >= 9 and benchmark.stats["rounds"] == 7)


def test_without_a_benchmark():
    pass
'''
ALL = 5
# What a run of either plugin imports besides the plugin.
OF_PYTEST = (
    *("pytest", "pytest_benchmark.session", "cProfile", "pdb", "unittest"),
    *("xml.etree.ElementTree", "_pytest.junitxml", "_pytest.pastebin", "_pytest.unittest"),
)
WARM = WarmPython(*OF_PYTHON, *OF_PYTEST)
COLUMNS = ["min", "max", "mean", "stddev", "median", "iqr", "outliers", "ops", "rounds"]


@dataclass
class Suite:
    """The file under one of the plugins; options are written as pytest-benchmark's."""

    folder: Path
    is_ours: bool

    def own(self, text: str) -> str:
        """Rename what is pytest-benchmark's."""
        return re.sub(r"(?<!\w)benchmark(?=\b|-)", "gpu_benchmark", text) if self.is_ours else text

    def write(self) -> Suite:
        self.folder.mkdir()
        (self.folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (self.folder / "test_it.py").write_text(self.own(TESTS), encoding="utf-8")
        return self

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        plugin = "gpuprof._pytest.plugin" if self.is_ours else "pytest_benchmark.plugin"
        given = [self.own(option).replace("gpu_benchmark-", "gpu-benchmark-") for option in options]
        return run_pytest(self.folder, "-p", plugin, *given)

    def written(self) -> list[dict[str, Any]]:
        text = (self.folder / "out.json").read_text(encoding="utf-8")
        found: list[dict[str, Any]] = json.loads(text)["benchmarks"]
        return found


def run_pytest(folder: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CUDA_VISIBLE_DEVICES": "", **more}
    variables["PYTEST_XDIST_WORKER"] = ""  # beside which pytest-benchmark measures nothing
    command = ("-m", "pytest", "-p", "no:cacheprovider", *options)
    return WARM.run(*command, env=environment(None, **variables), cwd=folder, timeout=120)


@pytest.fixture
def suites(tmp_path: Path) -> tuple[Suite, Suite]:
    """The suite of pytest-benchmark, and ours."""
    pytest.importorskip("pytest_benchmark")
    return Suite(tmp_path / "theirs", False).write(), Suite(tmp_path / "ours", True).write()


def counted(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what pytest counted, such as ``4 passed``."""
    (line,) = re.findall(r"^=+ (.*) in [\d.]+s.*=+$", done.stdout, re.M)[-1:]
    return [each.strip() for each in line.split(",")]


def test_both_report_the_same_tests_groups_and_figures(suites: tuple[Suite, Suite]) -> None:
    written = []
    for suite in suites:
        done = suite.run("--benchmark-json=out.json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert counted(done) == [f"{ALL} passed"]
        written.append(suite.written())
    theirs, ours = written
    for key in ("name", "fullname", "group", "param", "params", "extra_info"):
        assert [each[key] for each in ours] == [each[key] for each in theirs]
    for his, own in zip(theirs, ours, strict=True):
        assert set(his["stats"]) <= set(own["stats"])
    (his,), (own,) = ([each for each in found if each["group"] == "pedantic"] for found in written)
    assert his["stats"]["rounds"] == own["stats"]["rounds"] == 7
    assert his["stats"]["iterations"] == own["stats"]["iterations"] == 1


def tables(output: str) -> list[tuple[str, list[str], list[str]]]:
    """Return each table's group, its columns and the tests in it, of either plugin."""
    found: list[tuple[str, list[str], list[str]]] = []
    group = ""
    for line in output.splitlines():
        title = re.match(r"-+ benchmark(?: '(.*)')?: \d+ tests -+$|group (.*)$", line)
        head = re.match(r"(?:Name \(time in \w+\)|benchmark) +(.*)$", line)
        if title:
            group = title[1] or title[2] or ""
        elif head:
            columns = re.sub(r"\(.*?\)", "", head[1]).lower().split()
            found.append((group, columns, []))
        elif found and line.startswith("test_") and "::" not in line.split()[0]:
            found[-1][2].append(line.split()[0])
    return found


@pytest.mark.parametrize(
    "options",
    [
        ["--benchmark-sort=min"],
        ["--benchmark-sort=min", "--benchmark-group-by=func"],
        ["--benchmark-sort=name", "--benchmark-group-by=param:ms", "-k", "test_wait"],
    ],
)
def test_both_show_the_same_tables(suites: tuple[Suite, Suite], options: list[str]) -> None:
    shown = []
    for suite in suites:
        done = suite.run(f"--benchmark-columns={','.join(COLUMNS)}", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        shown.append(tables(done.stdout))
    theirs, ours = shown
    assert len(theirs) >= 2
    assert {tuple(columns) for _, columns, _ in ours} == {tuple(COLUMNS)}
    assert ours == theirs


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        (["--benchmark-only"], (0, ["4 passed", "1 skipped"])),
        (["--benchmark-skip"], (0, ["1 passed", "4 skipped"])),
        (["--benchmark-skip", "--benchmark-only"], (0, ["4 passed", "1 skipped"])),
        (["--benchmark-disable"], (0, ["5 passed"])),
        (["--benchmark-disable", "--benchmark-enable"], (0, ["5 passed"])),
        (["--benchmark-disable", "--benchmark-only"], (4, None)),
        (["--benchmark-sort=slowest"], (4, None)),
        (["--benchmark-columns=best"], (4, None)),
        (["--benchmark-min-rounds=0"], (4, None)),
        (["--benchmark-max-time=x"], (4, None)),
    ],
)
def test_both_run_the_same_tests_and_end_with_the_same_code(
    suites: tuple[Suite, Suite], options: list[str], ends: tuple[int, list[str] | None]
) -> None:
    code, counts = ends
    for suite in suites:
        done = suite.run(*options)
        assert done.returncode == code, done.stdout + done.stderr
        if counts is not None:
            assert counted(done) == counts
