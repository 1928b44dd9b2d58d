"""Work of scopes: where it may be told, and the rates that rows and tables make of it."""

from __future__ import annotations

import asyncio
import json
import math
import pickle
from collections.abc import Iterator

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.timing.test_cuda import EMPTY_MS, MS


@pytest.fixture
def peaks() -> Iterator[None]:
    gpuprof.set_peaks({"bfloat16": 1e15, "float32": 5e13}, 4e12)
    yield
    gpuprof.set_peaks()


def work_of(path: str, clock: str = "cuda") -> gpuprof.results.Work:
    work = gpuprof.stats()[path, clock].work
    assert work is not None
    return work


def test_rates_are_the_work_over_the_gpu_time(fake: FakeCuda, stream: int) -> None:
    scope = gpuprof.timer("mm", stream=stream, flops=8e12, nbytes=4e9)
    for ms in (4, 12):
        with scope:
            fake.work(stream, ms * MS)
    work = work_of("mm")
    seconds = (4 + 12 + 2 * EMPTY_MS) / 1000
    assert (work.count, work.flops, work.nbytes) == (2, 8e12, 4e9)
    assert work.flops_per_s == pytest.approx(16e12 / seconds, rel=1e-4)
    assert work.bytes_per_s == pytest.approx(8e9 / seconds, rel=1e-4)
    assert (work.flops_share, work.bytes_share, work.peak_dtype) == (None, None, "")


def test_the_body_may_tell_the_work(fake: FakeCuda, stream: int) -> None:
    with gpuprof.timer("mm", stream=stream, flops=1.0) as sample:
        assert (sample.flops, sample.nbytes) == (1.0, None)
        sample.flops = 2e12
        sample.nbytes = 10
        fake.work(stream, 4 * MS)
    assert (sample.flops, sample.nbytes) == (2e12, 10.0)
    assert (work_of("mm").flops, work_of("mm").nbytes) == (2e12, 10)
    with gpuprof.timer("mm", stream=stream, flops=1.0) as sample:
        sample.flops = None
    assert sample.flops is None
    assert work_of("mm").count == 1


def test_samples_without_work_are_in_the_row_and_not_in_the_rates(
    fake: FakeCuda, stream: int
) -> None:
    with gpuprof.timer("mm", stream=stream):
        fake.work(stream, 100 * MS)
    with gpuprof.timer("mm", stream=stream, flops=4e12):
        fake.work(stream, 4 * MS)
    row = gpuprof.stats()["mm"]
    assert row.gpu.count == 2
    assert row.work is not None
    assert row.work.count == 1
    assert row.work.flops_per_s == pytest.approx(1e15, rel=1e-3)


def test_flops_and_bytes_of_different_samples_have_their_own_times(
    fake: FakeCuda, stream: int
) -> None:
    with gpuprof.timer("x", stream=stream, flops=1e12):
        fake.work(stream, 1 * MS)
    with gpuprof.timer("x", stream=stream, nbytes=1e9):
        fake.work(stream, 10 * MS)
    work = work_of("x")
    assert work.count == 2
    assert work.flops_per_s == pytest.approx(1e15, rel=0.01)
    assert work.bytes_per_s == pytest.approx(1e11, rel=0.01)


def test_a_row_without_work_has_none(fake: FakeCuda, stream: int) -> None:
    with gpuprof.timer("mm", stream=stream) as sample:
        fake.work(stream, MS)
    assert (sample.flops, sample.nbytes, gpuprof.stats()["mm"].work) == (None, None, None)
    assert "FLOP" not in gpuprof.stats().tree()


def test_no_work_at_all_is_work_of_zero(fake: FakeCuda, stream: int) -> None:
    with gpuprof.timer("mm", stream=stream, flops=0):
        fake.work(stream, MS)
    assert (work_of("mm").flops, work_of("mm").flops_per_s) == (0, 0)


def test_work_beyond_all_numbers_is_still_json(fake: FakeCuda, stream: int) -> None:
    for _ in range(2):
        with gpuprof.timer("mm", stream=stream, flops=1.7e308):
            fake.work(stream, MS)
    stats = gpuprof.stats()
    assert json.loads(stats.to_json())["rows"][0]["work"]["flops_per_s"] is None
    assert "mm" in stats.tree()


def test_a_body_that_raised_does_not_count(fake: FakeCuda, stream: int) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        gpuprof.timer("mm", stream=stream, flops=1e12) as sample,
    ):
        _ = 1 // 0
    assert sample.flops == 1e12
    assert gpuprof.stats()["mm"].work is None


def test_on_the_cpu_clock_rates_use_the_host_time(peaks: None) -> None:
    with gpuprof.timer("load", backend="cpu", nbytes=1e6) as sample:
        pass
    work = work_of("load", "cpu")
    assert work.bytes_per_s == pytest.approx(1e6 / (sample.host_ms / 1000), rel=1e-6)
    assert work.bytes_share is None  # the peaks are the GPU's


def test_shares_are_of_the_devices_peaks(fake: FakeCuda, stream: int, peaks: None) -> None:
    with gpuprof.timer("mm", stream=stream, flops=1e12, nbytes=1e9):
        fake.work(stream, 2 * MS)
    with gpuprof.timer("copy", stream=stream, nbytes=6e9):
        fake.work(stream, 2 * MS)
    work = work_of("mm")
    assert work.flops_share == pytest.approx(0.5, rel=0.01)
    assert work.bytes_share == pytest.approx(0.125, rel=0.01)
    assert work.peak_dtype == "bfloat16"
    lines = {line.split()[0]: line for line in gpuprof.stats().tree().split("\n")}
    assert "FLOP/s" in lines["scope"]
    assert "bytes/s" in lines["scope"]
    assert "% of peak" in lines["scope"]
    assert "500 TFLOP/s   500 GB/s  50.0 bfloat16" in lines["mm"]
    assert "3.00 TB/s    75.0 memory" in lines["copy"]


def test_each_replay_of_a_collected_graph_does_the_captured_work(
    fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream, timers="collect") as cap:
        with gpuprof.timer("mm", stream=stream, flops=1e12) as sample:
            fake.work(stream, 2 * MS)
            sample.nbytes = 1e9
    with cap.graph as graph:
        for _ in range(3):
            graph.launch()
        row = next(row for row in gpuprof.stats().values() if row.name == "mm")
    assert row.gpu.count == 3
    assert row.work is not None
    assert (row.work.count, row.work.flops, row.work.nbytes) == (3, 1e12, 1e9)
    assert row.work.flops_per_s == pytest.approx(5e14, rel=0.01)


def test_a_row_travels_with_its_work(fake: FakeCuda, stream: int) -> None:
    with gpuprof.timer("mm", stream=stream, flops=1e12) as sample:
        fake.work(stream, MS)
    stats = gpuprof.stats()
    plain = json.loads(stats.to_json())
    assert gpuprof.Stats.from_dict(plain)["mm"].work == stats["mm"].work
    assert pickle.loads(pickle.dumps(stats))["mm"] == stats["mm"]
    assert pickle.loads(pickle.dumps(sample)).flops == 1e12
    assert sample.to_dict()["flops"] == 1e12
    assert "TFLOP/s" in stats._repr_html_()
    assert "TFLOP/s" in stats.to_markdown()


def test_decorated_functions_and_coroutines_have_their_work() -> None:
    timed = gpuprof.timer(backend="cpu", nbytes=8)

    @timed
    def plain() -> None: ...

    @timed
    async def coroutine() -> None:
        await asyncio.sleep(0)

    plain()
    asyncio.run(coroutine())
    rows = {row.name.split(".")[-1]: row.work for row in gpuprof.stats().values()}
    assert {name: work and work.nbytes for name, work in rows.items()} == {
        "plain": 8,
        "coroutine": 8,
    }


class Number:
    """A number of another library."""

    def __float__(self) -> float:
        return 2.5


@pytest.mark.parametrize("value", [0, 3, 1e30, 2**80, Number()])
def test_what_is_a_number_is_taken(value: float) -> None:
    with gpuprof.timer("mm", backend="cpu", flops=value) as sample:
        sample.nbytes = value
    assert (sample.flops, sample.nbytes) == (float(value), float(value))


@pytest.mark.parametrize("name", ["flops", "nbytes"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (10**400, ValueError),
        ("1e9", TypeError),
        (True, TypeError),
        ([1], TypeError),
    ],
)
def test_what_is_no_amount_is_refused(name: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"{name}: expected a finite number >= 0 or None, got"):
        gpuprof.timer("mm", **{name: value})  # type: ignore[call-overload]
    with gpuprof.timer("mm", backend="cpu") as sample:
        with pytest.raises(error, match=f"{name}: expected a finite number >= 0 or None, got"):
            setattr(sample, name, value)
        with pytest.raises(AttributeError, match=f"{name}: it cannot be deleted"):
            delattr(sample, name)
    assert not sample.failed


def test_an_error_of_a_number_comes_out_as_it_is() -> None:
    class Broken:
        def __float__(self) -> float:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gpuprof.timer("mm", flops=Broken())  # type: ignore[call-overload]


def test_after_the_scope_work_is_refused() -> None:
    with gpuprof.timer("mm", backend="cpu") as sample:
        pass
    with pytest.raises(gpuprof.errors.InvalidStateError, match="inside the with block"):
        sample.flops = 1


def test_with_timing_off_work_is_taken_and_forgotten() -> None:
    gpuprof.disable()
    with gpuprof.timer("mm", flops=3) as sample:
        sample.flops = 4
    assert sample.flops is None


def test_work_of_a_skipped_scope_is_taken_and_not_counted(fake: FakeCuda, stream: int) -> None:
    fake.begin_capture(stream)
    with (
        pytest.warns(RuntimeWarning, match="in_capture"),
        gpuprof.timer("mm", stream=stream) as sample,
    ):
        sample.flops = 4
    fake.graph_destroy(fake.end_capture(stream))
    assert (sample.state, sample.flops) == ("skipped", 4.0)
    assert gpuprof.stats()["mm"].work is None


def test_work_of_a_scope_that_the_driver_refused_is_taken_and_not_counted(
    fake: FakeCuda, stream: int
) -> None:
    with (
        fake.faults("cuEventRecord@1=999"),
        pytest.warns(RuntimeWarning, match="measure nothing"),
        gpuprof.timer("mm", stream=stream) as sample,
    ):
        sample.flops = 4
    assert (sample.state, sample.flops) == ("failed", 4.0)
    assert gpuprof.stats()["mm"].work is None
