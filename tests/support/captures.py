"""What tests of captures share: streams that must be usable afterwards, and other threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import gpuprof
from tests.fake_driver import control
from tests.fake_driver.control import DriverCallError, FakeCuda

US = 1_000
MODES = ["thread_local", "global", "relaxed"]


@contextmanager
def usable_stream(fake: FakeCuda) -> Iterator[int]:
    """Make a stream, and check on the way out that it can still be captured."""
    stream = fake.stream_create()
    yield stream
    assert fake.capture_status(stream) == control.NONE, "the stream was left in a capture"
    graph = graph_of(fake, stream)
    graph.launch(stream)
    fake.stream_synchronize(stream)
    graph.close()
    fake.stream_destroy(stream)


def on_another_thread(work: Callable[[], object]) -> object:
    """Return what `work` returns or raises on a thread of its own."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(work)
    error = done.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return error or done.result()


def await_no_capture(fake: FakeCuda, stream: int) -> None:
    """Wait until the stream is in no capture: a thread's very end comes after Python's join()."""
    while fake.capture_status(stream) != control.NONE:
        time.sleep(0.001)


def suppressed(call: Callable[[], object]) -> None:
    """Make driver calls of which one is refused."""
    with suppress(DriverCallError):
        call()


def graph_of(fake: FakeCuda, stream: int, ns: int = US, **options: object) -> gpuprof.CapturedGraph:
    """Capture one kernel, ``step_k``."""
    return captured(fake, stream, "step_k", ns=ns, **options)


def captured(
    fake: FakeCuda, stream: int, *kernels: str, ns: int = US, **options: object
) -> gpuprof.CapturedGraph:
    """Capture kernels of these names, ``add_k`` if none is given."""
    with gpuprof.capture(stream, **options) as cap:  # type: ignore[arg-type]
        for name in kernels or ("add_k",):
            fake.kernel(stream, name, ns)
    return cap.graph


class Buffer:
    """Something that is kept alive."""
