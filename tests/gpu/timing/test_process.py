"""What happens to timing when the process is interrupted, forked, ended or loses its GPU."""

from __future__ import annotations

import textwrap

import pytest

from tests.gpu.support.scripts import check_script

pytestmark = pytest.mark.gpu


def test_auto_is_the_cpu_clock_until_cuda_is_initialised() -> None:
    check_script("""
        with gpuprof.timer("before") as before:
            pass
        device()
        with gpuprof.timer("after") as after:
            pass
        assert (before.clock, after.clock) == ("cpu", "cuda"), (before.clock, after.clock)
        assert after.ms > 0.0
    """)


def test_asking_for_auto_does_not_initialise_cuda() -> None:
    check_script("""
        import ctypes
        with gpuprof.timer("before"):
            pass
        count = ctypes.c_int()
        not_initialized = 3
        code = ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count))
        assert code == not_initialized, code
    """)


def test_ctrl_c_ends_a_wait_within_half_a_second() -> None:
    check_script("""
        import os, signal, threading, time
        stream = device().stream()
        spin = Spin(device(), stream, 3000 * MILLISECOND)
        with gpuprof.timer("long", stream=stream) as sample:
            spin.launch()
        sent = []
        def interrupt():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.3, interrupt).start()
        try:
            sample.ms
        except KeyboardInterrupt:
            took = time.monotonic() - sent[0]
            assert took < 0.5, took
        else:
            raise AssertionError("the wait was not interrupted")
        # The sample outlives the interruption.
        assert sample.ms >= 2999.0, sample.ms
    """)


def test_a_program_runs_on_after_its_gpu_code_crashed_and_is_told_once() -> None:
    check_script("""
        import time, warnings
        stream = device().stream()
        scope = gpuprof.timer("body", stream=stream)
        with scope as fine:
            pass
        assert fine.ms > 0.0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with scope as crashed:
                device().launch_fault(stream)
            time.sleep(0.2)
            turns = 0
            for _ in range(1000):
                with scope:
                    turns += 1
            assert turns == 1000
        assert len(caught) == 1, [str(w.message) for w in caught]
        assert "719" in str(caught[0].message) or "LAUNCH_FAILED" in str(caught[0].message)
        for _ in range(2):
            try:
                crashed.ms
            except gpuprof.errors.CudaError as error:
                assert error.code == 719, error
            else:
                raise AssertionError("a crashed kernel has a time")
        assert fine.ms > 0.0
    """)


def test_a_scope_that_is_made_after_gpu_code_crashed_raises_nothing_and_says_it_once() -> None:
    check_script("""
        import warnings
        stream = device().stream()
        with gpuprof.timer("before", stream=stream) as crashed:
            device().launch_fault(stream)
        try:
            crashed.ms
        except gpuprof.errors.CudaError as error:
            assert error.code == 719, error
        else:
            raise AssertionError("a crashed kernel has a time")
        @gpuprof.timer(backend="cuda")
        def step():
            return 3
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for name in ("a", "b"):
                with gpuprof.timer(name, backend="cuda", stream=stream) as sample:
                    pass
            with gpuprof.timer("c", backend="cuda"):
                pass
            assert step() == 3
        assert sample.failed and sample.clock == "cuda"
        assert len(caught) == 1, [str(w.message) for w in caught]
        assert "719" in str(caught[0].message) or "LAUNCH_FAILED" in str(caught[0].message)
    """)


_SCOPES_IN_CHILD = """
        import os, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's, about forking threads
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    for name in ("a", "b", "c"):
                        with gpuprof.timer(name, backend="cuda") as sample:
                            pass
                assert sample.failed and sample.clock == "cuda"
                ours = [w for w in caught if "gpuprof" in str(w.message)]
                assert len(ours) == 1 and "spawn" in str(ours[0].message)
                try:
                    sample.ms
                except gpuprof.errors.ForkedProcessError:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with gpuprof.timer("parent", backend="cuda") as sample:
            pass
        assert sample.ms >= 0.0
"""


def test_a_scope_that_is_made_in_a_forked_child_raises_nothing() -> None:
    check_script(
        """
        with gpuprof.timer("before", stream=device().stream(), backend="cuda") as sample:
            pass
        assert sample.ms >= 0.0
        """
        + _SCOPES_IN_CHILD
    )


def test_a_scope_in_a_child_of_a_process_that_used_cuda_without_us_raises_nothing() -> None:
    check_script("device()\n" + textwrap.dedent(_SCOPES_IN_CHILD))


def test_timing_goes_on_in_the_context_that_follows_a_reset() -> None:
    check_script("""
        import warnings
        stream = device().stream()
        with gpuprof.timer("old", stream=stream) as read:
            pass
        assert read.ms > 0.0
        with gpuprof.timer("old", stream=stream) as unread:
            pass
        device().synchronize()
        device().reset()
        fresh = kernels.Device()
        stream = fresh.stream()
        spin = Spin(fresh, stream, 2 * MILLISECOND)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(100):
                with gpuprof.timer("new", stream=stream) as sample:
                    spin.launch()
            assert abs(sample.ms - spin.milliseconds()) < 0.05, sample.ms
            try:
                unread.ms
            except gpuprof.errors.GpuprofError:
                pass
            else:
                raise AssertionError("a time came out of a destroyed context")
        assert read.ms > 0.0
    """)


_RESET = """
import ctypes, warnings
warnings.simplefilter("ignore")
stream = device().stream()
spin = Spin(device(), stream, MILLISECOND)
timer = gpuprof.Timer("cuda", stream)

def reset():
    device().synchronize()
    device().reset()
    kernels.Device()  # makes the context again, where a touch of an old event crashes

def refused(call):
    try:
        value = call()
    except gpuprof.errors.CudaError as error:
        assert error.code == 709, error
    else:
        raise AssertionError(value)

def captured():
    device().call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), ctypes.c_int(1))
    with gpuprof.timer("captured", stream=stream, in_capture="record") as sample:
        spin.launch()
    graph = ctypes.c_void_p()
    device().call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
    return sample, graph
"""

_AFTER_A_RESET = {
    "the end of a scope": """
        with gpuprof.timer("open", stream=stream) as sample:
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
            spin.launch()
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
        sample, graph = captured()
        launched = ctypes.c_void_p()
        device().call(
            "cuGraphInstantiateWithFlags", ctypes.byref(launched), graph, ctypes.c_uint64(0)
        )
        device().call("cuGraphLaunch", launched, ctypes.c_void_p(stream))
        assert sample.ms > 0.0
        reset()
        refused(lambda: sample.ms)
    """,
    "the timings of a graph": """
        with gpuprof.capture(stream) as cap, gpuprof.timer("captured", stream=stream):
            spin.launch()
        cap.graph.launch(stream)
        assert cap.graph.timings()
        reset()
        refused(cap.graph.timings)
    """,
    "letting a captured scope go": """
        sample, _ = captured()
        reset()
        del sample
    """,
    "letting all events go": """
        with timer:
            spin.launch()
        assert timer.elapsed_ms() > 0.0
        timer.close()
        reset()
        gpuprof._core._release_idle()
        device().synchronize()
    """,
}


@pytest.mark.parametrize("use", _AFTER_A_RESET)
def test_no_event_is_touched_after_its_context_was_reset(use: str) -> None:
    check_script(_RESET + textwrap.dedent(_AFTER_A_RESET[use]))


def test_a_forked_child_runs_on_without_measuring_and_the_parent_still_measures() -> None:
    check_script("""
        import os, warnings
        stream = device().stream()
        scope = gpuprof.timer("shared", stream=stream, backend="cuda")
        with scope as inherited:
            pass
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's, about forking threads
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    for _ in range(100):
                        with scope:
                            pass
                ours = [w for w in caught if "gpuprof" in str(w.message)]
                assert len(ours) == 1, [str(w.message) for w in caught]
                try:
                    inherited.ms
                except gpuprof.errors.ForkedProcessError:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        spin = Spin(device(), stream, MILLISECOND)
        ahead = Spin(device(), stream, 5 * MILLISECOND)  # so that the host is not what is measured
        ahead.launch()
        with scope as sample:
            spin.launch()
        assert abs(sample.ms - spin.milliseconds()) < 0.05
        assert inherited.ms > 0.0
    """)


def test_a_program_may_end_while_work_is_pending() -> None:
    check_script("""
        stream = device().stream()
        spin = Spin(device(), stream, 500 * MILLISECOND)
        kept = []
        for _ in range(3):
            with gpuprof.timer("pending", stream=stream) as sample:
                spin.launch()
            kept.append(sample)
        timer = gpuprof.Timer("cuda", stream=stream)
        timer.record_start()
        probe = gpuprof.start_probe_timer_if(True, stream=stream)
    """)


def test_a_daemon_thread_may_wait_for_a_reading_at_exit() -> None:
    check_script("""
        import threading, time
        stream = device().stream()
        spin = Spin(device(), stream, 1500 * MILLISECOND)
        with gpuprof.timer("pending", stream=stream) as sample:
            spin.launch()
        threading.Thread(target=lambda: sample.ms, daemon=True).start()
        time.sleep(0.1)
    """)
