"""P2: no call into a dead, foreign or forked driver object, ever. Each case in its own process."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.support.processes import ROOT, SETUP_CUDA, check_cuda, check_python

FORK = """
def in_child(body):
    pid = os.fork()
    if pid == 0:
        try:
            body()
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def test_objects_alive_at_exit_make_no_driver_call_after_it_began(
    fake_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    out = check_cuda(
        fake_path,
        """
        timer = gpuprof.Timer("cuda", stream)
        timer.record_start()
        kept = [scope, timer]
        cycle = [gpuprof.Timer("cuda", stream)]
        cycle[0].record_start()
        cycle.append(cycle)
        with scope as pending:
            fake.work(stream, 10**9)
        local = threading.local()
        local.timer = timer
        """,
        FAKECUDA_REPORT_FILE=str(report),
    )
    assert out == ""
    assert json.loads(report.read_text())["calls_after_deinit"] == 0


def test_a_users_exit_hook_may_still_stop_a_timer(fake_path: Path) -> None:
    hook = """
import atexit
@atexit.register
def last():  # registered before gpuprof is imported, so it runs after all that comes later
    timer.record_end()
    print(timer.elapsed_ms() > 0)
"""
    use = """
timer = gpuprof.Timer("cuda", stream)
timer.record_start()
fake.work(stream, 1000)
"""
    assert check_python(hook + SETUP_CUDA + use, driver=fake_path).strip() == "True"


def test_a_driver_that_is_gone_is_told_apart(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        with scope as pending:
            pass
        timer = gpuprof.Timer("cuda", stream)
        timer.record_start()
        fake.deinit()
        for call in (timer.record_end, timer.elapsed_ms, lambda: gpuprof.Timer("cuda")):
            try:
                print(call())
            except gpuprof.errors.DriverGoneError as error:
                print("gone")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with scope:
                print("body runs")
        timer.close()
        """,
    )
    assert out.split("\n")[:4] == ["gone", "gone", "gone", "body runs"]


def test_a_context_destroyed_under_us_fails_what_is_pending_and_nothing_else(
    fake_path: Path,
) -> None:
    out = check_cuda(
        fake_path,
        """
        other = fake.context_create()
        lost = fake.stream_create()
        fake.set_current(context)
        fake.configure("mode=manual")
        with gpuprof.timer("lost", stream=lost) as sample:
            fake.work(lost, 1000)
        fake.destroy_context(other)
        try:
            sample.ms
        except gpuprof.errors.CudaError as error:
            print(error.name)
        fake.configure("mode=auto")
        with scope as fine:
            fake.work(stream, 1000)
        print(fine.ms > 0)
        """,
    )
    assert out.split() == ["CUDA_ERROR_CONTEXT_IS_DESTROYED", "True"]


RESET = """
def reset():
    fake.primary_reset()
    fake.set_current(fake.primary_retain())  # a touch of what was in the old one crashes now

def refused(call):
    try:
        print("value", call())
    except gpuprof.errors.CudaError as error:
        print(error.name)

warnings.simplefilter("ignore")
timer = gpuprof.Timer("cuda", stream)
"""

AFTER_A_RESET = {
    "the end of a scope": """
        with scope as sample:
            reset()
        refused(lambda: sample.ms)
    """,
    "the end of a timer": """
        timer.record_start()
        reset()
        refused(timer.record_end)
    """,
    "the reading of a timer": """
        with timer:
            fake.work(stream, 1000)
        reset()
        assert timer.ready is False
        refused(timer.elapsed_ms)
    """,
    "the end of a verified scope": """
        def verify():
            with gpuprof.timer("verified", stream=stream, verify_stream=True):
                reset()
        refused(verify)
    """,
    "the reading of a captured scope": """
        fake.begin_capture(stream)
        with gpuprof.timer("captured", stream=stream, in_capture="record") as sample:
            fake.work(stream, 1000)
        fake.graph_launch(fake.instantiate(fake.end_capture(stream)), stream)
        assert sample.ms > 0.0
        reset()
        refused(lambda: sample.ms)
    """,
    "the timings of a graph": """
        with gpuprof.capture(stream) as cap, gpuprof.timer("captured", stream=stream):
            fake.work(stream, 1000)
        cap.graph.launch(stream)
        assert cap.graph.timings()
        reset()
        refused(cap.graph.timings)
    """,
    "the collected timings of a graph": """
        with gpuprof.capture(stream, timers="collect") as cap:
            with gpuprof.timer("captured", stream=stream):
                fake.work(stream, 1000)
        cap.graph.launch(stream)
        reset()
        refused(cap.graph.timings)
    """,
    "letting a captured scope go": """
        fake.begin_capture(stream)
        scope = gpuprof.timer(stream=stream, in_capture="record")
        with scope as sample:
            fake.work(stream, 1000)
        fake.end_capture(stream)
        reset()
        refused(lambda: sample.ms)
        del sample, scope
    """,
    "letting the events go": """
        with scope as sample, timer:
            fake.work(stream, 1000)
        assert sample.ms > 0.0
        timer.close()
        reset()
        print("value" if _core._release_idle() else "CUDA_ERROR_CONTEXT_IS_DESTROYED")
        fake.call("cuCtxSynchronize")  # the new context is somebody else's, and still there
    """,
    "a scope on the default stream of a thread without a context": """
        fake.set_current(0)
        with gpuprof.timer("default", backend="cuda", stream=0) as sample:
            pass
        assert sample.ms >= 0.0
        fake.primary_reset()
        fake.primary_retain()
        with gpuprof.timer("default", backend="cuda", stream=0) as sample:
            pass
        assert sample.ms >= 0.0
        print("CUDA_ERROR_CONTEXT_IS_DESTROYED")
    """,
}


@pytest.mark.parametrize("use", AFTER_A_RESET)
def test_no_event_is_touched_after_its_context_was_reset(fake_path: Path, use: str) -> None:
    out = check_cuda(fake_path, RESET + textwrap.dedent(AFTER_A_RESET[use]))
    assert out.split() == ["CUDA_ERROR_CONTEXT_IS_DESTROYED"]


def test_a_timer_measures_again_in_the_context_that_follows_a_reset(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        RESET
        + """
timer.record_start()
reset()
refused(timer.record_end)
stream = fake.stream_create()
timer.record_start(stream)
fake.work(stream, 1_000_000)
timer.record_end()
print(round(timer.elapsed_ms()))
""",
    )
    assert out.split() == ["CUDA_ERROR_CONTEXT_IS_DESTROYED", "1"]


def test_the_primary_context_is_retained_while_events_live(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        with scope as sample:
            fake.work(stream, 1000)
        fake.primary_release()  # the framework lets go of it
        print(sample.ms > 0)
        """,
    )
    assert out.strip() == "True"


def test_a_forked_child_makes_no_driver_call(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        FORK
        + """
timer = gpuprof.Timer("cuda", stream)
timer.record_start()
with scope as pending:
    fake.work(stream, 1000)

def child():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(10):
            with scope:
                pass
    print("warnings", len(caught))
    for call in (lambda: pending.ms, timer.record_end, timer.elapsed_ms, timer.record_start,
                 lambda: gpuprof.Timer("cuda"), gpuprof.calibrate):
        try:
            print("value", call())
        except gpuprof.errors.ForkedProcessError:
            print("forked")
    timer.close()
    with gpuprof.timer("host") as sample:
        pass
    print(sample.clock, gpuprof.stats()["host"].host.count)
    gpuprof.flush()
    print("calls", fake.report()["calls_in_child"])

in_child(child)
timer.record_end()
print(pending.ms > 0, timer.elapsed_ms() > 0)
""",
    )
    lines = out.splitlines()
    assert lines[0] == "warnings 1"
    assert lines[1:7] == ["forked"] * 6
    assert lines[7:] == ["cpu 1", "calls 0", "True True"]


SCOPES_IN_CHILD = """
def child():
    @gpuprof.timer(backend="cuda")
    def step():
        return 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in "abc":
            with gpuprof.timer(name, backend="cuda") as sample:
                pass
        print(step(), sample.failed, sample.clock)
    print(len(caught), "spawn" in str(caught[0].message))
    try:
        sample.ms
    except gpuprof.errors.ForkedProcessError:
        print("forked")

in_child(child)
"""


# Without us, as torch uses CUDA: the child's cuInit answers CUDA_ERROR_NOT_INITIALIZED.
@pytest.mark.parametrize(
    "setup",
    [
        SETUP_CUDA + "with scope:\n    pass\n",
        SETUP_CUDA.replace('scope = gpuprof.timer("step", stream=stream)', ""),
    ],
    ids=["used", "used without us"],
)
def test_a_scope_that_is_made_in_a_forked_child_raises_nothing(fake_path: Path, setup: str) -> None:
    out = check_python(setup + FORK + SCOPES_IN_CHILD, driver=fake_path)
    assert out.split() == ["3", "True", "cuda", "1", "True", "forked"]


def test_a_scope_open_across_a_fork_fails_in_the_child_and_counts_in_the_parent(
    fake_path: Path,
) -> None:
    out = check_cuda(
        fake_path,
        FORK
        + """
scope.__enter__()
def child():
    warnings.simplefilter("ignore")
    scope.__exit__(None, None, None)
    print(scope.last.failed, fake.report()["calls_in_child"])
in_child(child)
scope.__exit__(None, None, None)
print(scope.last.failed, gpuprof.stats()["step"].gpu.count)
""",
    )
    assert out.split() == ["True", "0", "False", "1"]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing_works_with_every_start_method(
    fake_path: Path, tmp_path: Path, method: str
) -> None:
    script = tmp_path / "pool.py"
    script.write_text(
        f"""
import multiprocessing, os, sys, warnings
sys.path.insert(0, {str(ROOT)!r})
import gpuprof
from tests.fake_driver.control import FakeCuda

def work(number):
    warnings.simplefilter("ignore")
    with gpuprof.timer("child") as sample:
        pass
    return sample.clock

if __name__ == "__main__":
    fake = FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])
    fake.use_primary()
    with gpuprof.timer("parent", backend="cuda"):
        pass
    context = multiprocessing.get_context({method!r})
    with context.Pool(2) as pool:
        print(sorted(set(pool.map(work, range(4)))))
"""
    )
    run = f"import subprocess; subprocess.run([sys.executable, {str(script)!r}], check=True)"
    out = check_python(run, driver=fake_path)
    assert out.strip() == "['cpu']"


def test_many_objects_and_a_fork_leave_no_message(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        FORK
        + """
for _ in range(1000):
    timer = gpuprof.Timer("cuda", stream)
    timer.record_start()
    del timer
in_child(lambda: None)
print("done")
""",
    )
    assert out.strip() == "done"


def test_a_graph_of_a_dead_context_is_not_touched(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        before = fake.current_context()
        context = fake.context_create()
        other = fake.stream_create()
        with gpuprof.capture(other) as cap:
            fake.work(other, 1000)
        fake.stream_destroy(other)
        fake.context_destroy(context)
        fake.set_current(before)
        graph = cap.graph
        for use in (graph.launch, graph.upload, lambda: graph.nodes):
            try:
                use()
            except gpuprof.errors.CudaError as error:
                print(error.name)
        graph.close()
        print(graph.closed)
        """,
    )
    assert out.split() == ["CUDA_ERROR_CONTEXT_IS_DESTROYED"] * 3 + ["True"]


# What a collection beside an open capture destroys: its thread is in relaxed capture mode then.
IN_A_COLLECTION = """
import gc
gc.disable()

def make():
    dropped = Dropped()
    dropped.itself = dropped

with gpuprof.capture(stream) as cap:
    fake.work(stream, 1000)
    make()
    gc.collect()
"""


def test_a_fork_while_a_capture_is_relaxed_makes_no_call_in_the_child(fake_path: Path) -> None:
    dropped = """
child = None

class Dropped:
    def __del__(self):
        global child
        child = os.fork()
"""
    told = """
    if child == 0:
        print(fake.report()["calls_in_child"], flush=True)
        os._exit(0)
os.waitpid(child, 0)
"""
    assert check_cuda(fake_path, dropped + IN_A_COLLECTION + told) == "0\n"


def test_an_exit_while_a_capture_is_relaxed_makes_no_call_after_it_began(
    fake_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    dropped = """
import ctypes
libc = ctypes.PyDLL(None)

class Dropped:
    def __del__(self):
        libc.exit(0)
"""
    check_cuda(fake_path, dropped + IN_A_COLLECTION, FAKECUDA_REPORT_FILE=str(report))
    assert json.loads(report.read_text())["calls_after_deinit"] == 0
