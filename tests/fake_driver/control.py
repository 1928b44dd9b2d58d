"""Steer the fake CUDA driver from a test, and call its driver functions by name.

`FakeCuda` loads the same library that gpuprof loads, so both see one driver. Methods that make a
driver call raise `DriverCallError` unless told otherwise; the ``fakecuda_*`` controls count as no
driver call.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SUCCESS = 0
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
NONE, ACTIVE, INVALIDATED = 0, 1, 2
NON_BLOCKING = 1
DISABLE_TIMING = 2
EXTERNAL = 1
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2

# What `FakeCuda.host_function` takes: made of a Python function of one argument, which is None.
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

Dim3 = tuple[int, int, int]


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
        for name in ("now", "stream_tail", "calls", "calls_of_this_thread"):
            getattr(self.shared_object, f"fakecuda_{name}").restype = ctypes.c_uint64
        self.shared_object.fakecuda_live.restype = ctypes.c_long
        self.shared_object.fakecuda_report.restype = ctypes.c_char_p
        self.shared_object.fakecuda_last_calls.restype = ctypes.c_char_p

    def _run(self, function: str, *arguments: Any) -> Any:
        """Call a function by its symbol; Python ints are passed as 64-bit values."""
        values = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        return getattr(self.shared_object, function)(*values)

    # Controls

    def reset(self) -> None:
        """Forget everything, as if the library had just been loaded."""
        self._run("fakecuda_reset")

    def configure(self, text: str = "", **settings: object) -> None:
        """Set ``key=value;...`` and keyword settings; a list value is joined by commas."""
        parts = [text] if text else []
        for key, value in settings.items():
            joined = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            parts.append(f"{key}={int(joined) if isinstance(joined, bool) else joined}")
        setting = ";".join(parts)
        if self._run("fakecuda_configure", setting.encode()) != 0:
            message = f"the fake driver does not understand the configuration {setting!r}"
            raise ValueError(message)

    def script(self, text: str) -> None:
        """Replace the scripted faults and count anew; an empty text removes them."""
        if self._run("fakecuda_script", text.encode()) != 0:
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
        self._run("fakecuda_release")

    def work(self, stream: int, ns: int) -> int:
        """Launch a kernel of `ns` virtual nanoseconds and return the driver's answer."""
        return int(self._run("fakecuda_work", stream, ns))

    def trap(self, stream: int) -> int:
        """Launch a kernel that fails and return the driver's answer."""
        return int(self._run("fakecuda_trap", stream))

    def kernel(
        self,
        stream: int,
        name: str,
        ns: int = 1_000,
        *,
        grid: Dim3 = (1, 1, 1),
        block: Dim3 = (1, 1, 1),
        shared: int = 0,
        of_library: bool = False,
        programmatic: bool = False,
    ) -> int:
        """Launch a kernel and return the driver's answer.

        A kernel `of_library` shows a CUkernel in its node and no CUfunction; a `programmatic` one
        may start before what it comes after has ended, which its edges show.
        """
        shape = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block)
        return int(
            self._run(
                "fakecuda_kernel",
                stream,
                name.encode(),
                ns,
                *shape,
                shared,
                of_library,
                programmatic,
            )
        )

    def copy(self, stream: int, nbytes: int, target: int = 0, source: int = 0) -> int:
        """Copy within the device and return the driver's answer; no addresses: nothing real."""
        if target or source:
            return self.call("cuMemcpyDtoDAsync_v2", target, source, nbytes, stream, expect=None)
        return int(self._run("fakecuda_copy", stream, nbytes))

    def node(self, stream: int, node_type: int) -> int:
        """Add a node of any type, which has no parameters, to the stream's capture."""
        return int(self._run("fakecuda_node", stream, node_type))

    def node_id(self, node: int) -> int:
        """Return the number by which tools name a node; its graph's is in the upper 32 bits."""
        number = ctypes.c_uint64(0)
        self.call("fakecuda_node_id", node, ctypes.byref(number))
        return number.value

    def exec_id(self, graph_exec: int) -> int:
        """Return the number by which tools name an executable graph."""
        number = ctypes.c_uint(0)
        self.call("fakecuda_exec_id", graph_exec, ctypes.byref(number))
        return number.value

    def read(self, address: int, nbytes: int) -> bytes:
        """Return what the device's memory holds now, whatever is still queued."""
        block = ctypes.create_string_buffer(nbytes)
        self._touch("read", self._run("fakecuda_read", address, block, nbytes))
        return block.raw

    def write(self, address: int, data: bytes) -> None:
        """Change the device's memory now, whatever is still queued."""
        self._touch("write", self._run("fakecuda_write", address, data, len(data)))

    @staticmethod
    def _touch(what: str, code: int) -> None:
        if code != SUCCESS:
            message = f"{what}: not all of that memory of the device is allocated"
            raise ValueError(message)

    def advance(self, ns: int) -> None:
        self._run("fakecuda_advance", ns)

    def complete(self, stream: int) -> int:
        """Move time to where the stream is idle; 600 if a closed gate is in the way."""
        return int(self._run("fakecuda_complete", stream))

    def now(self) -> int:
        return int(self._run("fakecuda_now"))

    def stream_tail(self, stream: int) -> int:
        return int(self._run("fakecuda_stream_tail", stream))

    def calls(self, function: str = "any") -> int:
        return int(self._run("fakecuda_calls", function.encode()))

    def calls_of_this_thread(self, symbol: str) -> int:
        return int(self._run("fakecuda_calls_of_this_thread", symbol.encode()))

    def live(self, kind: str = "any") -> int:
        """Return how many handles of a kind are alive: event, stream, graph, exec, ..."""
        count = int(self._run("fakecuda_live", kind.encode()))
        if count < 0:
            message = f"no such kind of handle: {kind!r}"
            raise ValueError(message)
        return count

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self._run("fakecuda_report"))
        return report

    def last_calls(self) -> list[str]:
        """Return the names of the last 65536 driver calls, the newest last."""
        text: bytes = self._run("fakecuda_last_calls")
        return text.decode().split()

    def deinit(self) -> None:
        """Take the driver down: every later call answers 4."""
        self._run("fakecuda_deinit")

    def destroy_context(self, context: int) -> int:
        """Destroy any context behind its users' backs, a retained primary one too."""
        return int(self._run("fakecuda_destroy_context", context))

    # Driver calls

    def call(self, function: str, *arguments: Any, expect: int | None = SUCCESS) -> int:
        """Call a driver function by its symbol, as `_run`; DriverCallError unless as expected."""
        code = int(self._run(function, *arguments))
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

    def host_function(self, stream: int, function: Any) -> None:
        """Queue a `HOST_FUNCTION`, which the caller keeps alive; a node in a capture."""
        self.call("cuLaunchHostFunc", stream, function, None)

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

    def fork(self, origin: int, branch: int) -> None:
        """Let `branch` wait for what `origin` has so far: in a capture, it joins the capture."""
        event = self.event_create(DISABLE_TIMING)
        self.event_record(event, origin)
        self.call("cuStreamWaitEvent", branch, event, 0)
        self.event_destroy(event)

    def join(self, origin: int, branch: int) -> None:
        """Let `origin` wait for what `branch` has so far."""
        self.fork(branch, origin)

    def captured_graph(self, stream: int) -> int:
        """Return the graph that the stream's capture is making, 0 without one."""
        status, graph = ctypes.c_int(0), ctypes.c_uint64(0)
        self.call(
            "cuStreamGetCaptureInfo_v2", stream, ctypes.byref(status), None, ctypes.byref(graph),
            None, None,
        )  # fmt: skip
        return graph.value

    def nodes(self, graph: int) -> list[int]:
        """Return the handles of a graph's nodes."""
        count = ctypes.c_size_t(0)
        self.call("cuGraphGetNodes", graph, None, ctypes.byref(count))
        handles = (ctypes.c_uint64 * count.value)()
        self.call("cuGraphGetNodes", graph, handles, ctypes.byref(count))
        return list(handles)

    def node_types(self, graph: int) -> list[int]:
        kind = ctypes.c_int(-1)
        found = []
        for node in self.nodes(graph):
            self.call("cuGraphNodeGetType", node, ctypes.byref(kind))
            found.append(kind.value)
        return found

    def add_child(self, graph: int, child: int, *, after: Sequence[int] = ()) -> int:
        """Add a node that runs a copy of `child`, and return it."""
        before = (ctypes.c_uint64 * len(after))(*after)
        return self._made("cuGraphAddChildGraphNode", graph, before, len(after), child)

    def instantiate(self, graph: int, flags: int = 0) -> int:
        return self._made("cuGraphInstantiateWithFlags", graph, flags)

    def graph_launch(self, graph_exec: int, stream: int) -> None:
        self.call("cuGraphLaunch", graph_exec, stream)

    def exec_destroy(self, graph_exec: int) -> None:
        self.call("cuGraphExecDestroy", graph_exec)

    def graph_destroy(self, graph: int) -> None:
        self.call("cuGraphDestroy", graph)

    def memory_info(self) -> tuple[int, int]:
        """Return how many bytes of the device are free, and how many there are."""
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def stream_allocate(self, size: int, stream: int) -> int:
        """Allocate in stream order: in a capture, a node of the graph."""
        return self._made("cuMemAllocAsync", size, stream)

    def stream_free(self, address: int, stream: int) -> None:
        self.call("cuMemFreeAsync", address, stream)

    def memory_allocate(self, size: int) -> int:
        return self._made("cuMemAlloc_v2", size)

    def memory_free(self, address: int) -> None:
        self.call("cuMemFree_v2", address)

    def host_allocate(self, size: int) -> int:
        return self._made("cuMemHostAlloc", size, 0)

    def host_free(self, address: int) -> None:
        self.call("cuMemFreeHost", address)
