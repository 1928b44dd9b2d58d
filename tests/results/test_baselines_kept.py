"""Which runs a baseline keeps, and what may be in its way."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuprof._results import baselines
from gpuprof._results.baselines import Baselines
from gpuprof.errors import BaselineError
from tests.results.test_baselines import result, run


@pytest.fixture
def store(tmp_path: Path) -> Baselines:
    return Baselines(tmp_path / "kept")


def test_the_last_twenty_runs_are_kept_the_oldest_first(store: Baselines) -> None:
    for number in range(23):
        store.append("main", run(number))
    kept = store.runs("main")["NVIDIA-H200"]
    assert [each.commit for each in kept] == [f"c{number}" for number in range(3, 23)]


def test_runs_without_a_benchmark_do_not_push_it_out(store: Baselines) -> None:
    store.append("main", replace(run(1), results={"x": result("x"), "failing": result("failing")}))
    for number in range(2, 32):
        store.append("main", run(number))
    kept = store.runs("main")["NVIDIA-H200"]
    assert [list(each.results) for each in kept] == [["failing"], *[["x"]] * 20]


def test_benchmarks_that_come_and_go_do_not_fill_the_file_for_ever(
    store: Baselines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "MAX_RUNS", 3)
    for number in range(5):
        store.append("main", replace(run(number), results={f"x{number}": result()}))
    kept = store.runs("main")["NVIDIA-H200"]
    assert [list(each.results) for each in kept] == [["x2"], ["x3"], ["x4"]]


@pytest.mark.timeout(20)
def test_a_fifo_in_place_of_the_lock_is_refused_without_waiting_for_it(store: Baselines) -> None:
    lock = store.append("main", run()).parent / ".lock"
    lock.unlink()
    os.mkfifo(lock)
    with pytest.raises(BaselineError, match=r"cannot be written: .*\.lock is not a regular file"):
        store.append("main", run())
