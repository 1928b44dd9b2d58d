"""Kernels that stamp their own start and stop, launched by plain driver calls.

They are the clock that a reading of gpuprof is compared with: a kernel of one thread reads the
GPU's ``%globaltimer`` when it starts, spins for a given number of nanoseconds and stores both
stamps. Everything runs in device 0's primary context, the one that frameworks use. Streams and
buffers live as long as the process. Not for use from two threads at once, launches apart.
"""

from __future__ import annotations

import ctypes
import functools

MILLISECOND = 1_000_000  # nanoseconds

# The plan is three 64-bit words in device memory: the nanoseconds to spin, then the two stamps. The
# start is stamped before the plan is read, so that the load is inside the measured time.
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64

.visible .entry spin(.param .u64 plan)
{
    .reg .pred %more;
    .reg .b64 %at, %limit, %begun, %now, %spent;
    ld.param.u64 %at, [plan];
    cvta.to.global.u64 %at, %at;
    mov.u64 %begun, %globaltimer;
    ld.volatile.global.u64 %limit, [%at];
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %spent, %now, %begun;
    setp.lt.u64 %more, %spent, %limit;
    @%more bra again;
    st.volatile.global.u64 [%at+8], %begun;
    st.volatile.global.u64 [%at+16], %now;
    ret;
}

.visible .entry fault()
{
    trap;
}
"""

_NON_BLOCKING = 1
_ONE = ctypes.c_uint(1)
_NONE = ctypes.c_uint(0)


class DriverCallError(RuntimeError):
    """A driver call of this module answered an error."""


class Device:
    """Device 0 with its primary context, current on the thread that made this."""

    def __init__(self) -> None:
        self.shared_object = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        ordinal = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(ordinal), 0)
        self.ordinal = ordinal
        self._context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), ordinal)
        self.make_current()
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), _PTX)
        self.spin_function = self._function(module, b"spin")
        self._fault_function = self._function(module, b"fault")
        # A kernel's first launch loads it, which takes milliseconds.
        Spin(self, self.stream(), 1000).launch()
        self.synchronize()

    def call(self, name: str, *arguments: object) -> None:
        """Call a driver function and raise DriverCallError unless it succeeds."""
        code = getattr(self.shared_object, name)(*arguments)
        if code != 0:
            raise DriverCallError(f"{name} answered {code}")

    def make_current(self) -> None:
        """Make the primary context current on the calling thread."""
        self.call("cuCtxSetCurrent", self._context)

    def stream(self) -> int:
        """Return a new non-blocking stream's handle."""
        handle = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(handle), _NON_BLOCKING)
        return _value(handle)

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for a stream, or for everything."""
        if stream is None:
            self.call("cuCtxSynchronize")
        else:
            self.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def allocate(self, size: int) -> int:
        """Return the address of new device memory."""
        address = ctypes.c_void_p()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return _value(address)

    def launch_fault(self, stream: int) -> None:
        """Launch a kernel that traps: a sticky error from which the context never recovers."""
        self.call(
            "cuLaunchKernel", self._fault_function, *_GRID, ctypes.c_void_p(stream), None, None
        )

    def reset(self) -> None:
        """Destroy the primary context under everybody who uses it."""
        self.call("cuDevicePrimaryCtxReset_v2", self.ordinal)

    def _function(self, module: ctypes.c_void_p, name: bytes) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name)
        return function


_GRID = (_ONE, _ONE, _ONE, _ONE, _ONE, _ONE, _NONE)  # one thread, no shared memory


class Spin:
    """A kernel that spins for `nanoseconds` on a stream, with everything but the launch prepared.

    A launch from Python then takes a few microseconds, of which an idle stream's reading holds the
    part between the scope's first record and the kernel's start.
    """

    def __init__(self, device: Device, stream: int, nanoseconds: int) -> None:
        self._device = device
        self._stream = stream
        self._plan = ctypes.c_void_p(device.allocate(24))
        self.set_duration(nanoseconds)
        self._parameters = (ctypes.c_void_p * 1)(ctypes.addressof(self._plan))
        self._launch = functools.partial(
            device.shared_object.cuLaunchKernel,
            device.spin_function,
            *_GRID,
            ctypes.c_void_p(stream),
            self._parameters,
            None,
        )

    def set_duration(self, nanoseconds: int) -> None:
        """Spin for this long from the next launch on; call it while no launch is running."""
        value = ctypes.c_uint64(nanoseconds)
        self._device.call("cuMemcpyHtoD_v2", self._plan, ctypes.byref(value), ctypes.c_size_t(8))

    def launch(self) -> None:
        """Launch the kernel; nothing waits."""
        code = self._launch()
        if code != 0:
            raise DriverCallError(f"cuLaunchKernel answered {code}")

    def milliseconds(self) -> float:
        """Wait for the stream; return the last launch's own time from start to stop."""
        start, stop = self.stamps()
        return (stop - start) / MILLISECOND

    def stamps(self) -> tuple[int, int]:
        """Wait for the stream; return when the last launch started and stopped, in nanoseconds."""
        self._device.synchronize(self._stream)
        words = (ctypes.c_uint64 * 3)()
        self._device.call("cuMemcpyDtoH_v2", words, self._plan, ctypes.c_size_t(24))
        return words[1], words[2]


class EventPair:
    """Two of the driver's own events on a stream, recorded by plain calls."""

    def __init__(self, device: Device, stream: int) -> None:
        self._device = device
        self._stream = ctypes.c_void_p(stream)
        self._events = ctypes.c_void_p(), ctypes.c_void_p()
        for event in self._events:
            device.call("cuEventCreate", ctypes.byref(event), 0)

    def begin(self) -> None:
        """Record the first event."""
        self._device.call("cuEventRecord", self._events[0], self._stream)

    def end(self) -> None:
        """Record the second event."""
        self._device.call("cuEventRecord", self._events[1], self._stream)

    def milliseconds(self) -> float:
        """Wait for the second event; return the time between the two."""
        found = ctypes.c_float()
        self._device.call("cuEventSynchronize", self._events[1])
        self._device.call("cuEventElapsedTime", ctypes.byref(found), *self._events)
        return found.value


@functools.cache
def device() -> Device:
    """Return the one Device of this process, made at the first call."""
    return Device()


def _value(handle: ctypes.c_void_p) -> int:
    if handle.value is None:
        raise DriverCallError("the driver returned a null handle")
    return handle.value
