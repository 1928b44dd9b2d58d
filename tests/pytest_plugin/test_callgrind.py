"""Instructions that Callgrind counts: of real tests, under a real Valgrind where there is one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.pytest_projects import COMPARE

CALLGRIND = "--gpu-benchmark-cpu-metric=callgrind"
QUICK = ("--gpu-benchmark-max-time=0.5", "--gpu-benchmark-warmup=off")
PLAIN = ("-p", "no:randomly", "-p", "no:hypothesispytest", "-p", "no:xdist", "-p", "no:benchmark")
TEST = """
from pathlib import Path

def work(numbers):
    return sorted(numbers[:{count}])

def test_it(gpu_benchmark):
    with Path("runs.txt").open("a") as file:
        file.write("x")
    gpu_benchmark(work, list(range(5000, 0, -1)))
"""

needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="Valgrind is not installed"
)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_it=TEST.format(count=1000))
    return pytester


def counted(project: pytest.Pytester, *options: str) -> dict[str, Any]:
    """Run the test, and return the instructions in its result."""
    out = "--gpu-benchmark-json=out.json"
    done = project.runpytest_subprocess(CALLGRIND, out, *options, *QUICK, *PLAIN)
    done.assert_outcomes(passed=1)
    saved = json.loads((project.path / "out.json").read_text(encoding="utf-8"))
    (benchmark,) = saved["benchmarks"]
    found: dict[str, Any] = benchmark["gpuprof"]["result"]["instructions"]
    return found


@needs_valgrind
def test_unchanged_code_takes_the_same_instructions_and_twice_the_work_twice_as_many(
    project: pytest.Pytester,
) -> None:
    first, again = counted(project), counted(project)
    # Such as the length of a path may move some allocations.
    assert first["per_call"] == pytest.approx(again["per_call"], rel=5e-3)
    assert (first["source"], first["reason"]) == ("Callgrind", "")
    project.makepyfile(test_it=TEST.format(count=2000))
    (more,), (less,) = counted(project)["per_call"], first["per_call"]
    assert more / less == pytest.approx(2.0, rel=0.1)
    # Reading 1,000 numbers and comparing each with the next takes at least some 3,000.
    assert 3_000 < less < 1_000_000


@needs_valgrind
def test_more_instructions_fail_and_are_counted_once(project: pytest.Pytester) -> None:
    save = ("--gpu-benchmark-save=main", CALLGRIND, *QUICK, *PLAIN)
    project.runpytest_subprocess(*save).assert_outcomes(passed=1)
    project.makepyfile(test_it=TEST.format(count=1500))
    (project.path / "runs.txt").unlink()
    done = project.runpytest_subprocess(
        COMPARE, CALLGRIND, "--gpu-benchmark-reruns=0", *QUICK, *PLAIN
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*INSTRUCTIONS: test_it: takes * % more instructions, *"])
    assert (project.path / "runs.txt").read_text() == "xx"  # here, and under Callgrind


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder in which programs are found."""
    found = tmp_path / "bin"
    found.mkdir()
    monkeypatch.setenv("PATH", os.fspath(found))
    return found


def test_where_valgrind_is_missing_the_reason_is_said(project: pytest.Pytester, path: Path) -> None:
    assert [*path.iterdir()] == []
    found = counted(project)
    assert (found["per_call"], found["reason"]) == ([], "valgrind is not installed")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo it broke >&2; exit 3", "under Callgrind, a process of its own ended with 3: it bro"),
        ("exit 0", "Callgrind has counted nothing"),
    ],
)
def test_where_valgrind_fails_the_reason_is_said(
    project: pytest.Pytester, path: Path, script: str, reason: str
) -> None:
    (path / "valgrind").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (path / "valgrind").chmod(0o755)
    found = counted(project)
    assert found["per_call"] == []
    assert found["reason"].startswith(reason)


def test_the_time_decides_where_nothing_was_counted(project: pytest.Pytester, path: Path) -> None:
    del path
    save = ("--gpu-benchmark-save=main", CALLGRIND, *QUICK, *PLAIN)
    project.runpytest_subprocess(*save).assert_outcomes(passed=1)
    done = project.runpytest_subprocess(
        COMPARE, CALLGRIND, "--gpu-benchmark-reruns=0", *QUICK, *PLAIN
    )
    done.stdout.fnmatch_lines(["note: the time decides, not the instructions: *not installed"])
