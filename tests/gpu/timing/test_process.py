"""Timing before CUDA is in use, after a crash of GPU code, in a forked child, and at the end."""

from __future__ import annotations

from tests.gpu.support.scripts import check_script


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
