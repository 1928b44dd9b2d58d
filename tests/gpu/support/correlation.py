"""Where spans are on the host's clock by a correlation that the timeline knows nothing of.

A kernel and the host pass a word in mapped memory back and forth, and the kernel stamps the GPU's
``%globaltimer`` each time: the stamp lies between two readings of the host's clock, two to four
microseconds apart. Right beside it a span is timed around a kernel that stamps its start and end,
behind other work, so that the span's start is at most a few microseconds before the kernel's. Both
together say where the span began.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import gpuprof
from gpuprof import _core
from tests.gpu.support.kernels import MILLISECOND, Spin, device

_REFRESH_EVERY_S = 0.25
_MEASURE_EVERY_S = 0.5
_ROUNDS = 60
_KERNEL_NS = 20_000
_DRIFT_NS = 100  # between a span and the correlation a few milliseconds after it

# Words in mapped memory: what the host says, what the kernel answers, then stamps. Either kernel
# gives up after a second, so that a test that fails leaves no kernel behind.
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64

.visible .entry answer(.param .u64 words, .param .u64 rounds)
{
    .reg .pred %wait, %more, %late;
    .reg .b64 %at, %stamps, %count, %round, %seen, %now, %begun, %spent;
    ld.param.u64 %at, [words];
    ld.param.u64 %count, [rounds];
    cvta.to.global.u64 %at, %at;
    add.u64 %stamps, %at, 16;
    mov.u64 %round, 1;
    mov.u64 %begun, %globaltimer;
again:
    ld.volatile.global.u64 %seen, [%at];
    mov.u64 %now, %globaltimer;
    sub.u64 %spent, %now, %begun;
    setp.gt.u64 %late, %spent, 1000000000;
    @%late bra done;
    setp.lt.u64 %wait, %seen, %round;
    @%wait bra again;
    st.volatile.global.u64 [%stamps], %now;
    membar.sys;
    st.volatile.global.u64 [%at+8], %round;
    add.u64 %stamps, %stamps, 8;
    add.u64 %round, %round, 1;
    setp.le.u64 %more, %round, %count;
    @%more bra again;
done:
    ret;
}

.visible .entry stamp(.param .u64 words, .param .u64 nanoseconds)
{
    .reg .pred %more;
    .reg .b64 %at, %limit, %begun, %now, %spent;
    mov.u64 %begun, %globaltimer;
    ld.param.u64 %at, [words];
    ld.param.u64 %limit, [nanoseconds];
    cvta.to.global.u64 %at, %at;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %spent, %now, %begun;
    setp.lt.u64 %more, %spent, %limit;
    @%more bra again;
    st.volatile.global.u64 [%at], %begun;
    st.volatile.global.u64 [%at+8], %now;
    membar.sys;
    ret;
}
"""

_DEVICE_MAPPED = 2


class _Kernel:
    """A kernel of one thread that shares words of host memory with this process."""

    def __init__(self, name: bytes, words: int, parameter: int) -> None:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        memory, address = ctypes.c_void_p(), ctypes.c_void_p()
        size = ctypes.c_size_t(8 * words)
        call = device().call
        call("cuModuleLoadData", ctypes.byref(module), _PTX)
        call("cuModuleGetFunction", ctypes.byref(function), module, name)
        call("cuMemHostAlloc", ctypes.byref(memory), size, _DEVICE_MAPPED)
        call("cuMemHostGetDevicePointer_v2", ctypes.byref(address), memory, 0)
        assert memory.value is not None
        self.words = (ctypes.c_uint64 * words).from_address(memory.value)
        self._arguments = (address, ctypes.c_uint64(parameter))
        self._parameters = (ctypes.c_void_p * 2)(*map(ctypes.addressof, self._arguments))
        self._function = function

    def launch(self, stream: int) -> None:
        grid = map(ctypes.c_uint, (1, 1, 1, 1, 1, 1, 0))
        handle = ctypes.c_void_p(stream)
        device().call("cuLaunchKernel", self._function, *grid, handle, self._parameters, None)


@dataclass(frozen=True)
class _Correlation:
    """The host's clock minus the GPU's ``%globaltimer``, and how far it may be off."""

    offset_ns: int
    error_ns: float


class _PingPong:
    """The correlation that the timeline knows nothing of."""

    def __init__(self) -> None:
        self._kernel = _Kernel(b"answer", 2 + _ROUNDS, _ROUNDS)
        self._stream = device().stream()
        self.correlate()  # loads the kernel

    def correlate(self) -> _Correlation:
        """Return the tightest of many rounds."""
        words, now = self._kernel.words, time.monotonic_ns
        words[0] = words[1] = 0
        brackets = []
        self._kernel.launch(self._stream)
        for turn in range(1, _ROUNDS + 1):
            limit = now() + 2_000_000_000
            before = now()
            words[0] = turn
            while words[1] < turn:
                assert now() < limit, "the kernel does not answer"
            brackets.append((before, now()))
        device().synchronize(self._stream)
        tightest = min(range(_ROUNDS), key=lambda i: brackets[i][1] - brackets[i][0])
        before, after = brackets[tightest]
        return _Correlation((before + after) // 2 - words[2 + tightest], (after - before) / 2)


@dataclass(frozen=True)
class _Measured:
    """A span, where it began by the ping-pong, and how far that may be off."""

    span: gpuprof.Sample
    expected_ns: float
    error_ns: float

    def place(self) -> tuple[int, int]:
        """Return how far the timeline is from it, and the error that it states."""
        placed = _core._place_of(self.span)
        assert isinstance(placed, tuple), f"not placed: {placed}"
        return round(placed[0] - self.expected_ns), placed[1]


@functools.cache
def _ping_pong() -> _PingPong:
    return _PingPong()


@contextmanager
def anchors() -> Iterator[None]:
    """Take anchors a few times a second, from a thread of its own."""
    done = threading.Event()

    def refresh() -> None:
        while not done.wait(_REFRESH_EVERY_S):
            _core._timeline_refresh()

    thread = threading.Thread(target=refresh)
    _core._timeline_want(True)
    try:
        _core._timeline_refresh()
        thread.start()
        yield
    finally:
        done.set()
        thread.join()
        _core._timeline_want(False)


def _measure(stream: int, ahead: Spin, stamp: _Kernel) -> _Measured:
    scope = gpuprof.timer(stream=stream, backend="cuda")
    ahead.launch()
    with scope as span:
        stamp.launch(stream)
    span_ns = span.ms * MILLISECOND
    device().synchronize(stream)
    correlation = _ping_pong().correlate()
    begun, ended = stamp.words[0], stamp.words[1]
    # The span holds the kernel and, before and after it, this much together.
    around_ns = span_ns - (ended - begun)
    assert 0 <= around_ns < 20_000
    return _Measured(
        span,
        begun + correlation.offset_ns - around_ns / 2,
        around_ns / 2 + correlation.error_ns + _DRIFT_NS,
    )


def watch(seconds: float) -> list[tuple[int, int, float]]:
    """Time spans for so long.

    Return (timeline less correlation, stated error, the correlation's own error) of each, in ns.
    """
    stream = device().stream()
    ahead = Spin(device(), stream, 5 * MILLISECOND)  # in which a slow host queues all the rest
    stamp = _Kernel(b"stamp", 2, _KERNEL_NS)
    stamp.launch(stream)  # loads the kernel
    _ping_pong()
    with anchors():
        measured = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            measured.append(_measure(stream, ahead, stamp))
            time.sleep(_MEASURE_EVERY_S)
        _core._timeline_refresh()
        return [(*one.place(), one.error_ns) for one in measured]


def placed_spans(count: int) -> list[tuple[int, tuple[int, int]]]:
    """Return for so many spans the host's time before the launch, and the place with its error."""
    stream = device().stream()
    spin = Spin(device(), stream, 10_000)
    with anchors():
        launched = []
        for _ in range(count):
            scope = gpuprof.timer(stream=stream, backend="cuda")
            before = time.monotonic_ns()
            with scope as span:
                spin.launch()
            launched.append((before, span))
            _ = span.ms  # waits
            time.sleep(0.002)
        _core._timeline_refresh()
        placed = []
        for before, span in launched:
            place = _core._place_of(span)
            assert isinstance(place, tuple), f"not placed: {place}"
            placed.append((before, place))
        return placed
