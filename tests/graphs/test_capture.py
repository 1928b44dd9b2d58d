"""Opening and ending captures, on the fake driver: what is refused, and that all is put back."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gpuprof
from gpuprof import errors
from tests.fake_driver.control import FakeCuda
from tests.support.captures import US, captured, on_another_thread
from tests.support.processes import check_cuda

MODES = list(gpuprof.CaptureMode)


@pytest.mark.parametrize("mode", [*MODES, "global", "THREAD_LOCAL", "Relaxed"])
def test_a_block_becomes_a_graph(
    fake: FakeCuda, stream: int, mode: gpuprof.CaptureMode | str
) -> None:
    with gpuprof.capture(stream, mode=mode) as cap:  # type: ignore[arg-type]
        assert cap.status().is_capturing()
        fake.kernel(stream, "add_k", 5 * US)
        fake.kernel(stream, "mul_k", 5 * US)
    before = fake.now()
    cap.graph.launch()
    fake.stream_synchronize(stream)
    assert fake.now() - before >= 10 * US
    assert cap.graph.num_nodes == 2
    assert cap.graph.num_replays == 1
    assert cap.status() is gpuprof.CaptureStatus.NONE
    cap.graph.close()


def test_begin_and_end_work_without_a_block(fake: FakeCuda, stream: int, other: int) -> None:
    gpuprof.begin_capture(stream, mode="global")
    assert gpuprof.is_stream_capturing(stream)
    assert gpuprof.capture_status(stream) is gpuprof.CaptureStatus.ACTIVE
    fake.work(stream, US)
    info, elsewhere = gpuprof.capture_info(stream), gpuprof.capture_info(other)
    assert elsewhere.open_captures == info.open_captures
    assert (info.status.is_capturing(), info.num_nodes) == (True, 1)
    (mine,) = info.open_captures
    assert (mine.id, mine.stream, mine.mode) == (info.id, stream, gpuprof.CaptureMode.GLOBAL)
    assert mine.thread == threading.get_ident()
    graph = gpuprof.end_capture(stream)
    assert not gpuprof.is_stream_capturing(stream)
    assert gpuprof.capture_info(stream).open_captures == ()
    graph.launch(stream)
    graph.close()


def test_a_capture_that_somebody_else_ended_gives_way_to_the_next(
    fake: FakeCuda, stream: int
) -> None:
    gpuprof.begin_capture(stream)
    fake.work(stream, US)
    fake.graph_destroy(fake.end_capture(stream))
    with pytest.warns(ResourceWarning, match="capture"):
        gpuprof.begin_capture(stream)
    fake.work(stream, US)
    assert len(gpuprof.capture_info(stream).open_captures) == 1
    gpuprof.end_capture().close()
    with pytest.raises(errors.InvalidStateError, match="none"):
        gpuprof.end_capture(stream)


def test_an_end_without_a_begin_names_what_is_open(fake: FakeCuda, stream: int, other: int) -> None:
    with pytest.raises(errors.InvalidStateError, match="none"):
        gpuprof.end_capture(stream)
    gpuprof.begin_capture(other)
    with pytest.raises(errors.InvalidStateError, match=str(other)):
        gpuprof.end_capture(stream)
    fake.work(other, US)
    gpuprof.end_capture().close()  # the only one that this thread has begun


def test_an_end_without_a_stream_is_refused_where_it_could_be_one_of_two(
    fake: FakeCuda, stream: int, other: int
) -> None:
    for each in (stream, other):
        gpuprof.begin_capture(each)
        fake.work(each, US)
    with pytest.raises(errors.InvalidStateError, match=str(other)):
        gpuprof.end_capture()
    elsewhere = on_another_thread(gpuprof.end_capture)
    assert isinstance(elsewhere, errors.InvalidStateError)
    for each in (stream, other):
        gpuprof.end_capture(each).close()


def test_the_last_kernel_is_named_behind_nodes_of_other_kinds(fake: FakeCuda, stream: int) -> None:
    guard = gpuprof.GraphCaptureGuard(stream)
    fake.kernel(stream, "add_k", US)
    fake.copy(stream, 64)
    fake.copy(stream, 64)
    assert guard.status() is gpuprof.CaptureStatus.ACTIVE
    assert guard._core.facts()["last_kernel"] == "add_k"
    guard.abort()


def test_a_frameworks_default_stream_of_another_device_is_captured_and_launched_there(
    fake_path: Path,
) -> None:
    check_cuda(
        fake_path,
        """
        context = fake.use_primary(1)
        def capture():  # on a thread without a context
            _core._current_stream = lambda: (2, 1, True)
            guard = gpuprof.GraphCaptureGuard()
            fake.set_current(context)
            fake.work(2, 1000)
            fake.set_current(0)
            with guard.finish() as graph:
                assert graph.device == 1
                graph.launch()
        from tests.support.captures import on_another_thread
        assert on_another_thread(capture) is None
        """,
        FAKECUDA_CONFIG="device_count=2",
    )


def test_a_stream_that_is_captured_already_is_refused_and_its_capture_lives_on(
    fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream) as outer:
        fake.work(stream, US)
        with pytest.raises(errors.InvalidStateError, match="already"), gpuprof.capture(stream):
            pass
        with pytest.raises(errors.InvalidStateError, match="already"):
            gpuprof.begin_capture(stream)
    assert outer.graph.num_nodes == 1
    outer.graph.close()
    fake.begin_capture(stream)  # somebody else's
    with pytest.raises(errors.InvalidStateError, match="already"), gpuprof.capture(stream):
        pass
    fake.work(stream, US)
    fake.graph_destroy(fake.end_capture(stream))


def test_a_sealed_pool_is_refused_before_the_driver_is_asked(fake: FakeCuda, stream: int) -> None:
    pool = gpuprof.CapturePool()
    pool.seal()
    begun = fake.calls("cuStreamBeginCapture_v2")
    begin: list[Callable[[], object]] = [
        lambda: gpuprof.begin_capture(stream, pool=pool),
        lambda: gpuprof.GraphCaptureGuard(stream, pool=pool),
        lambda: gpuprof.capture(stream, pool=pool),
    ]
    for each in begin:
        with pytest.raises(errors.InvalidStateError, match="sealed"):
            each()
    assert fake.calls("cuStreamBeginCapture_v2") == begun


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "local"}, ValueError),
        ({"mode": 1}, TypeError),
        ({"backend": "cuda"}, ValueError),
        ({"backend": "torch"}, ValueError),
        ({"timers": "all"}, ValueError),
        ({"timers": None}, TypeError),
        ({"pool": object()}, TypeError),
    ],
)
def test_bad_arguments_are_named(
    fake: FakeCuda, stream: int, options: dict[str, object], error: type[Exception]
) -> None:
    (name,) = options
    with pytest.raises(error, match=f"^{name}: "), gpuprof.capture(stream, **options):  # type: ignore[arg-type]
        pass
    assert fake.capture_status(stream) == 0


def test_a_body_that_broke_the_capture_and_raised_gets_a_note(fake: FakeCuda, stream: int) -> None:
    mine = KeyError("mine")
    with pytest.raises(KeyError) as caught, gpuprof.capture(stream, name="step"):
        fake.work(stream, US)
        fake.call("cuStreamSynchronize", stream, expect=900)
        raise mine
    assert caught.value is mine
    if hasattr(mine, "__notes__"):
        (note,) = mine.__notes__
        assert "cuStreamSynchronize" in note
        assert "'step'" in note


def test_a_broken_capture_raises_at_the_end_and_says_what_was_refused(
    fake: FakeCuda, stream: int
) -> None:
    with (
        pytest.raises(errors.CaptureInvalidatedError) as caught,
        gpuprof.capture(stream, name="step") as cap,
    ):
        fake.kernel(stream, "add_k", US)
        assert cap.status().is_capturing()
        fake.call("cuStreamSynchronize", stream, expect=900)
        assert cap.status().is_invalidated()
    error = caught.value
    assert error.first_refused == "cuStreamSynchronize"
    assert (error.capture, error.mode, error.num_nodes) == ("step", "thread_local", 1)
    assert error.last_kernel == "add_k"
    assert error.hint is not None
    assert ".item()" in error.hint
    assert "cuStreamSynchronize" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)


def test_nothing_captured_is_an_error_unless_it_is_allowed(fake: FakeCuda, stream: int) -> None:
    with pytest.raises(errors.EmptyGraphError, match="allow_empty"), gpuprof.capture(stream):
        pass
    with gpuprof.capture(stream, allow_empty=True) as cap:
        pass
    assert cap.graph.num_nodes == 0
    cap.graph.launch()
    cap.graph.close()


def test_a_dropped_guard_ends_its_capture_and_warns(fake: FakeCuda, stream: int) -> None:
    guard = gpuprof.GraphCaptureGuard(stream)
    fake.work(stream, US)
    with pytest.warns(ResourceWarning, match="dropped"):
        del guard


def test_abort_throws_the_capture_away_and_may_be_called_again(fake: FakeCuda, stream: int) -> None:
    guard = gpuprof.GraphCaptureGuard(stream)
    fake.work(stream, US)
    guard.abort()
    guard.abort()
    assert not guard.is_open
    with pytest.raises(errors.InvalidStateError, match="aborted"):
        guard.finish()


def test_the_block_may_finish_or_abort_by_itself(fake: FakeCuda, stream: int) -> None:
    with gpuprof.capture(stream) as cap:
        fake.work(stream, US)
        graph = cap.finish()
    assert cap.graph is graph
    graph.close()
    with gpuprof.capture(stream) as cap:
        cap.abort()


def test_a_generator_that_is_closed_in_its_capture_leaves_the_stream_usable(
    fake: FakeCuda, stream: int
) -> None:
    def body() -> Iterator[None]:
        with gpuprof.capture(stream):
            fake.work(stream, US)
            yield

    generator = body()
    next(generator)
    del generator


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_finishing_on_another_thread_is_refused_and_the_capture_stays_open(
    fake: FakeCuda, stream: int, mode: str
) -> None:
    guard = gpuprof.GraphCaptureGuard(stream, mode=mode)  # type: ignore[arg-type]
    fake.work(stream, US)
    ends = fake.calls("cuStreamEndCapture")
    error = on_another_thread(guard.finish)
    assert isinstance(error, errors.CaptureWrongThreadError)
    assert str(threading.get_ident()) in str(error)
    assert fake.calls("cuStreamEndCapture") == ends
    assert guard.is_open
    graph = guard.finish()
    assert graph.num_nodes == 1
    graph.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same thread", "other thread"])
def test_graphs_are_destroyed_and_updated_without_breaking_an_open_capture(
    fake: FakeCuda, stream: int, other: int, mode: gpuprof.CaptureMode, elsewhere: bool
) -> None:
    graphs = [captured(fake, other) for _ in range(3)]
    context = fake.current_context()

    def use() -> None:
        fake.set_current(context)
        graphs[0].upload(other)
        graphs[0].launch(other)
        graphs[0].update(graphs[1])
        graphs.pop()  # dropped without a close
        for graph in graphs:
            graph.close()

    with gpuprof.capture(stream, mode=mode) as open_one:
        fake.work(stream, US)
        if elsewhere:
            assert on_another_thread(use) is None
        else:
            use()
        assert open_one.status().is_capturing()
    open_one.graph.close()
    assert fake.live("exec") == 0


def test_a_capture_is_entered_once(fake: FakeCuda, stream: int) -> None:
    block = gpuprof.capture(stream)
    with block as cap:
        fake.work(stream, US)
    with pytest.raises(errors.InvalidStateError, match="once"), block:
        pass
    cap.graph.close()
