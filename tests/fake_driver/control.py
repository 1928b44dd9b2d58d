"""Steer the fake CUDA driver from a test, and call its driver functions by name.

`FakeCuda` loads the same library that gpuprof loads, so both see one driver. Methods that make a
driver call raise `DriverCallError` unless told otherwise; the ``fakecuda_*`` controls count as no
driver call.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SUCCESS = 0
NOT_READY = 600
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
NONE, ACTIVE, INVALIDATED = 0, 1, 2
NON_BLOCKING = 1
EXTERNAL = 1
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2

_HANDLE = ctypes.c_void_p


class DriverCallError(AssertionError):
    """A driver call of a test answered another code than the test wants."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} answered {code}")
        self.call = call
        self.code = code


class FakeCuda:
    """The controls of the fake driver at `path`, and thin wrappers of its driver functions.

    Handles are plain ints. Every wrapper acts for the calling thread, as the driver's functions do.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.shared_object = ctypes.CDLL(str(path))
        self._declare_controls()

    def _declare_controls(self) -> None:
        lib = self.shared_object
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "reset": (None, []),
            "configure": (ctypes.c_int, [ctypes.c_char_p]),
            "script": (ctypes.c_int, [ctypes.c_char_p]),
            "release": (None, []),
            "work": (ctypes.c_int, [_HANDLE, ctypes.c_int64]),
            "trap": (ctypes.c_int, [_HANDLE]),
            "advance": (None, [ctypes.c_int64]),
            "complete": (ctypes.c_int, [_HANDLE]),
            "now": (ctypes.c_uint64, [ctypes.c_int]),
            "stream_tail": (ctypes.c_uint64, [_HANDLE]),
            "calls": (ctypes.c_uint64, [ctypes.c_char_p]),
            "live": (ctypes.c_long, [ctypes.c_char_p]),
            "report": (ctypes.c_char_p, []),
            "last_calls": (ctypes.c_char_p, []),
            "deinit": (None, []),
            "destroy_context": (ctypes.c_int, [_HANDLE]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(lib, f"fakecuda_{name}")
            function.restype = result
            function.argtypes = arguments

    # Controls

    def reset(self) -> None:
        """Forget everything, as if the library had just been loaded."""
        self.shared_object.fakecuda_reset()

    def configure(self, text: str = "", **settings: object) -> None:
        """Set ``key=value;...`` and keyword settings; a list value is joined by commas."""
        parts = [text] if text else []
        for key, value in settings.items():
            joined = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            parts.append(f"{key}={int(joined) if isinstance(joined, bool) else joined}")
        setting = ";".join(parts)
        if self.shared_object.fakecuda_configure(setting.encode()) != 0:
            message = f"the fake driver does not understand the configuration {setting!r}"
            raise ValueError(message)

    def script(self, text: str) -> None:
        """Replace the scripted faults and count anew; an empty text removes them."""
        if self.shared_object.fakecuda_script(text.encode()) != 0:
            message = f"the fake driver does not understand the script {text!r}"
            raise ValueError(message)

    @contextmanager
    def faults(self, text: str) -> Iterator[None]:
        """Script faults for a block."""
        self.script(text)
        try:
            yield
        finally:
            self.script("")

    @contextmanager
    def spared(self) -> Iterator[None]:
        """Neither count the driver calls of a block nor let them fail: they are the test's own."""
        self.configure("spared=1")
        try:
            yield
        finally:
            self.configure("spared=0")

    def release(self) -> None:
        """Let the calls go on that a ``:block`` fault holds."""
        self.shared_object.fakecuda_release()

    def work(self, stream: int, ns: int) -> int:
        """Launch a kernel of `ns` virtual nanoseconds and return the driver's answer."""
        return int(self.shared_object.fakecuda_work(stream, ns))

    def trap(self, stream: int) -> int:
        """Launch a kernel that fails and return the driver's answer."""
        return int(self.shared_object.fakecuda_trap(stream))

    def advance(self, ns: int) -> None:
        self.shared_object.fakecuda_advance(ns)

    def complete(self, stream: int) -> int:
        """Move time to where the stream is idle; 600 if a closed gate is in the way."""
        return int(self.shared_object.fakecuda_complete(stream))

    def now(self, device: int = 0) -> int:
        return int(self.shared_object.fakecuda_now(device))

    def stream_tail(self, stream: int) -> int:
        return int(self.shared_object.fakecuda_stream_tail(stream))

    def calls(self, function: str = "any") -> int:
        return int(self.shared_object.fakecuda_calls(function.encode()))

    def live(self, kind: str = "any") -> int:
        """Return how many handles of a kind are alive: event, stream, graph, exec, ..."""
        count = int(self.shared_object.fakecuda_live(kind.encode()))
        if count < 0:
            message = f"no such kind of handle: {kind!r}"
            raise ValueError(message)
        return count

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.shared_object.fakecuda_report())
        return report

    def last_calls(self) -> list[str]:
        """Return the names of the last 65536 driver calls, the newest last."""
        text: bytes = self.shared_object.fakecuda_last_calls()
        return text.decode().split()

    def deinit(self) -> None:
        """Take the driver down: every later call answers 4."""
        self.shared_object.fakecuda_deinit()

    def destroy_context(self, context: int) -> int:
        """Destroy any context behind its users' backs, a retained primary one too."""
        return int(self.shared_object.fakecuda_destroy_context(context))

    # Driver calls

    def call(self, function: str, *arguments: Any, expect: int | None = SUCCESS) -> int:
        """Call a driver function by its symbol; Python ints are passed as 64-bit values."""
        values = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        code = int(getattr(self.shared_object, function)(*values))
        if expect is not None and code != expect:
            raise DriverCallError(function, code)
        return code

    def _made(self, function: str, *arguments: Any) -> int:
        out = ctypes.c_uint64(0)
        self.call(function, ctypes.byref(out), *arguments)
        return out.value

    def init(self) -> None:
        self.call("cuInit", 0)

    def primary_retain(self, device: int = 0) -> int:
        return self._made("cuDevicePrimaryCtxRetain", device)

    def primary_release(self, device: int = 0) -> None:
        self.call("cuDevicePrimaryCtxRelease_v2", device)

    def primary_reset(self, device: int = 0) -> None:
        self.call("cuDevicePrimaryCtxReset_v2", device)

    def context_create(self, device: int = 0) -> int:
        """Make a context and leave it current."""
        return self._made("cuCtxCreate_v2", 0, device)

    def context_destroy(self, context: int) -> None:
        self.call("cuCtxDestroy_v2", context)

    def current_context(self) -> int:
        return self._made("cuCtxGetCurrent")

    def set_current(self, context: int) -> None:
        self.call("cuCtxSetCurrent", context)

    def use_primary(self, device: int = 0) -> int:
        """Initialise and make the device's primary context current, as a framework does."""
        self.init()
        context = self.primary_retain(device)
        self.set_current(context)
        return context

    def stream_create(self, flags: int = NON_BLOCKING) -> int:
        return self._made("cuStreamCreate", flags)

    def stream_destroy(self, stream: int) -> None:
        self.call("cuStreamDestroy_v2", stream)

    def stream_synchronize(self, stream: int) -> None:
        self.call("cuStreamSynchronize", stream)

    def stream_query(self, stream: int) -> int:
        return self.call("cuStreamQuery", stream, expect=None)

    def event_create(self, flags: int = 0) -> int:
        return self._made("cuEventCreate", flags)

    def event_destroy(self, event: int) -> None:
        self.call("cuEventDestroy_v2", event)

    def event_record(self, event: int, stream: int) -> None:
        self.call("cuEventRecord", event, stream)

    def event_query(self, event: int) -> int:
        return self.call("cuEventQuery", event, expect=None)

    def event_synchronize(self, event: int) -> None:
        self.call("cuEventSynchronize", event)

    def elapsed_ms(self, begin: int, end: int) -> float:
        out = ctypes.c_float(0.0)
        self.call("cuEventElapsedTime_v2", ctypes.byref(out), begin, end)
        return out.value

    def begin_capture(self, stream: int, mode: int = THREAD_LOCAL) -> None:
        self.call("cuStreamBeginCapture_v2", stream, mode)

    def end_capture(self, stream: int) -> int:
        """End the capture and return its graph."""
        out = ctypes.c_uint64(0)
        self.call("cuStreamEndCapture", stream, ctypes.byref(out))
        return out.value

    def capture_status(self, stream: int) -> int:
        out = ctypes.c_int(-1)
        self.call("cuStreamIsCapturing", stream, ctypes.byref(out))
        return out.value

    def exchange_mode(self, mode: int) -> int:
        """Set this thread's capture mode and return the one before."""
        out = ctypes.c_int(mode)
        self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(out))
        return out.value

    def instantiate(self, graph: int) -> int:
        return self._made("cuGraphInstantiateWithFlags", graph, 0)

    def graph_launch(self, graph_exec: int, stream: int) -> None:
        self.call("cuGraphLaunch", graph_exec, stream)

    def exec_destroy(self, graph_exec: int) -> None:
        self.call("cuGraphExecDestroy", graph_exec)

    def graph_destroy(self, graph: int) -> None:
        self.call("cuGraphDestroy", graph)

    def memory_allocate(self, size: int) -> int:
        return self._made("cuMemAlloc_v2", size)

    def memory_free(self, address: int) -> None:
        self.call("cuMemFree_v2", address)

    def host_allocate(self, size: int) -> int:
        return self._made("cuMemHostAlloc", size, 0)

    def host_free(self, address: int) -> None:
        self.call("cuMemFreeHost", address)
