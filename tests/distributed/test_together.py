"""Measurements that several ranks make together: benchmarks of functions with collectives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rank_pool import SIZE, RankPool

pytestmark = pytest.mark.torch


def test_ranks_call_a_function_with_a_collective_as_often(pool: RankPool) -> None:
    answers = pool.run("benchmark_a_collective")
    assert len({answer["calls"] for answer in answers.values()}) == 1
    assert len({answer["median_ms"] for answer in answers.values()}) == 1
    assert {answer["ranks"] for answer in answers.values()} == {SIZE}


def test_ranks_compare_the_same_functions_in_each_round(pool: RankPool) -> None:
    answers = pool.run("compare_collectives").values()
    assert len({answer["seed"] for answer in answers}) == 1
    assert len({answer["ratio"] for answer in answers}) == 1
    assert all(answer["ratio"] > 2.0 for answer in answers)


def test_each_rank_may_measure_alone(pool: RankPool) -> None:
    assert pool.run("benchmark_each", ranks=[1, 2]) == {1: 0, 2: 0}


@pytest.mark.parametrize("comparing", [False, True], ids=["benchmark", "compare"])
def test_a_missing_rank_is_named_and_is_told_when_it_comes(pool: RankPool, comparing: bool) -> None:
    answers = pool.run("measure_with_a_rank_missing", 2.0, comparing, ranks=[0, 1, 3])
    late = pool.run("measure_with_a_rank_missing", 60.0, comparing, ranks=[2])
    assert "rank 0 has waited 2 s for rank 2, which is not there" in answers[0]
    assert "rank 0" in answers[1]
    assert "rank 0" in answers[3]
    assert "rank 0 has stopped" in late[2]
    assert set(pool.run("benchmark_each").values()) == {0}
    assert {each["ranks"] for each in pool.run("benchmark_a_collective").values()} == {SIZE}


@pytest.mark.parametrize("failing", [0, 2])
def test_a_rank_that_fails_stops_the_others(pool: RankPool, failing: int) -> None:
    answers = pool.run("benchmark_that_fails", failing)
    assert answers.pop(failing) == "no more"
    told = f"rank {failing} has stopped: ValueError: no more"
    assert all(told in said for said in answers.values())


def test_measuring_together_leaves_no_keys_behind(pool: RankPool) -> None:
    assert max(pool.run("benchmark_often", 6).values()) <= 0


def test_the_fixture_measures_on_all_ranks_of_a_host(pool: RankPool, tmp_path: Path) -> None:
    assert set(pool.run("benchmark_in_pytest", str(tmp_path)).values()) == {0}
