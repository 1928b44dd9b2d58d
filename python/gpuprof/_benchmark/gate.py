"""A stream whose work is held back by a gate while a sample is queued."""

from __future__ import annotations

import os
from collections.abc import Callable

import gpuprof._core as _core
from gpuprof._timing.calibration import Calibration
from gpuprof._timing.timer import Timer
from gpuprof.errors import CudaError

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

WAITS = "the function waits for the GPU, so the host's time is in its own"
LIMIT_S = 0.25  # after which a gate opens by itself, in addition to the time that queueing takes
MAX_ENTRIES = 900  # of a queue that blocks after 1,020
_NOT_SUPPORTED = {500, 801}  # the driver has no such call; the device cannot do it
_LAUNCH_BLOCKING = "CUDA_LAUNCH_BLOCKING"


class HeldStream:
    """A stream with a gate in front, where the device supports one."""

    calibration: Calibration  # of the device, set before any time is read

    def __init__(self, handle: int, device: int) -> None:
        self.handle = handle
        self.device = device  # of a default stream, for a thread without a context
        self.why_not = ""  # why the GPU is not held back, in words; empty if it is
        self.limit_s = LIMIT_S  # after which the watchdog opens the gate
        self._gate: _core._Gate | None = None
        self._l2: _core.DeviceBuffer | None = None  # filling it flushes the L2
        if os.environ.get(_LAUNCH_BLOCKING, "0") not in {"", "0"}:
            self.why_not = f"{_LAUNCH_BLOCKING} is set, so every launch waits for the GPU"
            return
        self._gate = _core._Gate(handle, device)
        try:
            self.run(lambda: None)
        except CudaError as error:
            if error.code not in _NOT_SUPPORTED:
                raise
            self.give_up("the device cannot wait for a word in memory")

    @property
    def state(self) -> str:
        return "ungated" if self._gate is None else "gated"

    @property
    def warning(self) -> str:
        """The warning for the result; empty if the GPU is held back."""
        return f"the GPU was not held back: {self.why_not}" if self.why_not else ""

    def synchronize(self) -> None:
        _core._synchronize(self.handle, self.device)

    def elapsed_ms(self, timer: Timer) -> float:
        """Return the time between a timer's events less that of an empty interval, at least 0."""
        return max(timer.elapsed_ms() - self.empty_ns() * 1e-6, 0.0)

    def empty_ns(self) -> float:
        """Return what an empty interval reads: less if both events are queued behind the gate."""
        found = self.calibration
        return found.idle_ns if self._gate is None else found.queued_ns or 0.0

    def give_up(self, why: str) -> None:
        self._gate = None
        self.why_not = why

    def allow(self, host_ms: float) -> None:
        """Hold the GPU back for at least as long as queueing takes on the host."""
        self.limit_s = max(self.limit_s, LIMIT_S + 1.5e-3 * host_ms)

    def flush_before_each(self, nbytes: int) -> None:
        self._l2 = _core.DeviceBuffer(nbytes)
        # The first call loads, which may wait for a closed gate.
        self._l2.fill(1, self.handle)
        self.synchronize()

    def timed(self, timer: Timer, body: Callable[[], object]) -> None:
        """Queue `body` between the two events of a timer, after a flush of the L2 if wanted."""
        if self._l2 is not None:
            self._l2.fill(1, self.handle)
        timer.record_start(self.handle)
        try:
            body()
        finally:
            timer.record_end()

    def close(self) -> None:
        self._l2 = None

    def run(self, queue: Callable[[], object]) -> bool:
        """Run `queue`; return whether the GPU was held back until its end.

        Where `queue` waits for the GPU or fills the stream's queue, the watchdog opens the gate
        after `limit_s`.
        """
        if self._gate is None:
            queue()
            return True
        try:
            self._gate.close(self.limit_s)  # in here, because an interrupt may follow it at once
            queue()
        finally:
            was_closed = self._gate.open()
        return was_closed
