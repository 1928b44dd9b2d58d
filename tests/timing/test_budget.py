"""A budget: which visits are measured, and what is said of the others."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import json
import math
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gpuprof
from gpuprof.results import Row
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_python
from tests.support.scopes import cpu
from tests.support.threads import in_threads

MS = 1_000_000
TINY = 1e-9  # hardly a visit is measured but the first 16 of a path
SMALL = 0.01
FIRST = 16
BATCH = 256  # samples that wait make a listener be called


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


def stands_for_others(scope: gpuprof.Scope) -> gpuprof.Sample:
    """Enter the scope until a measured visit stands for several."""
    gpuprof.set_budget(SMALL)
    while True:
        with scope as sample:
            pass
        if sample.one_in > 1:
            return sample


def leave_out(stream: int) -> gpuprof.Scope:
    """Return a scope on the GPU whose visits are left out from now on."""
    scope = gpuprof.timer("gpu", stream=stream)
    for _ in range(10 * FIRST):
        with scope:
            pass
    return scope


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


def test_a_visit_that_stands_for_others_measures_a_part_of_many_inside() -> None:
    outer, weight = cpu("outer"), 1
    gpuprof.set_budget(SMALL)
    while weight == 1:
        with outer as sample:
            weight = sample.one_in
            if weight > 1:
                gpuprof.set_budget(TINY)
                for _ in range(5000):
                    with cpu("inner"):
                        pass
    inner = gpuprof.stats()["outer/inner"].host
    assert inner.count == 5000
    assert inner.measured < 200


def test_visits_are_skipped_where_none_has_a_time_yet() -> None:
    for _ in range(FIRST):
        with pytest.raises(KeyError), cpu("hot"):
            raise KeyError
    for _ in range(1000):
        with cpu("hot"):
            pass
    row = gpuprof.stats()["hot"]
    assert (row.host.count + row.skipped, row.failed) == (1000, FIRST)


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


def test_threads_that_share_a_scope_count_all_their_visits() -> None:
    scope = cpu("hot")

    def work() -> None:
        for _ in range(500):
            with scope, cpu("inner"):
                pass

    in_threads(*[work] * 4)
    stats = gpuprof.stats()
    assert (stats["hot"].host.count, stats["hot/inner"].host.count) == (2000, 2000)
    assert stats["hot"].host.left_out > 0


def test_a_visit_that_is_left_out_is_closed_on_any_thread_of_its_context() -> None:
    scope = cpu("moved")
    visit("moved", FIRST)
    context = contextvars.copy_context()
    sample = context.run(scope.__enter__)
    assert sample.state == "left out"
    with ThreadPoolExecutor(1) as thread:
        thread.submit(context.run, scope.__exit__, None, None, None).result()
        thread.submit(visit, "other", 1).result()
    context.run(visit, "next", 1)
    assert {each: row.time.count for each, row in gpuprof.stats().items()} == {
        "moved": FIRST + 1,
        "other": 1,
        "next": 1,
    }


def test_tasks_that_interleave_close_their_own_visits() -> None:
    async def steps(name: str) -> None:
        for _ in range(200):
            with cpu(name):
                await asyncio.sleep(0)
                with cpu("inner"):
                    await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(steps(f"task {i}") for i in range(3)))

    asyncio.run(main())
    stats = gpuprof.stats()
    counts = {path: row.host.count for path, row in stats.items()}
    assert counts == {f"task {i}{below}": 200 for i in range(3) for below in ("", "/inner")}
    assert stats["task 0/inner"].host.left_out > 0


def test_scopes_on_the_gpu_are_counted_and_estimated(fake: FakeCuda, stream: int) -> None:
    scope = gpuprof.timer("gpu", stream=stream)
    for _ in range(500):
        with scope:
            fake.work(stream, MS)
    gpuprof.flush()
    row = gpuprof.stats()["gpu"]
    assert (row.gpu.count, row.host.count) == (500, 500)
    assert row.gpu.left_out == row.host.left_out > 0
    assert row.gpu.total_ms == pytest.approx(500, rel=0.01)


def test_what_a_graph_records_is_measured_in_each_launch(fake: FakeCuda, stream: int) -> None:
    scope = leave_out(stream)
    with gpuprof.capture(stream, timers="collect") as cap, scope as sample:
        fake.work(stream, 2 * MS)
    assert (sample.state, sample.one_in) == ("captured", 1)
    with cap.graph as graph:
        before = gpuprof.stats()["gpu"].gpu
        for _ in range(3):
            graph.launch()
        assert graph.timings()["gpu"].ms == pytest.approx(2, abs=0.01)
        after = gpuprof.stats()["gpu"].gpu
        assert (after.measured, after.left_out) == (before.measured + 3, before.left_out)
    with scope as sample:
        pass
    assert sample.state == "left out"


def test_a_scope_that_records_in_others_captures_is_always_measured(
    fake: FakeCuda, stream: int
) -> None:
    scope = gpuprof.timer("gpu", stream=stream, in_capture="record")
    for _ in range(10 * FIRST):
        with scope:
            pass
    fake.begin_capture(stream)
    with scope as sample:
        pass
    assert sample.state == "captured"
    fake.graph_destroy(fake.end_capture(stream))
    assert gpuprof.stats()["gpu"].host.left_out == 0


def test_a_listener_is_called_after_an_outermost_visit_that_is_left_out() -> None:
    visit("outer", 1000)
    heard: list[list[gpuprof.Sample]] = []
    with gpuprof.on_sample(heard.append, paths="outer/*"):
        for _ in range(BATCH):
            with cpu("outer"), cpu("inner", enabled=True):
                assert heard == []
        assert [len(batch) for batch in heard] == [BATCH]


def test_no_listener_is_called_in_a_capture_of_others(fake: FakeCuda, stream: int) -> None:
    outer = leave_out(stream)
    heard: list[list[gpuprof.Sample]] = []
    with gpuprof.on_sample(heard.append):
        with outer:
            for _ in range(BATCH):
                with cpu("inner", enabled=True):
                    pass
            fake.begin_capture(stream)
        assert heard == []
        fake.graph_destroy(fake.end_capture(stream))
        with outer:
            pass
        assert len(heard) == 1


def test_a_sample_says_how_many_visits_it_stands_for_also_when_it_is_copied() -> None:
    sample = stands_for_others(cpu("hot"))
    for other in (pickle.loads(pickle.dumps(sample)), copy.deepcopy(sample)):
        assert other.one_in == sample.one_in
        assert other.to_dict()["one_in"] == sample.one_in
    gpuprof.set_budget(None)
    with cpu("hot") as alone:
        pass
    assert alone.one_in == 1
    assert "one_in" not in alone.to_dict()


def test_a_trace_says_one_in_how_many_a_span_is(
    fake: FakeCuda, stream: int, tmp_path: Path
) -> None:
    with gpuprof.trace(tmp_path / "trace.json"):
        samples = [
            stands_for_others(gpuprof.timer(name, stream=stream, backend=backend))
            for name, backend in (("host", "cpu"), ("gpu", "cuda"))
        ]
        gpuprof.flush()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    for name, sample in zip(("host", "gpu"), samples, strict=True):
        spans = [event for event in events if event["name"] == name and event["ph"] == "X"]
        told = [span.get("args", {}).get("one_in", 1) for span in spans]
        assert told.count(sample.one_in) == (2 if name == "gpu" else 1)


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


def test_the_work_of_all_visits_is_counted() -> None:
    for _ in range(5000):
        with cpu("hot", flops=2.0):
            pass
    row = gpuprof.stats()["hot"]
    assert row.host.left_out > 0
    assert row.work is not None
    assert row.work.count == 5000


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


@pytest.mark.parametrize("text", ["much", "0", "200%", "nan"])
def test_a_wrong_text_in_the_environment_is_said_and_sets_none(text: str) -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import gpuprof
    for _ in range(1000):
        with gpuprof.timer("hot", backend="cpu"):
            pass
print(gpuprof.stats()["hot"].host.left_out, *(each.message for each in said))
"""
    out = check_python(code, GPUPROF_BUDGET=text)
    assert out.startswith("0 gpuprof: GPUPROF_BUDGET is a share such as 1% or 0.01, not ")
