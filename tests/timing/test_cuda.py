"""Scopes on CUDA streams, on the fake driver's virtual time: exact milliseconds."""

from __future__ import annotations

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.threads import in_threads

US = 1_000
MS = 1_000_000
# What an empty pair reads on the fake: the cost of the record that ends it.
EMPTY_MS = 1280e-6


def test_a_scope_reads_exactly_what_the_stream_did(fake: FakeCuda, stream: int) -> None:
    with gpuprof.timer("step", stream=stream) as sample:
        fake.work(stream, 5 * MS)
    assert sample.clock == "cuda"
    assert sample.ms == pytest.approx(5 + EMPTY_MS, abs=64e-6)


def test_auto_is_cuda_where_a_context_is_current(fake: FakeCuda) -> None:
    with gpuprof.timer("step") as sample:
        fake.work(0, 2 * MS)
    assert (sample.clock, sample.stream) == ("cuda", 0)
    assert sample.ms == pytest.approx(2 + EMPTY_MS, abs=64e-6)


def test_leaving_a_scope_does_not_wait(fake: FakeCuda, stream: int) -> None:
    fake.configure("mode=manual")
    with gpuprof.timer("step", stream=stream) as sample:
        fake.work(stream, 5 * MS)
    assert sample.try_ms() is None
    assert not sample.ready
    assert "pending" in repr(sample)
    fake.complete(stream)
    assert sample.ready
    assert sample.ms == pytest.approx(5 + EMPTY_MS, abs=64e-6)


def test_nested_scopes_read_their_own_spans(fake: FakeCuda, stream: int) -> None:
    with gpuprof.timer("step", stream=stream) as outer:
        with gpuprof.timer("fwd", stream=stream) as first:
            fake.work(stream, 1 * MS)
        with gpuprof.timer("bwd", stream=stream) as second:
            fake.work(stream, 2 * MS)
    assert (first.path, second.path) == ("step/fwd", "step/bwd")
    assert outer.ms >= first.ms + second.ms
    assert gpuprof.stats()["step/bwd"].gpu.p50_ms == pytest.approx(2 + EMPTY_MS, abs=64e-6)


def test_two_streams_are_measured_apart(fake: FakeCuda, stream: int, other: int) -> None:
    slow, quick = gpuprof.timer("slow", stream=stream), gpuprof.timer("quick", stream=other)
    fake.work(stream, 1 * MS)  # all is queued before the first record is due
    fake.work(other, 1 * MS)
    with slow as first, quick as second:
        fake.work(stream, 7 * MS)
        fake.work(other, 1 * MS)
    assert first.ms == pytest.approx(7, abs=0.03)
    assert second.ms == pytest.approx(1, abs=0.03)


def test_verify_stream_raises_where_the_work_ran_elsewhere(
    fake: FakeCuda, stream: int, other: int
) -> None:
    scope = gpuprof.timer("step", stream=stream, verify_stream=True)
    with pytest.raises(gpuprof.errors.StreamMismatchError, match="another stream"), scope:
        fake.work(other, 5 * MS)
    with scope as sample:
        fake.work(stream, 5 * MS)
    assert sample.ms == pytest.approx(5 + EMPTY_MS, abs=64e-6)


def test_verify_stream_lets_the_bodys_exception_win(
    fake: FakeCuda, stream: int, other: int
) -> None:
    with pytest.raises(KeyError, match="mine"):
        with gpuprof.timer("step", stream=stream, verify_stream=True):
            fake.work(other, 5 * MS)
            raise KeyError("mine")
    fake.stream_synchronize(other)


def test_an_exit_records_on_the_stream_of_its_enter(fake: FakeCuda, stream: int) -> None:
    class Framework:
        """Stands for a stream object whose handle changes while the scope is open."""

        cuda_stream = stream

    framework = Framework()
    with gpuprof.timer("step", stream=framework) as sample:
        framework.cuda_stream = 0
        fake.work(stream, 3 * MS)
    assert sample.stream == stream
    assert sample.ms == pytest.approx(3 + EMPTY_MS, abs=64e-6)


def test_event_pairs_are_reused(fake: FakeCuda, stream: int) -> None:
    scope = gpuprof.timer("step", stream=stream)
    with scope:
        pass
    gpuprof.flush()
    made = fake.calls("cuEventCreate")
    for _ in range(1000):
        with scope:
            pass
        gpuprof.flush()
    assert fake.calls("cuEventCreate") == made


def test_a_scope_costs_two_records_and_no_wait(fake: FakeCuda, stream: int) -> None:
    scope = gpuprof.timer("step", stream=stream)
    with scope:
        pass
    gpuprof.flush()
    fake.configure("mode=manual")
    waits = ("cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize", "cuEventQuery")
    before = {name: fake.calls(name) for name in (*waits, "cuEventRecord")}
    for _ in range(100):
        with scope:
            pass
    assert fake.calls("cuEventRecord") - before["cuEventRecord"] == 200
    assert [fake.calls(name) - before[name] for name in waits] == [0, 0, 0, 0]
    fake.complete(stream)


def test_what_is_never_read_is_dropped_and_counted_past_4096_pairs(
    fake: FakeCuda, stream: int
) -> None:
    fake.configure("mode=manual")
    scope = gpuprof.timer("step", stream=stream)
    with pytest.warns(RuntimeWarning, match="dropped"):
        for _ in range(5000):
            with scope as sample:
                pass
    assert sample.dropped
    with pytest.raises(gpuprof.errors.InvalidStateError, match=r"gpuprof\.flush"):
        sample.ms  # noqa: B018
    row = gpuprof.stats(wait=False)["step"]
    assert (row.dropped, row.pending) == (5000 - 4096, 4096)
    fake.complete(stream)
    row = gpuprof.stats()["step"]
    assert (row.gpu.count, row.dropped, row.pending) == (4096, 904, 0)


def test_scopes_that_are_never_read_use_bounded_memory_and_lose_nothing(
    fake: FakeCuda, stream: int
) -> None:
    scope = gpuprof.timer("step", stream=stream)
    for _ in range(100_000):
        with scope:
            pass
    assert fake.live("event") < 10_000
    assert gpuprof.stats()["step"].gpu.count == 100_000


def test_reset_leaves_out_what_was_entered_before(fake: FakeCuda, stream: int) -> None:
    fake.configure("mode=manual")
    scope = gpuprof.timer("step", stream=stream)
    with scope as early:
        fake.work(stream, 1 * MS)
    gpuprof.reset()
    with scope:
        fake.work(stream, 2 * MS)
    fake.complete(stream)
    row = gpuprof.stats()["step"]
    assert row.gpu.count == 1
    assert row.gpu.min_ms == pytest.approx(2 + EMPTY_MS, abs=64e-6)
    assert early.ms == pytest.approx(1 + EMPTY_MS, abs=64e-6)


def test_cuda_starting_inside_a_cpu_scope_is_noted(fake_path: object) -> None:
    from tests.support.processes import check_python

    out = check_python(
        """
        import os, time
        import gpuprof
        from tests.fake_driver.control import FakeCuda
        with gpuprof.timer("step") as sample:
            fake = FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])
            fake.use_primary()
            time.sleep(0.002)
        print(sample.clock, sample.cuda_started_inside)
        with gpuprof.timer("step") as sample:
            pass
        print(sample.clock, sample.cuda_started_inside)
        """,
        driver=str(fake_path),
    )
    assert out.split() == ["cpu", "True", "cuda", "False"]


def test_a_scope_on_a_thread_without_a_context_uses_the_primary_one(
    fake: FakeCuda, stream: int
) -> None:
    samples = []

    def work() -> None:
        with gpuprof.timer("thread", backend="cuda") as sample:
            fake.work(stream, 1 * MS)
        samples.append(sample)

    in_threads(work)
    assert samples[0].clock == "cuda"
    assert samples[0].ms >= 0.0
    fake.stream_synchronize(stream)


def test_a_stream_of_another_context_is_timed_with_events_of_its_own(
    fake: FakeCuda, stream: int
) -> None:
    mine = fake.current_context()
    other = fake.context_create()
    fake.set_current(mine)
    with gpuprof.timer("other", stream=stream) as sample:
        fake.work(stream, 4 * MS)
    assert sample.ms == pytest.approx(4 + EMPTY_MS, abs=64e-6)
    assert fake.current_context() == mine
    gpuprof.flush()
    fake.set_current(other)
    fake.context_destroy(other)
    fake.set_current(mine)


def test_calibrate_reads_the_tick_and_the_empty_interval(fake: FakeCuda) -> None:
    result = gpuprof.calibrate()
    assert result.tick_ns == 1280 or 1280 % result.tick_ns == 0
    assert result.idle_ns == result.queued_ns == 1280
    assert "cuStreamWaitValue32" in result.method
    assert result.to_dict()["device"] == 0


def test_calibrate_without_a_gate_says_so(fake: FakeCuda) -> None:
    with fake.faults("cuStreamWaitValue32@1=801"):
        result = gpuprof.calibrate()
    assert result.queued_ns is None
    assert "no gate" in result.method


def test_timer_is_exact_and_keeps_one_pair(fake: FakeCuda, stream: int) -> None:
    timer = gpuprof.Timer("cuda", stream)
    for _ in range(3):
        timer.record_start()
        fake.work(stream, 3 * MS)
        timer.record_end()
        assert timer.elapsed_ms() == pytest.approx(3 + EMPTY_MS, abs=64e-6)
    assert timer.ready
    timer.record_start()
    assert (timer.elapsed_ms(), timer.ready) == (0.0, False)
    timer.close()
    with pytest.raises(gpuprof.errors.InvalidStateError, match="closed"):
        timer.record_start()


def test_a_timer_spans_from_one_stream_to_another(fake: FakeCuda, stream: int, other: int) -> None:
    timer = gpuprof.Timer("cuda", stream)
    assert timer.streams == ()
    timer.record_start()
    assert timer.streams == (stream,)
    fake.work(stream, 3 * MS)
    fake.fork(stream, other)
    fake.work(other, 2 * MS)
    timer.record_end(other)
    assert timer.streams == (stream, other)
    assert timer.elapsed_ms() == pytest.approx(5, abs=0.01)
    for end, streams in (((), (stream, stream)), ((0,), (stream, 0))):
        timer.record_start()
        timer.record_end(*end)
        assert timer.streams == streams
        assert timer.elapsed_ms() == pytest.approx(0, abs=0.01)
    timer.close()
    assert timer.streams == ()


def test_a_timer_whose_end_is_over_first_waits_for_its_start(
    fake: FakeCuda, stream: int, other: int
) -> None:
    fake.work(stream, 3 * MS)
    timer = gpuprof.Timer("cuda", stream)
    timer.record_start()
    timer.record_end(other)
    assert fake.complete(other) == 0
    assert timer.ready is False
    assert -3.0 <= timer.elapsed_ms() < -1.0
    timer.close()


def test_a_timer_refuses_an_end_in_another_context_and_stays_usable(
    fake: FakeCuda, stream: int
) -> None:
    mine = fake.current_context()
    other = fake.context_create()
    foreign = fake.stream_create()
    fake.set_current(mine)
    timer = gpuprof.Timer("cuda", stream)
    timer.record_start()
    with pytest.raises(
        ValueError, match=f"stream: a timer must end.* got stream {foreign} of another"
    ):
        timer.record_end(stream=foreign)
    assert timer.streams == (stream,)
    timer.record_end()
    assert timer.elapsed_ms() > 0.0
    timer.close()
    fake.set_current(other)
    fake.stream_destroy(foreign)
    fake.context_destroy(other)
    fake.set_current(mine)


def test_a_timer_spans_the_streams_of_one_capture(fake: FakeCuda, stream: int, other: int) -> None:
    timer = gpuprof.Timer("cuda", stream)
    fake.begin_capture(stream)
    timer.record_start()
    fake.fork(stream, other)
    fake.work(other, 2 * MS)
    timer.record_end(other)
    fake.join(stream, other)
    graph = fake.end_capture(stream)
    launched = fake.instantiate(graph)
    fake.graph_launch(launched, stream)
    assert timer.elapsed_ms() == pytest.approx(2, abs=0.01)
    assert timer.streams == (stream, other)
    timer.close()
    fake.exec_destroy(launched)
    fake.graph_destroy(graph)


def test_a_timer_that_began_outside_a_capture_does_not_end_in_one(
    fake: FakeCuda, stream: int, other: int
) -> None:
    timer = gpuprof.Timer("cuda", stream)
    timer.record_start()
    fake.begin_capture(other)
    with pytest.raises(gpuprof.errors.InvalidStateError, match="a stream capture began"):
        timer.record_end(other)
    assert fake.capture_status(other) == 1
    fake.graph_destroy(fake.end_capture(other))
    timer.close()


def test_a_probe_may_end_on_another_stream(fake: FakeCuda, stream: int, other: int) -> None:
    fake.work(stream, 1000 * US)  # all is queued before the first record is due
    probe = gpuprof.start_probe_timer_if(True, stream)
    fake.fork(stream, other)
    fake.work(other, 250 * US)
    assert gpuprof.finish_probe_timer(probe, other) == pytest.approx(250, abs=3)


def test_probe_reads_microseconds(fake: FakeCuda, stream: int) -> None:
    probe = gpuprof.start_probe_timer_if(True, stream)
    fake.work(stream, 250 * US)
    assert gpuprof.finish_probe_timer(probe) == pytest.approx(250 + 1.28, abs=0.064)
    assert gpuprof.finish_probe_timer(gpuprof.start_probe_timer_if(False)) is None
