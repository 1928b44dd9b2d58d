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


def test_launches_stay_on_their_thread_while_kernels_are_found_by_it(
    cupti: FakeCupti, fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream) as cap:
        fake.work(stream, 500)

    def launches_elsewhere() -> int:
        before = fake.calls_of_this_thread("cuGraphLaunch")
        for _ in range(100):
            cap.graph.launch(stream)
            fake.complete(stream)
        return 100 - (fake.calls_of_this_thread("cuGraphLaunch") - before)

    with busy_thread():
        while launches_elsewhere() == 0:
            pass
        with gpuprof.kernels():
            assert launches_elsewhere() == 0
        while launches_elsewhere() == 0:
            pass
    cap.graph.close()


def test_the_import_of_torch_ends_the_collection(tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text("from torch import profiler\n")
    (folder / "profiler.py").write_text("")
    done = run_python(
        f"""
        import sys
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
            assert recording.stops == [True], recording.stops
            recording.run("after")
        assert recording.stops == [True], recording.stops
        assert [each.name for each in k.records] == ["before"], k.records
        (note,) = [note for note in k.notes if "torch was imported" in note]
        assert "import torch before the block" in note
        with gpuprof.kernels() as k:
            recording.run("later")
        assert recording.stops == [True, True], recording.stops
        """
    )
    assert done.returncode == 0, done.stderr
