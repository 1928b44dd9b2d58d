"""`gpuprof.kernels` on a CUPTI that the test speaks for: from its records to rows."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import gpuprof
from tests.fake_cupti import control
from tests.fake_cupti.control import DRIVER_CALLS, RUNTIME_CALLS, FakeCupti
from tests.fake_driver.control import FakeCuda
from tests.support.processes import run_python
from tests.support.stuck_streams import busy_thread


def launch(cupti: FakeCupti, name: str, correlation: int) -> None:
    """Let this thread have launched a kernel, just now."""
    thread = threading.get_native_id()
    cupti.call(RUNTIME_CALLS, control.CUDA_LAUNCH_KERNEL, thread=thread, correlation=correlation)
    cupti.call(DRIVER_CALLS, control.CU_DEVICE_GET, thread=thread)
    cupti.kernel(name, correlation=correlation)
    time.sleep(0.0005)  # the scope around it ends later than the launch on any clock


def test_kernels_are_under_the_scopes_that_launched_them(cupti: FakeCupti) -> None:
    with gpuprof.kernels() as k:
        for number in range(3):
            with gpuprof.timer("step", backend="cpu"):
                time.sleep(0.0005)
                launch(cupti, "gemm", 2 * number + 1)
                with gpuprof.timer("tail", backend="cpu"):
                    time.sleep(0.0005)
                    launch(cupti, "add", 2 * number + 2)
    assert k.source == "CUPTI 13.0"
    assert {row.path: row.count for row in k.rows} == {"step": 6, "step/tail": 3}
    assert {total.name: total.count for total in k.by_kernel()} == {"gemm": 3, "add": 3}
    assert {record.launch for record in k.records} == {"cudaLaunchKernel"}


def test_calls_stay_on_their_thread_while_kernels_are_found_by_it(
    cupti: FakeCupti, fake: FakeCuda, stream: int
) -> None:
    def records_elsewhere() -> int:
        before = fake.calls_of_this_thread("cuEventRecord")
        for _ in range(100):
            with gpuprof.timer("step", stream=stream):
                pass
            fake.complete(stream)
        return 200 - (fake.calls_of_this_thread("cuEventRecord") - before)

    with busy_thread():
        while records_elsewhere() == 0:
            pass
        with gpuprof.kernels():
            assert records_elsewhere() == 0
        while records_elsewhere() == 0:
            pass


def test_a_profiler_of_a_torch_that_is_imported_inside_ends_the_collection(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "torch" / "autograd"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("from torch.autograd import profiler\n")
    (folder / "__init__.py").write_text("")
    (folder / "profiler.py").write_text("def _prepare_profiler(): pass\n")
    done = run_python(f"""
        import os, sys
        sys.path.insert(0, {str(tmp_path)!r})
        sys.modules["torch"] = None  # where it is installed, nothing imports it before
        import gpuprof, pytest
        from tests.support.gpu_records import Recording
        patch = pytest.MonkeyPatch()
        recording = Recording().install(patch)
        patch.setattr("gpuprof._core.require_cuda", lambda: None)
        with gpuprof.kernels() as k:
            recording.run("before")
            del sys.modules["torch"]
            import torch
            assert recording.stops == 0, recording.stops
            recording.run("after")
            torch.autograd.profiler._prepare_profiler()
            assert recording.stops == 1, recording.stops
        assert recording.stops == 1, recording.stops
        assert [each.name for each in k.records] == ["before", "after"], k.records
        assert any("ended early by a torch profiler" in note for note in k.notes), k.notes
        with gpuprof.kernels():
            if (child := os.fork()) == 0:  # it has no collection to end
                torch.autograd.profiler._prepare_profiler()
                os._exit(recording.stops)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        recording.stops = 1
        with gpuprof.kernels() as k:
            recording.run("later")
            torch.autograd.profiler._prepare_profiler()
        assert recording.stops == 2, recording.stops
    """)
    assert done.returncode == 0, done.stderr
