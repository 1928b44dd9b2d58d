"""Timers and probes on the CPU clock and on a SyncBackend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.support.ids import short
from tests.support.scopes import Device


@pytest.fixture(params=["cpu", "device"])
def timer(request: pytest.FixtureRequest) -> gpuprof.Timer:
    return gpuprof.Timer("cpu" if request.param == "cpu" else Device().backend)


def test_a_timer_reads_zero_and_is_not_ready_before_both_marks(timer: gpuprof.Timer) -> None:
    assert (timer.elapsed_ms(), timer.ready) == (0.0, False)
    timer.record_start()
    assert (timer.elapsed_ms(), timer.ready) == (0.0, False)
    timer.record_end()
    assert timer.ready is True
    assert timer.elapsed_ms() == timer.elapsed_ms() > 0.0


def test_a_new_start_clears_the_old_end(timer: gpuprof.Timer) -> None:
    timer.record_start()
    timer.record_end()
    timer.record_start()
    assert (timer.elapsed_ms(), timer.ready) == (0.0, False)
    timer.record_end()
    assert timer.ready is True


def test_a_second_start_moves_the_mark(timer: gpuprof.Timer) -> None:
    with gpuprof.timer(backend="cpu") as since_second_start:
        timer.record_start()
        with gpuprof.timer(backend="cpu") as before:
            sum(range(100_000))
        timer.record_start()
        timer.record_end()
    assert timer.elapsed_ms() < since_second_start.host_ms - before.host_ms


def test_a_second_end_moves_the_mark(timer: gpuprof.Timer) -> None:
    timer.record_start()
    timer.record_end()
    first = timer.elapsed_ms()
    timer.record_end()
    assert timer.elapsed_ms() > first


def test_an_end_before_a_start_is_an_invalid_state(timer: gpuprof.Timer) -> None:
    with pytest.raises(InvalidStateError, match="has no start; call record_start"):
        timer.record_end()


@pytest.mark.parametrize(
    "use",
    [
        lambda timer: timer.record_start(),
        lambda timer: timer.record_end(),
        lambda timer: timer.elapsed_ms(),
        lambda timer: timer.__enter__(),
    ],
    ids=["record_start", "record_end", "elapsed_ms", "with"],
)
def test_a_closed_timer_is_an_invalid_state(
    timer: gpuprof.Timer, use: Callable[[gpuprof.Timer], object]
) -> None:
    timer.record_start()
    timer.close()
    timer.close()
    with pytest.raises(InvalidStateError, match="closed; make a new one"):
        use(timer)
    assert timer.ready is False
    assert "closed" in repr(timer)


def test_a_with_block_sets_both_marks(timer: gpuprof.Timer) -> None:
    with timer as same:
        assert timer.ready is False
    assert same is timer
    assert timer.elapsed_ms() > 0.0
    with timer:
        pass
    assert timer.ready is True


def test_the_bodys_exception_leaves_a_timers_with_block_unchanged(timer: gpuprof.Timer) -> None:
    raised = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught, timer:
        timer.close()  # so that the end mark is refused too
        raise raised
    assert caught.value is raised
    assert raised.__context__ is None


def test_a_refused_end_mark_is_raised_if_the_body_did_not(timer: gpuprof.Timer) -> None:
    with pytest.raises(InvalidStateError, match="closed"), timer:
        timer.close()


def test_a_timer_says_what_it_is() -> None:
    timer = gpuprof.Timer("cpu")
    assert repr(timer) == "<gpuprof.Timer cpu, not stopped>"
    timer.record_start()
    timer.record_end()
    assert repr(timer).endswith(" ms>")
    assert timer.clock == "cpu"
    assert timer._repr_html_().startswith("<code>&lt;gpuprof.Timer cpu")


def test_a_timer_is_no_scope_for_the_statistics_and_the_switch(timer: gpuprof.Timer) -> None:
    with timer:
        pass
    assert len(gpuprof.stats()) == 0
    gpuprof.disable()
    with timer:
        assert timer.ready is False
    assert timer.ready is True


@pytest.mark.parametrize("name", ["fwd", "", "CPU", "cpu "])
def test_a_name_in_place_of_a_backend_points_to_the_scopes(name: str) -> None:
    with pytest.raises(ValueError, match="unknown backend") as caught:
        gpuprof.Timer(name)
    assert f"unknown backend {name!r}; did you mean gpuprof.timer({name!r})?" in str(caught.value)


@pytest.mark.parametrize("given", ["0", 1.5, True, object()], ids=short)
def test_a_stream_of_a_wrong_type_is_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match=f"stream: .*got {type(given).__name__}"):
        gpuprof.Timer("cpu", stream=given)


# Synchronising


def test_a_timer_synchronises_before_each_mark() -> None:
    device = Device()
    timer = gpuprof.Timer(device.backend)
    assert device.log == []
    timer.record_start()
    assert device.log == ["wait"]
    timer.record_end()
    assert device.log == ["wait", "wait"]
    timer.elapsed_ms()
    assert device.log == ["wait", "wait"]
    assert timer.clock == "device"


def test_a_timer_lets_out_what_synchronising_raised() -> None:
    device = Device()
    timer = gpuprof.Timer(device.backend)
    device.error = OSError("device lost")
    with pytest.raises(OSError, match="device lost") as caught:
        timer.record_start()
    assert caught.value is device.error
    assert timer.ready is False


# Probes


def test_a_probe_that_is_off_stays_none() -> None:
    assert gpuprof.start_probe_timer_if(False, backend="cpu") is None
    assert gpuprof.finish_probe_timer(None) is None


def test_a_probe_gives_microseconds() -> None:
    with gpuprof.timer(backend="cpu") as outer:
        probe = gpuprof.start_probe_timer_if(True, backend="cpu")
        with gpuprof.timer(backend="cpu") as inner:
            sum(range(100_000))
        microseconds = gpuprof.finish_probe_timer(probe)
    assert microseconds is not None
    assert inner.ms * 1000 <= microseconds <= outer.ms * 1000


def test_a_probe_works_on_a_backend_of_ones_own() -> None:
    device = Device()
    probe = gpuprof.start_probe_timer_if(True, backend=device.backend)
    assert gpuprof.finish_probe_timer(probe) is not None
    assert device.log == ["wait", "wait"]


def test_disable_turns_later_probes_off() -> None:
    probe = gpuprof.start_probe_timer_if(True, backend="cpu")
    gpuprof.disable()
    assert gpuprof.finish_probe_timer(probe) is not None
    assert gpuprof.start_probe_timer_if(True, backend="cpu") is None
    gpuprof.enable()
    assert gpuprof.start_probe_timer_if(True, backend="cpu") is not None


def test_a_finished_probe_is_closed() -> None:
    probe = gpuprof.start_probe_timer_if(True, backend="cpu")
    gpuprof.finish_probe_timer(probe)
    with pytest.raises(InvalidStateError, match="closed"):
        gpuprof.finish_probe_timer(probe)


def test_a_probe_that_fails_is_closed() -> None:
    device = Device()
    probe = gpuprof.start_probe_timer_if(True, backend=device.backend)
    device.error = OSError("device lost")
    with pytest.raises(OSError, match="device lost"):
        gpuprof.finish_probe_timer(probe)
    assert "closed" in repr(probe)


@pytest.mark.parametrize(
    ("given", "shown"), [("probe", "'probe'"), (3, "3"), (object(), "a object")], ids=short
)
def test_finishing_what_is_no_probe_is_a_type_error(given: Any, shown: str) -> None:
    with pytest.raises(TypeError, match=f"timer: expected .*got {shown}"):
        gpuprof.finish_probe_timer(given)
