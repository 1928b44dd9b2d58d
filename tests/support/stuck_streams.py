"""Streams that wait for another Python thread while gpuprof fills their queues.

`python -m tests.support.stuck_streams USE WAIT [busy]` is one program, for the fake driver (which
``GPUPROF_CUDA_DRIVER`` names) and for a GPU: it queues more than a stream has room for, in one way
of `USES`, while the stream waits in one way of `WAITS` or `OTHERS`, alone or beside a busy Python
thread. With `BESIDE` as WAIT, USE is one of `BESIDE_A_FULL_QUEUE`, which is done on a stream of its
own while another thread waits for room. If gpuprof keeps Python's lock in a call that waits for
room, the program never ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpuprof
from tests.support.processes import run_python
from tests.support.threads import beside

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
NON_BLOCKING = 1
ENTRIES = 1_000  # of the fake driver's queues, about as many as a GPU's have
TIMES = 1_500  # each makes two entries, or more
GROUP = 56  # host functions, of which a queue takes as many
GROUPS = 30
FEWER = 5  # groups beside a busy thread: each function waits 5 ms for Python's lock there
LIMIT_S = 60.0
GETS_ON_S = 0.1  # a thread that takes longer for a step is stuck

Step = Callable[[], object]


class Driver:
    """The CUDA driver, with the primary context current and a stream of its own."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self.call("cuInit", 0)
        self.context = self.made("cuDevicePrimaryCtxRetain", 0)
        self.call("cuCtxSetCurrent", self.context)
        self.stream = self.stream_create()
        self._word = ctypes.c_uint32.from_address(self.made("cuMemHostAlloc", 4, 2))
        self._word.value = 0
        self._event = self.made("cuEventCreate", 0)
        self.memory = self.made("cuMemAlloc_v2", 4)

    def call(self, function: str, *arguments: Any) -> None:
        values = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        code = getattr(self._library, function)(*values)
        assert code == 0, (function, code)

    def made(self, function: str, *arguments: Any) -> int:
        out = ctypes.c_uint64(0)
        self.call(function, ctypes.byref(out), *arguments)
        return out.value

    def stream_create(self) -> int:
        return self.made("cuStreamCreate", NON_BLOCKING)

    def hold(self, stream: int) -> None:
        """Let the stream wait for the word."""
        self.call("cuStreamWaitValue32_v2", stream, ctypes.addressof(self._word), 1, 0)

    def write(self) -> None:
        """Write the word, from Python."""
        self._word.value = 1

    def launch_write(self, stream: int) -> None:
        """Write it from another stream."""
        self.call("cuStreamWriteValue32_v2", stream, ctypes.addressof(self._word), 1, 0)

    def host_function(self, stream: int) -> None:
        """Queue a function that wants Python's lock."""
        self.call("cuLaunchHostFunc", stream, python_function, None)

    def host_functions(self, stream: int) -> None:
        """Queue a group of them, with records in between: without these they count as one."""
        for _ in range(GROUP):
            self.call("cuEventRecord", self._event, stream)
            self.host_function(stream)


ran: list[None] = []
python_function = HOST_FUNCTION(lambda _: ran.append(None))


def named(driver: Driver) -> Step:
    def step() -> None:
        with gpuprof.timer("use", stream=driver.stream):
            pass

    return step


def reused(driver: Driver) -> Step:
    scope = gpuprof.timer("use", stream=driver.stream)

    def step() -> None:
        with scope:
            pass

    return step


def nested(driver: Driver) -> Step:
    outer = gpuprof.timer("use", stream=driver.stream)
    inner = gpuprof.timer("inner", stream=driver.stream)

    def step() -> None:
        with outer, inner:
            pass

    return step


def set_by_hand(driver: Driver) -> Step:
    timer = gpuprof.Timer(backend="cuda", stream=driver.stream)

    def step() -> None:
        timer.record_start()
        timer.record_end()

    return step


def launch(driver: Driver, *, with_host_node: bool = False) -> Step:
    scalar = gpuprof.DeviceScalar(0, stream=driver.stream)
    with gpuprof.capture(driver.stream) as cap:
        driver.call("cuMemsetD32Async", scalar.ptr, 1, 1, driver.stream)
        if with_host_node:
            driver.host_function(driver.stream)
    return lambda: cap.graph.launch(driver.stream) or scalar  # which the graph writes to


def graphed_callable(driver: Driver, *, with_host_node: bool = False) -> Step:
    import cupy

    def double(x: Any) -> Any:
        if with_host_node:
            driver.host_function(cupy.cuda.get_current_stream().ptr)
        out = cupy.empty(x.shape, x.dtype)
        out[:] = x
        return out

    x = cupy.array([1.0, 2.0], dtype="f4")
    fast = gpuprof.make_graphed_callable(double, (x,), verify="off")
    fast(x)
    return lambda: fast(x)


def update(driver: Driver) -> Step:
    scalar = gpuprof.DeviceScalar(0, stream=driver.stream)

    def step() -> None:
        scalar.update(7)
        scalar.update(8)

    return step


def event(driver: Driver) -> Step:
    from gpuprof.compat.torch import Event

    event = Event()

    def step() -> None:
        event.record(driver.stream)
        event.wait(driver.stream)

    return step


# What fills the queue.
USES: dict[str, Callable[..., Step]] = {
    "named scope": named,
    "reused scope": reused,
    "nested scopes": nested,
    "scope with a trace open": reused,
    "Timer": set_by_hand,
    "launch": launch,
    "graphed callable": graphed_callable,
    "DeviceScalar.update": update,
    "compat.torch.Event": event,
}
# What the stream waits for.
WAITS = ("a word that a thread writes", "a thread that must launch", "Python host functions")
OTHERS = "groups of Python host functions"  # between any two calls
BESIDE_A_BUSY_THREAD = (
    "reused scope",
    "Timer",
    "launch",
    "graphed callable",
    "DeviceScalar.update",
)


BESIDE = "another thread in a full queue"


def captured(driver: Driver, stream: int) -> gpuprof.CapturedGraph:
    with gpuprof.capture(stream, mode="thread_local") as cap, gpuprof.timer("in", stream=stream):
        driver.call("cuMemsetD32Async", driver.memory, 1, 1, stream)
    return cap.graph


def drop_a_graph(driver: Driver, stream: int) -> Step:
    graphs = [captured(driver, stream)]
    graphs[0].launch(stream)
    return graphs.pop


def close_a_graph(driver: Driver, stream: int) -> Step:
    graph = captured(driver, stream)
    graph.launch(stream)
    return lambda: (graph.launch(stream), graph.update(captured(driver, stream)), graph.close())


def drop_an_event(driver: Driver, stream: int) -> Step:
    events = [recorded(stream)]
    return lambda: (events.clear(), recorded(stream))


def recorded(stream: int) -> object:
    from gpuprof.compat.torch import Event

    event = Event()
    event.record(stream)
    return event


def time_and_read(driver: Driver, stream: int) -> Step:
    def step() -> None:
        for _ in range(40):  # more than were made for the first one
            with gpuprof.timer("other", stream=stream):
                pass
        assert gpuprof.timer("other", stream=stream).name == "other"
        timer = gpuprof.Timer(backend="cuda", stream=stream)
        timer.record_start()
        timer.record_end()
        timer.elapsed_ms()
        timer.close()
        gpuprof.stats(wait=False)

    return step


def write_and_read_a_scalar(driver: Driver, stream: int) -> Step:
    def step() -> None:
        scalar = gpuprof.DeviceScalar(1, stream=stream)
        scalar.update(2)
        assert scalar.get() == 2
        scalar.close()

    return step


def trace(driver: Driver, stream: int) -> Step:
    def step() -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            gpuprof.trace(Path(folder) / "trace.json"),
            gpuprof.timer("other", stream=stream),
        ):
            pass

    return step


# What is done meanwhile on a stream of its own.
BESIDE_A_FULL_QUEUE: dict[str, Callable[[Driver, int], Step]] = {
    "capture": lambda driver, stream: lambda: captured(driver, stream),
    "drop a graph": drop_a_graph,
    "close a graph": close_a_graph,
    "drop an event": drop_an_event,
    "time and read": time_and_read,
    "DeviceScalar": write_and_read_a_scalar,
    "trace": trace,
}


def do_beside_a_full_queue(driver: Driver, use: str) -> None:
    step = BESIDE_A_FULL_QUEUE[use](driver, driver.stream_create())
    driver.call("cuCtxSynchronize")
    driver.hold(driver.stream)
    steps = 0

    def fill() -> None:
        nonlocal steps
        driver.call("cuCtxSetCurrent", driver.context)
        for steps in range(TIMES):  # noqa: B007
            with gpuprof.timer("use", stream=driver.stream):
                pass

    def write() -> None:
        time.sleep(2 * GETS_ON_S)
        driver.write()

    threads = [threading.Thread(target=each) for each in (fill, write)]
    threads[0].start()
    before = -1
    while before != steps:
        before = steps
        time.sleep(GETS_ON_S)
    threads[1].start()
    step()
    for each in threads:
        each.join()


def service_threads() -> list[str]:
    names = [each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm")]
    return [each for each in names if each == "gpuprof-calls"]


def busy_thread() -> contextlib.AbstractContextManager[None]:
    """Keep a thread busy in Python, which hands the lock over every 5 ms."""
    return beside(lambda: None, count=1)


@contextlib.contextmanager
def arrays_of(driver: Driver, path: str) -> Iterator[None]:
    """Make the driver's stream CuPy's current one, on the fake driver that of a stand-in."""
    with contextlib.ExitStack() as stack:
        if "fakecuda" in path:
            from tests.fake_driver.control import FakeCuda
            from tests.support.stand_in_cupy import installed

            stack.enter_context(installed(FakeCuda(path), stream=driver.stream))
        else:
            import cupy

            stack.enter_context(cupy.cuda.ExternalStream(driver.stream))
        yield


def fill(driver: Driver, use: str, wait: str, groups: int) -> int:
    """Return how often a scope was entered."""
    make = USES[use]
    entered = TIMES
    if wait == OTHERS:
        step = make(driver)
        entered = 2 * groups
        for _ in range(groups):
            driver.call("cuStreamSynchronize", driver.stream)
            step()
            driver.host_functions(driver.stream)
            step()
    elif wait != "Python host functions":
        step = make(driver)
        other = driver.stream_create()

        steps = 0

        def open_once_full() -> None:
            before = -1
            while before != steps:  # until the queue is full, or all is queued
                before = steps
                time.sleep(GETS_ON_S)
            if wait == "a word that a thread writes":
                driver.write()
            else:
                driver.call("cuCtxSetCurrent", driver.context)
                driver.launch_write(other)

        driver.hold(driver.stream)
        thread = threading.Thread(target=open_once_full)
        thread.start()
        for steps in range(TIMES):  # noqa: B007
            step()
        thread.join()
    elif make in (launch, graphed_callable):
        step = make(driver, with_host_node=True)
        for _ in range(8 * groups):
            step()
    else:
        step = make(driver)
        entered = GROUP * groups
        for _ in range(entered):
            step()
            driver.host_function(driver.stream)
    driver.call("cuStreamSynchronize", driver.stream)
    return entered


def check_stuck(
    use: str, wait: str, driver: Path | None, *, busy: bool = False, **variables: str
) -> None:
    """Run the program in a process of its own; it must end."""
    arguments = ", ".join(map(repr, [use, wait, *["busy"] * busy]))
    code = f"from {__name__} import main\nmain({arguments})"
    done = run_python(code, driver=driver, timeout=LIMIT_S, **variables)
    assert (done.returncode, done.stdout.split()) == (0, ["done"]), done.stderr


def main(use: str, wait: str, busy: str = "") -> None:
    path = os.environ.get("GPUPROF_CUDA_DRIVER", "libcuda.so.1")
    driver = Driver(path)
    with contextlib.ExitStack() as stack:
        if use == "graphed callable":
            stack.enter_context(arrays_of(driver, path))
        if use == "scope with a trace open":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(gpuprof.trace(Path(folder) / "trace.json"))
        if busy:
            stack.enter_context(busy_thread())
        if wait == BESIDE:
            do_beside_a_full_queue(driver, use)
        else:
            entered = fill(driver, use, wait, FEWER if busy else GROUPS)
        if "scope" in use:
            row = gpuprof.stats()["use"]
            assert row.gpu.count + row.dropped == entered, row
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
