"""Which runs a baseline keeps, and what may be in its way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuprof import history
from gpuprof.errors import BaselineError
from tests.support.benchmark_results import bench, saved

H200 = {"gpu": "NVIDIA H200", "cpu": "Some CPU", "driver": "580.1"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(number: int, *names: str) -> None:
    """Save a run of these benchmarks."""
    created = f"2026-01-01T00:{number // 60:02}:{number % 60:02}+00:00"
    results = [bench(name, [1.0] * 30, machine=H200, created=created) for name in names]
    saved("main", created, *results, commit=f"c{number}")


def kept() -> dict[str, list[int]]:
    """The numbers of the runs that are kept of each benchmark, the oldest first."""
    return {
        series.benchmark: [int((point.commit or "c0")[1:]) for point in series.points]
        for series in history().series
    }


def test_the_last_twenty_runs_are_kept_the_oldest_first() -> None:
    for number in range(23):
        save(number, "x")
    assert kept() == {"x": [*range(3, 23)]}


def test_runs_without_a_benchmark_do_not_push_it_out() -> None:
    save(1, "x", "failing")
    for number in range(2, 32):
        save(number, "x")
    assert kept() == {"failing": [1], "x": [*range(12, 32)]}


def test_benchmarks_that_come_and_go_do_not_fill_the_file_for_ever() -> None:
    for number in range(102):
        save(number, f"x{number}")
    assert kept() == {f"x{number}": [number] for number in range(2, 102)}


@pytest.mark.timeout(20)
def test_a_fifo_in_place_of_the_lock_is_refused_without_waiting_for_it() -> None:
    save(1, "x")
    lock = Path(".gpuprof/baselines/main/.lock")
    lock.unlink()
    os.mkfifo(lock)
    with pytest.raises(BaselineError, match=r"cannot be written: .*\.lock is not a regular file"):
        save(2, "x")
