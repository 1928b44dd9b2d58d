"""Driver calls that may wait are made without Python's lock, wherever they come from.

The list is that of docs/design/timing.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import check_cuda

MAY_WAIT = (
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxRelease",
    "cuEventCreate",
    "cuEventDestroy",
    "cuEventRecord",
    "cuGraphExecDestroy",
    "cuGraphExecUpdate",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemFreeHost",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuStreamBeginCapture",
    "cuStreamCreate",
    "cuStreamDestroy",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamWaitValue32",
    "cuStreamWriteValue64",
)
AT_ONCE = 5
# A thread uses all that calls the driver, and the main thread lets each blocked call go on. The
# process ends with a traceback where a call keeps the lock, so that the main thread cannot run.
USE = """
import faulthandler, gc, tempfile
from pathlib import Path
from gpuprof.compat.torch import Event
faulthandler.dump_traceback_later(20, exit=True)

def captured():
    with gpuprof.capture(stream) as cap, gpuprof.timer("in", stream=stream, in_capture="record"):
        fake.work(stream, 1000)
    return cap.graph

def time_and_trace():
    with tempfile.TemporaryDirectory() as folder, gpuprof.trace(Path(folder) / "trace.json"):
        for _ in range(40):
            with gpuprof.timer("traced", stream=stream) as sample:
                fake.work(stream, 1000)
        fake.complete(stream)
        assert sample.ms > 0
    with gpuprof.timer("verified", stream=stream, verify_stream=True):
        fake.work(stream, 1000)
    timer = gpuprof.Timer(backend="cuda", stream=stream)
    timer.record_start()
    timer.record_end()
    fake.complete(stream)
    timer.elapsed_ms()
    timer.close()
    gpuprof.calibrate()

def record_events():
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    start.record(stream)
    end.record(stream)
    end.wait(0)
    fake.complete(stream)
    end.synchronize()
    start.elapsed_time(end)

def write_scalars():
    for dtype in ("i1", "i2", "i4", "f8"):
        scalar = gpuprof.DeviceScalar(1, dtype=dtype, stream=stream)
        scalar.update(2)
        assert scalar.get() == 2
        scalar.close()
    buffer = _core.DeviceBuffer(1024)
    buffer.fill(1, stream)

def launch_graphs():
    graph, other, dropped = captured(), captured(), captured()
    graph.upload(stream)
    for each in (graph, dropped):
        each.launch(stream)
    graph.update(other)
    del each, dropped
    graph.close()

def use():
    fake.set_current(context)
    for part in (time_and_trace, record_events, write_scalars, launch_graphs):
        part()
    gpuprof.stats()
    gpuprof.flush()
    _core._release_idle()
    gc.collect()

failed = []
def run():
    try:
        use()
    except BaseException as error:
        failed.append(repr(error))
before = {call: fake.calls(call) for call in CALLS}
fake.script(";".join(f"{call}@1-1000000=0:block" for call in CALLS))
thread = threading.Thread(target=run)
thread.start()
while thread.is_alive():
    if fake.report()["blocked_calls"]:
        fake.release()
    time.sleep(0.0003)
print([call for call in CALLS if fake.calls(call) == before[call]], failed)
"""


@pytest.mark.parametrize("first", range(0, len(MAY_WAIT), AT_ONCE))
def test_no_call_that_may_wait_keeps_the_lock(fake_path: Path, first: int) -> None:
    calls = MAY_WAIT[first : first + AT_ONCE]
    assert check_cuda(fake_path, f"CALLS = {calls!r}\n{USE}") == "[] []\n"
