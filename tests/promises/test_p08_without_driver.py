"""P8: without a driver every name exists and says what it cannot do."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

import pytest

from tests.support.processes import check_python


@pytest.fixture
def no_driver(tmp_path: Path) -> Path:
    """A driver that cannot be opened, also on a machine that has one."""
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(b"")
    path.chmod(0o600)
    return path


def test_every_public_name_exists(no_driver: Path) -> None:
    out = check_python(
        """
        import gpuprof
        print([name for name in gpuprof._MODULE_OF if getattr(gpuprof, name, None) is None])
        """,
        driver=no_driver,
    )
    assert out.strip() == "[]"


def test_scopes_measure_the_cpu_clock_with_a_stream_too(no_driver: Path) -> None:
    out = check_python(
        """
        import gpuprof
        for options in ({}, {"stream": 0}):
            with gpuprof.timer("step", **options) as sample:
                pass
            print(sample.clock, sample.ms > 0, gpuprof.stats()["step"].host.count)
        """,
        driver=no_driver,
    )
    assert out.split() == ["cpu", "True", "1", "cpu", "True", "2"]


@pytest.mark.parametrize(
    "call",
    [
        "gpuprof.timer('x', backend='cuda')",
        "gpuprof.Timer('cuda')",
        "gpuprof.start_probe_timer_if(True, backend='cuda')",
        "gpuprof.calibrate()",
    ],
)
def test_what_needs_cuda_says_why_there_is_none(no_driver: Path, call: str) -> None:
    out = check_python(
        f"""
        import gpuprof
        try:
            {call}
        except gpuprof.errors.CudaUnavailableError as error:
            print(error)
        """,
        driver=no_driver,
    )
    assert str(no_driver) in out
    assert "cannot be opened" in out


def test_backends_and_availability_answer(no_driver: Path) -> None:
    out = check_python(
        """
        import gpuprof
        print(gpuprof.cuda_available(), gpuprof.backends()["cuda"].available)
        print(gpuprof.backends()["cuda"].reason)
        """,
        driver=no_driver,
    )
    assert out.splitlines()[0] == "False False"
    assert "cannot be opened" in out


def test_a_machine_without_a_driver_is_told_once_what_was_tried_and_what_to_do() -> None:
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        pytest.skip("this machine has a GPU's driver")
    out = check_python(
        """
        import gpuprof, os, sys
        try:
            gpuprof.Timer("cuda")
        except gpuprof.CudaUnavailableError as error:
            print(error)
        """
    )
    assert out.count("libcuda.so.1") in (1, 2)  # also in the folder of WSL
    assert out.count("o such file") == 1
    assert "Install NVIDIA's driver" in out
    assert "--gpus all" in out
