"""Finding the line that breaks a capture: operators, other calls, and work outside of it."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from gpuprof import _core
from gpuprof._graphs import debug
from gpuprof._graphs.debug import CaptureWatch
from gpuprof._graphs.diagnosis import CaptureFacts
from gpuprof.errors import CaptureInvalidatedError

ACTIVE, INVALIDATED = 1, 2
STREAM = 0x50


class Driver:
    """The state of the streams, and a function that breaks the capture, as a driver call would."""

    def __init__(self) -> None:
        self.status = {STREAM: ACTIVE, 0x60: ACTIVE, 0x70: 0}
        self.asked: list[int] = []

    def ask(self, stream: int) -> int:
        self.asked.append(stream)
        return self.status[stream]

    def refuse(self) -> None:
        self.status[STREAM] = INVALIDATED


@pytest.fixture
def driver_alone(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(_core, "_capture_status", driver.ask, raising=False)
    return driver


def facts() -> CaptureFacts:
    log = (True, "Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuStreamSynchronize")
    return CaptureFacts(name="step", mode="thread_local", log=[log])


def watch(
    stream: int, facts: Callable[[], CaptureFacts], progress: Callable[[], object] = int
) -> AbstractContextManager[CaptureWatch]:
    return debug.watch(stream, facts, progress)


class StandInMode:
    """The base of torch's dispatch modes: a stack, and operators that go through its top."""

    stack: list[Any] = []  # noqa: RUF012

    def __enter__(self) -> None:
        self.stack.append(self)

    def __exit__(self, *_error: object) -> None:
        self.stack.pop()


class Operator:
    """An operator of torch's."""

    def __init__(self, name: str, does: Callable[..., object], is_view: bool = False) -> None:
        self._name = name
        self._does = does
        self.is_view = is_view

    def name(self) -> str:
        return self._name

    def __call__(self, *arguments: object, **options: object) -> object:
        return self._does(*arguments, **options)

    def dispatch(self, *arguments: object) -> object:
        """Call it as torch would."""
        if not StandInMode.stack:
            return self(*arguments)
        return StandInMode.stack[-1].__torch_dispatch__(self, (), arguments, None)


class Tensor:
    """One on the GPU."""

    is_cuda = True
    device = types.SimpleNamespace(index=0)


class StandIn:
    """As much of torch as a dispatch mode needs."""

    def __init__(self) -> None:
        self.current = STREAM
        self._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda _device: self.current)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    module = StandIn()
    modes = types.SimpleNamespace(TorchDispatchMode=StandInMode)
    monkeypatch.setitem(sys.modules, "torch", module)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.utils._python_dispatch", modes)  # type: ignore[arg-type]
    yield module
    assert StandInMode.stack == []
    assert sys.gettrace() is None


@pytest.fixture
def driver(driver_alone: Driver, torch: StandIn) -> Driver:
    """The driver beside the stand-in for torch."""
    return driver_alone


@pytest.fixture(autouse=True)
def no_tracer() -> Iterator[None]:
    """Let the tests run under a debugger, or a coverage tool that works like one."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def line_of(function: Callable[..., object], offset: int) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset} in {code.co_name}"


ADD = Operator("aten::add.Tensor", lambda *_: Tensor())


def test_an_operator_that_breaks_the_capture_is_named_with_its_line(driver: Driver) -> None:
    item = Operator("aten::_local_scalar_dense", lambda _tensor: driver.refuse())

    def body() -> None:
        ADD.dispatch(Tensor(), Tensor())
        item.dispatch(Tensor())
        pytest.fail("the operator did not raise")

    with pytest.raises(CaptureInvalidatedError) as caught, watch(STREAM, facts):
        body()
    assert caught.value.op == "aten::_local_scalar_dense"
    assert caught.value.where is not None
    assert caught.value.where.startswith(__file__)
    assert "cuStreamSynchronize on this thread" in str(caught.value)
    assert caught.value.capture == "step"


def test_an_operator_that_also_raises_is_the_cause(driver: Driver) -> None:
    error = RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def fails(*_: object) -> None:
        driver.refuse()
        raise error

    with pytest.raises(CaptureInvalidatedError) as caught, watch(STREAM, facts):
        Operator("aten::item", fails).dispatch(Tensor())
    assert caught.value.__cause__ is error
    assert caught.value.op == "aten::item"


def test_an_operator_that_raises_without_breaking_anything_is_left_alone(driver: Driver) -> None:
    error = ValueError("shapes do not fit")

    def fails(*_: object) -> None:
        raise error

    with pytest.raises(ValueError, match="shapes") as caught, watch(STREAM, facts):
        Operator("aten::mm", fails).dispatch(Tensor())
    assert caught.value is error


def no_operator(driver: Driver) -> None:
    ADD.dispatch(Tensor())
    driver.status.update({STREAM: INVALIDATED})
    sum([1])
    ADD.dispatch(Tensor())


def one_line_with_an_operator(driver: Driver) -> None:
    ADD.dispatch(Tensor())
    assert driver.status.update({STREAM: INVALIDATED}) or ADD.dispatch(Tensor())


def the_rest_of_a_line_after_a_call(driver: Driver) -> None:
    driver.status.update(broken())
    ADD.dispatch(Tensor())


def broken() -> dict[int, int]:
    return {STREAM: INVALIDATED}


def a_wait_for_another_thread(driver: Driver) -> None:
    thread = threading.Thread(target=driver.refuse)
    thread.start(), thread.join()
    ADD.dispatch(Tensor())


def the_last_line_of_a_called_function(driver: Driver) -> None:
    driver.status.update({STREAM: INVALIDATED})


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        (no_operator, 2),
        (one_line_with_an_operator, 2),
        (the_rest_of_a_line_after_a_call, 1),
        (a_wait_for_another_thread, 2),
        (the_last_line_of_a_called_function, 1),
    ],
)
def test_a_line_that_is_no_operator_is_named(
    driver: Driver, body: Callable[[Driver], object], offset: int
) -> None:
    with pytest.raises(CaptureInvalidatedError) as caught, watch(STREAM, facts):
        body(driver)
        ADD.dispatch(Tensor())
    assert (caught.value.where, caught.value.op) == (line_of(body, offset), None)


def test_a_capture_that_is_broken_by_the_last_line_is_named_at_the_end(driver: Driver) -> None:
    with pytest.raises(CaptureInvalidatedError) as caught, watch(STREAM, facts):
        ADD.dispatch(Tensor())
        line = sys._getframe().f_lineno + 1
        driver.status.update({STREAM: INVALIDATED})
    assert str(caught.value.where).startswith(f"{__file__}:{line} in ")


def test_beside_a_debugger_the_next_operator_raises(driver: Driver) -> None:
    def other(*_: object) -> None: ...

    sys.settrace(other)
    try:
        with pytest.raises(CaptureInvalidatedError) as caught, watch(STREAM, facts):
            assert sys.gettrace() is other
            driver.refuse()
            ADD.dispatch(Tensor())
        assert sys.gettrace() is other
    finally:
        sys.settrace(None)
    assert str(caught.value.where).startswith(f"a line before {__file__}:")


def test_no_frame_is_traced_afterwards(driver: Driver) -> None:
    frame = sys._getframe()
    assert frame.f_trace is None
    with watch(STREAM, facts):
        assert frame.f_trace is not None
    assert frame.f_trace is None


def test_without_torch_the_line_is_found_all_the_same(
    driver_alone: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils._python_dispatch", raising=False)
    with pytest.raises(CaptureInvalidatedError) as caught, watch(STREAM, facts):
        driver_alone.refuse()
        sum([1])
    assert str(caught.value.where).endswith("in refuse")


def test_a_body_that_breaks_nothing_passes(driver: Driver) -> None:
    with watch(STREAM, facts) as seen:
        assert isinstance(ADD.dispatch(Tensor()), Tensor)
    assert seen.outside == []


def test_the_bodys_own_exception_passes_unchanged(driver: Driver) -> None:
    error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as caught, watch(STREAM, facts):
        driver.refuse()
        raise error
    assert caught.value is error


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python version has no notes")
def test_the_bodys_own_exception_is_noted_with_the_line(driver: Driver) -> None:
    with pytest.raises(KeyError) as caught, watch(STREAM, facts):
        line = sys._getframe().f_lineno + 1
        driver.status.update({STREAM: INVALIDATED})
        raise KeyError
    (note,) = caught.value.__notes__
    assert f" broke at {__file__}:{line} in " in note
    assert "cuStreamSynchronize" in note


def test_an_exception_of_a_body_that_broke_nothing_is_not_noted(driver: Driver) -> None:
    with pytest.raises(KeyError) as caught, watch(STREAM, facts):
        raise KeyError
    assert not hasattr(caught.value, "__notes__")


def test_lines_and_operators_are_looks_at_how_far_it_has_come(driver: Driver) -> None:
    done: list[str] = []
    seen: list[list[str]] = []
    with watch(STREAM, facts, lambda: seen.append(list(done))):
        done.append("line")
        done.append("operator") or ADD.dispatch(Tensor())  # type: ignore[func-returns-value]
    assert ["line"] in seen
    assert seen[-1] == ["line", "operator"]


def test_after_the_break_nothing_is_looked_at(driver: Driver) -> None:
    seen: list[int] = []
    with (
        pytest.raises(CaptureInvalidatedError),
        watch(STREAM, facts, lambda: seen.append(driver.status[STREAM])),
    ):
        driver.refuse()
        sum([1])
    assert set(seen) == {ACTIVE}


def test_it_is_said_once(driver: Driver) -> None:
    with watch(STREAM, facts):
        driver.refuse()
        with pytest.raises(CaptureInvalidatedError):
            ADD.dispatch(Tensor())
        ADD.dispatch(Tensor())


def test_modes_around_and_inside_stay_where_they_are(driver: Driver) -> None:
    class Other(StandInMode):
        def __torch_dispatch__(
            self, function: Operator, types: object, args: Any, kwargs: object
        ) -> object:
            return function(*args)

    outer = Other()
    with outer, watch(STREAM, facts):
        with Other():
            ADD.dispatch(Tensor())
        assert StandInMode.stack[0] is outer
        assert len(StandInMode.stack) == 2


def test_operators_on_a_stream_outside_of_the_capture_are_noted(
    driver: Driver, torch: StandIn
) -> None:
    def body() -> None:
        for stream in (STREAM, 0x60, 0x70, 0, 1):
            torch.current = stream
            ADD.dispatch([Tensor()], 1)

    with watch(STREAM, facts) as seen:
        body()
    assert seen.outside == [("aten::add.Tensor", seen.outside[0][1])] * 3
    # The default stream is not asked: that alone could break a capture.
    assert not {0, 1} & set(driver.asked)


def test_what_puts_nothing_on_a_stream_is_not_missing(driver: Driver, torch: StandIn) -> None:
    torch.current = 0
    with watch(STREAM, facts) as seen:
        Operator("aten::empty.memory_format", Tensor).dispatch()
        Operator("aten::view", lambda tensor: tensor, is_view=True).dispatch(Tensor())
        Operator("aten::add.Tensor", lambda *_: None).dispatch(1, "on the host", None)
    assert seen.outside == []


def test_work_outside_is_noted_within_bounds(driver: Driver, torch: StandIn) -> None:
    torch.current = 0
    with watch(STREAM, facts) as seen:
        for _ in range(1000):
            ADD.dispatch(Tensor())
    assert len(seen.outside) == 100


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 operator ran on a stream that was not being captured"),
        (3, "3 operators ran"),
        (5, "; and 2 more. Run it on"),
    ],
)
def test_missing_work_is_reported_with_its_lines(count: int, said: str) -> None:
    seen = CaptureWatch(STREAM, facts, int)
    seen.outside = [(f"aten::op{n}", f"model.py:{n} in forward") for n in range(count)]
    text = seen.report_outside()
    assert text is not None
    assert said in text
    assert "aten::op0 at model.py:0 in forward" in text
    assert ("more" in text) == (count > 3)


@pytest.fixture
def real_torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.torch
def test_operators_of_the_real_torch_are_seen(driver_alone: Driver, real_torch: Any) -> None:
    class Breaks(real_torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if "sub" in function.name():
                driver_alone.refuse()
            return function(*args, **(kwargs or {}))

    def body(values: Any) -> None:
        values = values + 1
        values = values - 1

    with Breaks():
        with pytest.raises(CaptureInvalidatedError) as caught, watch(STREAM, facts):
            body(real_torch.ones(2))
    assert caught.value.op == "aten::sub.Tensor"
    assert caught.value.where == line_of(body, 2)
    assert real_torch.utils._python_dispatch._get_current_dispatch_mode() is None


@pytest.mark.torch
def test_results_of_the_real_torch_are_what_they_were(
    driver_alone: Driver, real_torch: Any
) -> None:
    weights = real_torch.ones(3, requires_grad=True)
    with watch(STREAM, facts) as seen:
        loss = (weights * 2).sum()
        loss.backward()
        assert loss.item() == 6
    assert weights.grad.tolist() == [2, 2, 2]
    assert seen.outside == []
