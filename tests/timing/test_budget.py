"""A budget: which visits are measured, and what is said of the others."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

import gpuprof
from gpuprof.results import Row
from tests.support.processes import check_python
from tests.support.scopes import cpu

TINY = 1e-9  # no visit is measured but the first 16 of a path
FIRST = 16


@pytest.fixture(autouse=True)
def budget() -> Iterator[None]:
    gpuprof.reset()
    gpuprof.set_budget(TINY)
    yield
    gpuprof.set_budget(None)
    gpuprof.reset()


def visit(name: str, times: int) -> Row:
    for _ in range(times):
        with cpu(name):
            pass
    return gpuprof.stats()[name]


def test_all_visits_are_counted_and_the_first_ones_are_measured() -> None:
    host = visit("hot", 5000).host
    assert host.count == 5000
    assert FIRST <= host.measured < 200
    assert host.total_ms == pytest.approx(5000 * host.mean_ms)
    assert host.one_in == 5000 / host.measured


def test_a_row_says_that_visits_were_left_out() -> None:
    row = visit("hot", 5000)
    assert "1 in " in gpuprof.stats().table()
    assert row.host.to_dict()["left_out"] == row.host.left_out
    assert Row.from_dict(row.to_dict()).host.left_out == row.host.left_out


def test_a_visit_that_is_left_out_has_no_time() -> None:
    visit("hot", 5000)
    samples = [sample for _ in range(50) for sample in [cpu("hot").__enter__()]]
    left_out = [sample for sample in samples if sample.state == "left out"]
    assert left_out
    assert math.isnan(left_out[0].ms)
    left_out[0].flops = 1.0
    assert left_out[0].flops is None


def test_visits_inside_one_that_is_left_out_are_left_out_and_counted_at_their_path() -> None:
    for _ in range(5000):
        with cpu("outer"), cpu("inner"):
            pass
    inner = gpuprof.stats()["outer/inner"].host
    assert inner.count == 5000
    assert inner.measured < 200


def test_scopes_without_a_name_and_enabled_ones_are_always_measured() -> None:
    visit("hot", 1000)
    with cpu("hot"), cpu() as unnamed, cpu("explicit", enabled=True) as explicit:
        pass
    assert unnamed.ms >= 0
    assert explicit.ms >= 0
    assert explicit.one_in == 1


def test_exceptions_out_of_visits_that_are_left_out_count_as_failed() -> None:
    visit("hot", 1000)
    for _ in range(100):
        with pytest.raises(KeyError), cpu("hot"):
            raise KeyError
    row = gpuprof.stats()["hot"]
    assert (row.host.count, row.failed) == (1000, 100)


def test_generators_that_are_suspended_in_visits_that_are_left_out_close_their_own() -> None:
    def steps() -> Iterator[None]:
        with cpu("hot"):
            yield

    visit("hot", 1000)
    first, second = steps(), steps()
    for each in (first, second):
        next(each)
    for each in (first, second):
        assert next(each, None) is None
    stats = gpuprof.stats()
    assert (stats["hot"].host.count, stats["hot/hot"].host.count) == (1001, 1)


def test_a_reset_forgets_counts_and_visits_that_are_open() -> None:
    visit("hot", 1000)
    with cpu("hot"):
        gpuprof.reset()
    assert "hot" not in gpuprof.stats()
    assert visit("hot", 3).host.left_out == 0


def test_without_a_budget_every_visit_is_measured_again() -> None:
    visit("hot", 1000)
    gpuprof.set_budget(None)
    before = gpuprof.stats()["hot"].host.measured
    assert visit("hot", 10).host.measured == before + 10


def test_merged_rows_keep_their_counts() -> None:
    visit("hot", 1000)
    stats = gpuprof.stats()
    host = stats.merge(stats)["hot"].host
    assert (host.count, host.left_out) == (2000, 2 * stats["hot"].host.left_out)


@pytest.mark.parametrize("share", [0, -0.1, 1.5, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share: expected a number above 0 and up to 1"):
        gpuprof.set_budget(share)


def test_the_environment_sets_it() -> None:
    code = """
import gpuprof
for _ in range(5000):
    with gpuprof.timer("hot", backend="cpu"):
        pass
print(gpuprof.stats()["hot"].host.left_out > 0)
"""
    assert check_python(code, GPUPROF_BUDGET="0.0000001%") == "True\n"
