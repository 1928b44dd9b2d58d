"""Finding, opening and resolving the CUDA driver; each case in a process of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.fake_driver.build import compiler, run
from tests.support.processes import check_python, run_python

_TRY_CUDA = """
import gpuprof
try:
    gpuprof.Timer("cuda")
    print("available")
except gpuprof.errors.CudaUnavailableError as error:
    print(error)
"""


def _missing(driver: Path, config: str) -> Any:
    """Return which entry points ``gpuprof info`` says the driver is without."""
    code = (
        "from tests.support.benchmark_results import command; command('info', '--format', 'json')"
    )
    out = check_python(code, driver=driver, FAKECUDA_CONFIG=config)
    return json.loads(out)["driver"]["missing"]


def _answer(fake_path: Path, config: str) -> str:
    return check_python(_TRY_CUDA, driver=fake_path, FAKECUDA_CONFIG=config)


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ("", ["available"]),
        ("driver_version=11080", ["too old", "11.8", "12.0"]),
        ("device_count=0", ["finds no device"]),
        ("init=999", ["cuInit", "CUDA_ERROR_UNKNOWN (999)"]),
        ("init=34", ["stub"]),
    ],
)
def test_a_driver_is_available_or_it_is_said_why_not(
    fake_path: Path, config: str, parts: list[str]
) -> None:
    text = _answer(fake_path, config)
    assert [part for part in parts if part not in text] == []


def test_a_library_without_cu_get_proc_address_is_no_driver(tmp_path: Path) -> None:
    empty = tmp_path / "libcuda.so.1"
    run([compiler(), "-shared", "-x", "c", "/dev/null", "-o", str(empty)])
    empty.chmod(0o755)
    assert "cuGetProcAddress_v2" in _answer(empty, "")


@pytest.mark.parametrize("answer", ["SYSTEM_NOT_READY (802)", "OUT_OF_MEMORY (2)", "UNKNOWN (999)"])
def test_a_system_that_was_not_ready_is_asked_again(fake_path: Path, answer: str) -> None:
    out = check_python(
        _TRY_CUDA
        + """
import os
from tests.fake_driver.control import FakeCuda
FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"]).configure("init=0")
gpuprof.Timer("cuda")
print(gpuprof.cuda_available(), gpuprof.backends()["cuda"].available)
""",
        driver=fake_path,
        FAKECUDA_CONFIG=f"init={answer.split('(')[1][:-1]}",
    )
    first, second = out.strip().splitlines()
    assert f"cuInit failed: CUDA_ERROR_{answer}" in first
    assert second == "True True"


@pytest.mark.parametrize(
    "call",
    [
        'gpuprof.Timer("cuda")',
        "gpuprof.cuda_available()",
        "gpuprof.calibrate()",
        "gpuprof.backends()",
        'gpuprof.timer("step", backend="cuda")',
    ],
)
def test_no_thread_waits_for_the_initialisation_in_another_one(call: str, fake_path: Path) -> None:
    out = check_python(
        f"""
        import os, signal, threading, time
        import gpuprof
        from tests.fake_driver.control import FakeCuda
        signal.alarm(20)  # ends the process where the interpreter lock is kept
        fake = FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])
        fake.script("cuInit@1=0:block")
        thread = threading.Thread(target=lambda: {call})
        thread.start()
        while not fake.report()["blocked_calls"]:
            time.sleep(0.001)
        fake.release()
        thread.join()
        print(gpuprof.cuda_available())
        """,
        driver=fake_path,
    )
    assert out == "True\n"


def test_a_missing_entry_point_is_named_when_it_is_used_and_not_before(fake_path: Path) -> None:
    out = check_python(
        """
        import gpuprof
        with gpuprof.timer("step", backend="cuda") as sample:
            pass
        print(sample.ms >= 0.0)
        try:
            gpuprof.calibrate()
        except gpuprof.errors.CudaError as error:
            print(error.call, error.name, error.detail)
        """,
        driver=fake_path,
        FAKECUDA_CONFIG="missing=cuStreamCreate",
    )
    first, second = out.splitlines()
    assert first == "True"
    assert second.startswith("cuStreamCreate CUDA_ERROR_NOT_FOUND")
    assert "no such entry point" in second
    assert _missing(fake_path, "missing=cuStreamCreate") == ["cuStreamCreate"]


def test_elapsed_time_falls_back_to_its_older_version(fake_path: Path) -> None:
    out = check_python(
        """
        import gpuprof
        with gpuprof.timer("step", backend="cuda") as sample:
            pass
        print(sample.ms)
        """,
        driver=fake_path,
        FAKECUDA_CONFIG="driver_version=12020",
    )
    assert float(out) > 0.0
    assert "cuEventElapsedTime" not in _missing(fake_path, "driver_version=12020")


@pytest.fixture
def copy_of_fake(fake_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(fake_path, tmp_path / "libfakecuda.so"))


def _override_warning(path: str) -> str:
    code = "import gpuprof; print(gpuprof.backends()['cuda'].reason)"
    done = run_python(code, GPUPROF_CUDA_DRIVER=path)
    assert done.returncode == 0
    assert path not in done.stdout
    return done.stderr


def test_an_override_that_changed_hands_before_it_was_opened_is_not_opened(
    copy_of_fake: Path,
) -> None:
    out = check_python(
        """
        import os
        import gpuprof
        with gpuprof.timer("step"):  # looks where the driver is, and opens nothing
            pass
        os.chmod(os.environ["GPUPROF_CUDA_DRIVER"], 0o666)
        print(gpuprof.cuda_available(), gpuprof.backends()["cuda"].reason)
        """,
        driver=copy_of_fake,
    )
    assert out.startswith("False ")
    assert "others than its owner can write it" in out


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_an_override_that_others_can_write_is_ignored_with_a_warning(
    copy_of_fake: Path, mode: int
) -> None:
    copy_of_fake.chmod(mode)
    assert "others than its owner can write it" in _override_warning(str(copy_of_fake))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("libfakecuda.so", "not an absolute path"),
        ("{}/nothing.so", "no such file"),
        ("{}", "not a regular file"),
    ],
)
def test_an_override_that_is_no_file_is_ignored_with_a_warning(
    tmp_path: Path, path: str, why: str
) -> None:
    assert why in _override_warning(path.format(tmp_path))
