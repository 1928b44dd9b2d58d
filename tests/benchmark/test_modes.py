"""`benchmark` on the fake driver: which mode is taken, what it reads, and that it says so.

Time on the fake is virtual: a kernel takes exactly as long as it says, whoever waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof import _core, errors
from gpuprof._benchmark.gate import HeldStream
from gpuprof._benchmark.work import Work
from tests.fake_driver.control import FakeCuda
from tests.support.benchmark_results import QUICK
from tests.support.captures import usable_stream
from tests.support.processes import check_cuda

US = 1_000
KERNEL_US = 5


def kernel(fake: FakeCuda, stream: int, microseconds: int = KERNEL_US) -> Callable[[], object]:
    return lambda: fake.kernel(stream, "step_k", microseconds * US)


def measure(fn: Callable[[], object], stream: int, **options: Any) -> gpuprof.BenchResult:
    return gpuprof.benchmark(fn, stream=stream, **{**QUICK, **options})


@pytest.mark.parametrize("mode", ["graph", "batched", "isolated"])
def test_each_mode_reads_the_kernels_own_time(fake: FakeCuda, stream: int, mode: str) -> None:
    result = measure(kernel(fake, stream), stream, mode=mode)
    assert (result.mode, result.clock, result.gate, result.l2) == (mode, "cuda", "gated", "hot")
    assert result.median_ms * 1e3 == pytest.approx(KERNEL_US, abs=0.1)


def test_nothing_is_added_to_what_is_queued_behind_a_gate(fake: FakeCuda, stream: int) -> None:
    """Elsewhere a record shows, once in half a millisecond, whether the stream moves."""
    with gpuprof.capture(stream) as captured:
        fake.kernel(stream, "step_k", KERNEL_US * US)
    graph = captured.graph

    def queue_slowly() -> None:
        for _ in range(5):
            time.sleep(0.002)
            graph.launch(stream)

    queue_slowly()
    records = fake.calls("cuEventRecord")
    assert HeldStream(stream, 0).run(queue_slowly)
    assert fake.calls("cuEventRecord") == records


def test_auto_takes_graphs_and_keeps_none(fake: FakeCuda, stream: int) -> None:
    result = measure(kernel(fake, stream), stream)
    assert (result.mode, result.requested_mode) == ("graph", "auto")
    _core._drain_kept()
    assert fake.live("graph") == 0
    assert fake.live("exec") == 0


def test_the_times_of_several_kernels_add_up(fake: FakeCuda, stream: int) -> None:
    def two() -> None:
        fake.kernel(stream, "a_k", 3 * US)
        fake.kernel(stream, "b_k", 4 * US)

    result = measure(two, stream)
    assert result.median_ms * 1e3 == pytest.approx(7.0, abs=0.1)


def test_short_calls_are_measured_over_many_and_long_ones_over_few(
    fake: FakeCuda, stream: int
) -> None:
    short = measure(kernel(fake, stream, 1), stream)
    long = measure(kernel(fake, stream, 6_000), stream)
    assert short.calls_per_sample > 100
    assert long.calls_per_sample == 1
    assert long.median_ms == pytest.approx(6.0, rel=1e-3)


def test_a_function_that_waits_is_found_and_said(fake: FakeCuda) -> None:
    with usable_stream(fake) as stream:

        def waits() -> None:
            fake.kernel(stream, "step_k", 5 * US)
            fake.stream_synchronize(stream)

        result = measure(waits, stream)
        assert (result.mode, result.gate) == ("batched", "ungated")
        assert any("cannot be captured" in text for text in result.warnings)
        assert any("waits for the GPU" in text for text in result.warnings)
        isolated = measure(waits, stream, mode="isolated")
        assert (isolated.mode, isolated.gate) == ("isolated", "ungated")
        assert any("waits for the GPU" in text for text in isolated.warnings)


def test_work_on_another_stream_is_found_and_timed_with_the_whole_device(
    fake: FakeCuda, stream: int, other: int
) -> None:

    def strays() -> None:
        fake.kernel(stream, "step_k", US)
        fake.kernel(other, "stray_k", 500 * US)

    result = measure(strays, stream)
    assert (result.mode, result.clock) == ("synchronized", "host")
    assert any("other streams" in text for text in result.warnings)


@pytest.mark.parametrize("mode", ["graph", "batched"])
def test_a_device_that_is_late_without_work_does_not_mean_other_streams(
    fake: FakeCuda, stream: int, mode: str
) -> None:
    fake.configure(call_ns=200 * US)  # as where other processes take turns on the GPU
    result = measure(kernel(fake, stream), stream, mode=mode)
    assert (result.mode, result.clock) == (mode, "cuda")
    assert not any("other streams" in text for text in result.warnings)


def test_work_on_another_stream_is_found_on_a_device_that_is_late(
    fake: FakeCuda, stream: int, other: int
) -> None:
    fake.configure(call_ns=200 * US)
    result = measure(lambda: fake.kernel(other, "stray_k", 500 * US), stream)
    assert (result.mode, result.clock) == ("synchronized", "host")


def test_streams_that_are_joined_again_are_one_piece_of_work(fake: FakeCuda, stream: int) -> None:
    branch = fake.stream_create()

    def forks() -> None:
        fake.fork(stream, branch)
        fake.kernel(branch, "branch_k", 8 * US)
        fake.join(stream, branch)

    result = measure(forks, stream)
    assert result.mode == "graph"
    assert result.median_ms * 1e3 == pytest.approx(8.0, abs=0.1)
    fake.stream_destroy(branch)


def test_no_gpu_work_means_the_cpus_clock_and_is_said(fake: FakeCuda, stream: int) -> None:
    result = measure(lambda: sum(range(1000)), stream)
    assert (result.mode, result.clock) == ("cpu", "cpu")
    assert any("no GPU work" in text for text in result.warnings)


def test_gpu_work_of_the_first_calls_alone_means_the_cpus_clock(
    fake: FakeCuda, stream: int
) -> None:
    is_filled = False

    def fills_a_cache() -> None:
        nonlocal is_filled
        if fake.capture_status(stream):
            is_filled = True
            raise RuntimeError("not in here")
        if not is_filled:
            fake.kernel(stream, "step_k", KERNEL_US * US)
        time.sleep(0.001)

    result = measure(fills_a_cache, stream)
    assert (result.mode, result.clock) == ("cpu", "cpu")
    assert result.min_ms >= 1.0
    assert any("no GPU work" in text for text in result.warnings)


def test_what_cannot_be_captured_is_queued_call_by_call(fake: FakeCuda, stream: int) -> None:
    def refuses() -> None:
        if fake.capture_status(stream):
            raise RuntimeError("not in here")
        fake.kernel(stream, "step_k", 5 * US)

    result = measure(refuses, stream, mode="graph")
    assert (result.mode, result.requested_mode, result.gate) == ("batched", "graph", "gated")
    assert any("not in here" in text for text in result.warnings)
    assert result.median_ms * 1e3 == pytest.approx(KERNEL_US, abs=0.1)


def test_a_set_up_isolates_the_calls_and_is_not_in_their_time(fake: FakeCuda, stream: int) -> None:
    def setup() -> None:
        fake.kernel(stream, "setup_k", 300 * US)

    result = measure(kernel(fake, stream), stream, setup=setup)
    assert (result.mode, result.calls_per_sample) == ("isolated", 1)
    assert result.median_ms * 1e3 == pytest.approx(KERNEL_US, abs=0.2)


def test_cold_calls_come_after_a_flush_that_is_not_in_their_time(
    fake: FakeCuda, stream: int
) -> None:
    result = measure(kernel(fake, stream), stream, cold_l2=True)
    assert (result.mode, result.l2) == ("isolated", "flushed")
    assert any("clones" in text for text in result.warnings)
    assert result.median_ms * 1e3 == pytest.approx(KERNEL_US, abs=0.2)
    isolated = measure(kernel(fake, stream), stream, cold_l2=True, mode="isolated")
    assert (isolated.l2, isolated.warnings[:1]) == ("flushed", isolated.warnings[:1])
    assert not any("clones" in text for text in isolated.warnings)


@pytest.mark.parametrize("code", [500, 801])
def test_a_device_without_waits_is_timed_without_a_gate(
    fake: FakeCuda, stream: int, code: int
) -> None:
    with fake.faults(f"cuStreamWaitValue32_v2@1*={code}"):
        result = measure(kernel(fake, stream, 1_000), stream)
    assert (result.mode, result.gate) == ("graph", "ungated")
    assert any("cannot wait for a word" in text for text in result.warnings)
    assert result.median_ms == pytest.approx(1.0, rel=0.05)


def test_launches_that_block_are_timed_without_a_gate(
    fake: FakeCuda, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    result = measure(kernel(fake, stream, 1_000), stream)
    assert result.gate == "ungated"
    assert any("CUDA_LAUNCH_BLOCKING" in text for text in result.warnings)


def test_more_work_than_a_queue_holds_is_queued_in_smaller_portions(
    fake: FakeCuda, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that fills the queue waits for the gate, until the watchdog opens it."""
    monkeypatch.setattr("gpuprof._benchmark.gate.LIMIT_S", 0.05)
    queued = 0

    def counts() -> None:
        nonlocal queued
        queued += 1
        if queued > 12:  # a queue with room for that many calls
            fake.stream_synchronize(stream)
            queued = 0
        fake.kernel(stream, "step_k", 5 * US)

    def settle() -> None:
        nonlocal queued
        fake.stream_synchronize(stream)
        queued = 0

    monkeypatch.setattr("gpuprof._benchmark.gate._core", _Settling(settle))
    result = measure(counts, stream, mode="batched")
    assert result.mode == "batched"
    assert 0 < result.calls_per_sample < 12
    assert result.samples_ms[0] * 1e3 == pytest.approx(KERNEL_US, abs=0.1)


class _Settling:
    """The extension module, with a synchronise that empties the test's queue."""

    def __init__(self, settle: Callable[[], None]) -> None:
        self._settle = settle

    def __getattr__(self, name: str) -> Any:
        return getattr(_core, name)

    def _synchronize(self, _stream: int, _device: int) -> None:
        self._settle()


def test_a_captured_stream_is_refused_and_its_capture_goes_on(fake: FakeCuda, stream: int) -> None:
    with gpuprof.capture(stream) as cap:
        fake.kernel(stream, "step_k", US)
        with pytest.raises(errors.InvalidStateError, match="is being captured"):
            measure(kernel(fake, stream), stream)
    assert cap.graph.num_nodes == 1
    cap.graph.close()


@pytest.mark.parametrize("mode", ["graph", "batched", "isolated"])
def test_an_interrupt_leaves_the_stream_open_and_usable(fake: FakeCuda, mode: str) -> None:
    with usable_stream(fake) as stream:
        left = 25

        def interrupted() -> None:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt
            fake.kernel(stream, "step_k", US)

        with pytest.raises(KeyboardInterrupt):
            measure(interrupted, stream, mode=mode, min_samples=100)
        fake.stream_synchronize(stream)


def test_timing_that_is_disabled_does_not_stop_a_benchmark(fake: FakeCuda, stream: int) -> None:
    gpuprof.disable()
    result = measure(kernel(fake, stream), stream)
    assert result.median_ms * 1e3 == pytest.approx(KERNEL_US, abs=0.1)


def test_no_statistics_are_left_behind(fake: FakeCuda, stream: int) -> None:
    measure(kernel(fake, stream), stream)
    assert len(gpuprof.stats()) == 0


def test_no_thread_is_left_behind(fake: FakeCuda, stream: int) -> None:
    before = threading.active_count()
    measure(kernel(fake, stream), stream)
    assert threading.active_count() == before
    names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
    assert "gpuprof-gate" not in names


def test_a_result_names_the_gpu_it_was_measured_on(fake: FakeCuda, stream: int) -> None:
    result = measure(kernel(fake, stream), stream)
    assert result.machine["gpu"] == _core.devices()[0]["name"]
    assert 0.0 < result.tick_ms < result.median_ms


@pytest.mark.parametrize("mode", ["auto", "batched", "isolated"])
def test_a_slow_function_without_gpu_work_is_not_taken_for_one_that_waits(
    fake: FakeCuda, stream: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof._benchmark.gate.LIMIT_S", 0.02)
    result = measure(lambda: time.sleep(0.06), stream, mode=mode, max_time_s=0.2)
    assert (result.mode, result.clock) == ("cpu", "cpu")
    assert result.min_ms >= 60.0
    assert any("no GPU work" in text for text in result.warnings)


@pytest.mark.parametrize("mode", ["auto", "batched", "isolated"])
def test_a_function_that_is_slow_to_queue_is_held_back_for_longer(
    fake: FakeCuda, stream: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof._benchmark.gate.LIMIT_S", 0.02)
    monkeypatch.setattr("gpuprof._benchmark.harness._CAPTURE_MS", 300.0)

    def slow() -> None:
        time.sleep(0.03)
        fake.kernel(stream, "step_k", 5 * US)

    result = measure(slow, stream, mode=mode, max_time_s=0.2)
    assert (result.clock, result.gate) == ("cuda", "gated")
    assert result.median_ms * 1e3 == pytest.approx(KERNEL_US, abs=0.2)


def test_a_function_that_is_slow_to_queue_is_captured_a_few_times_only(
    fake: FakeCuda, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof._benchmark.harness._CAPTURE_MS", 30.0)
    captured = 0

    def slow() -> None:
        nonlocal captured
        captured += fake.capture_status(stream) != 0
        time.sleep(0.005)
        fake.kernel(stream, "step_k", 5 * US)

    result = measure(slow, stream, mode="graph")
    assert result.mode == "graph"
    assert captured <= 7  # one to look at, and two graphs of six together


def test_a_slow_function_is_looked_at_once(
    fake: FakeCuda, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof._benchmark.probe.SLOW_MS", 5.0)
    calls = 0

    def slow() -> None:
        nonlocal calls
        calls += 1
        time.sleep(0.02)
        fake.kernel(stream, "step_k", 5 * US)

    measure(slow, stream, mode="isolated", max_time_s=1e-3)
    assert calls <= 7


def test_a_slow_set_up_is_run_a_few_times_only(fake: FakeCuda, stream: int) -> None:
    runs: list[float] = []
    result = measure(
        kernel(fake, stream),
        stream,
        setup=lambda: runs.append(time.sleep(0.03) or 0.0),  # type: ignore[func-returns-value]
        max_time_s=1e-3,
    )
    assert result.mode == "isolated"
    assert len(runs) <= 10


def test_what_a_set_up_does_on_other_streams_is_not_the_functions(
    fake: FakeCuda, stream: int, other: int
) -> None:
    result = measure(
        kernel(fake, stream), stream, setup=lambda: fake.kernel(other, "copy_k", 500 * US) or None
    )
    assert (result.mode, result.clock) == ("isolated", "cuda")
    assert result.median_ms * 1e3 == pytest.approx(KERNEL_US, abs=0.2)


def test_work_on_another_stream_is_found_also_where_scopes_are_switched_off(
    fake_path: Path,
) -> None:
    code = """
        other = fake.stream_create()
        def strays():
            fake.kernel(stream, "step_k", 1_000)
            fake.kernel(other, "stray_k", 5_000_000)
        result = gpuprof.benchmark(strays, stream=stream, warmup_s=0, max_time_s=0.2)
        print(result.mode)
        result = gpuprof.benchmark(
            lambda: fake.kernel(stream, "step_k", 5_000), stream=stream, warmup_s=0, max_time_s=0.2
        )
        print(result.mode)
    """
    assert check_cuda(fake_path, code, GPUPROF_DISABLE="1").split() == ["synchronized", "graph"]


def test_an_interrupt_right_after_the_gate_closed_opens_it(fake: FakeCuda, stream: int) -> None:
    class Interrupting:
        def __init__(self, gate: _core._Gate) -> None:
            self._gate = gate

        def close(self, limit_s: float) -> None:
            self._gate.close(limit_s)
            raise KeyboardInterrupt

        def open(self) -> bool:
            return self._gate.open()

    held = HeldStream(stream, 0)
    gate: Any = held._gate
    held._gate = Interrupting(gate)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        held.run(lambda: None)
    assert not gate.closed


def test_clones_whose_graphs_would_be_too_large_are_queued_in_turn(
    fake: FakeCuda, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rotate(work: Work, _l2_bytes: int) -> None:
        work._variants *= 10

    monkeypatch.setattr(Work, "rotate", rotate)
    result = measure(kernel(fake, stream), stream, cold_l2=True)
    assert (result.mode, result.l2, result.calls_per_sample % 10) == ("graph", "rotated", 0)
    monkeypatch.setattr("gpuprof._benchmark.harness._MAX_NODES", 15)
    result = measure(kernel(fake, stream), stream, cold_l2=True)
    assert (result.mode, result.l2) == ("batched", "rotated")
    assert any("clones" in text for text in result.warnings)


def test_the_default_stream_given_as_such_is_measured_like_none(fake_path: Path) -> None:
    code = """
        from tests.support import stand_in_torch
        world = stand_in_torch.install_on(fake)
        world.torch.cuda.memory_stats = dict
        def call():
            # Whole ticks of the clock: else readings alternate, and may look dependent.
            fake.kernel(world.current.cuda_stream, "step_k", 160 * 32)
        for given in (None, world.torch.cuda.default_stream(), 0):
            result = gpuprof.benchmark(
                call, stream=given, warmup_s=0, min_time_s=0, min_samples=8, rel_precision=1
            )
            print(result.mode, round(result.median_ms * 1e3, 1), result.warnings)
    """
    assert check_cuda(fake_path, code).splitlines() == ["graph 5.1 ()"] * 3


@pytest.mark.parametrize("scopes", [False, True])
def test_a_scope_in_the_function_is_in_the_graphs_only_if_asked_for(
    fake: FakeCuda, stream: int, scopes: bool
) -> None:
    name = f"in a graph, {scopes}"
    seen = set()

    def function() -> None:
        with gpuprof.timer(name, stream=stream) as sample:
            fake.kernel(stream, "step_k", 5 * US)
        seen.add(repr(sample))

    result = measure(function, stream, scopes=scopes)
    assert result.mode == "graph"
    assert any("captured" in text for text in seen) is scopes
    assert any(row.name == name for row in gpuprof.stats().values()) is scopes
