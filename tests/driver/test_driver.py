"""Finding, opening and resolving the CUDA driver; each case in a process of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fake_driver.build import build
from tests.support.processes import check_python, run_python

_TRY_CUDA = """
import gpuprof
try:
    gpuprof.Timer("cuda")
    print("available")
except gpuprof.errors.CudaUnavailableError as error:
    print(error)
"""


def _answer(fake_path: Path, config: str) -> str:
    return check_python(_TRY_CUDA, driver=fake_path, FAKECUDA_CONFIG=config)


def test_a_driver_with_a_device_is_available(fake_path: Path) -> None:
    assert _answer(fake_path, "").strip() == "available"


def test_a_driver_older_than_cuda_12_is_named_as_too_old(fake_path: Path) -> None:
    text = _answer(fake_path, "driver_version=11080")
    assert "too old" in text
    assert "11.8" in text
    assert "12.0" in text


def test_a_library_without_cu_get_proc_address_is_no_driver(fake_path: Path) -> None:
    older = build(fake_path.parent, get_proc_address=False)
    assert "cuGetProcAddress_v2" in _answer(older, "")


def test_a_driver_without_a_device_says_so(fake_path: Path) -> None:
    assert "finds no device" in _answer(fake_path, "device_count=0")


def test_a_failing_initialisation_is_named(fake_path: Path) -> None:
    text = _answer(fake_path, "init=999")
    assert "cuInit" in text
    assert "CUDA_ERROR_UNKNOWN (999)" in text


def test_the_toolkits_stub_gets_a_message_of_its_own(fake_path: Path) -> None:
    assert "stub" in _answer(fake_path, "init=34")


def test_a_failure_stays_the_same_at_every_try(fake_path: Path) -> None:
    out = check_python(
        _TRY_CUDA + _TRY_CUDA.replace("import gpuprof", ""),
        driver=fake_path,
        FAKECUDA_CONFIG="device_count=0",
    )
    first, second = out.strip().splitlines()
    assert first == second


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
        "_core.require_cuda()",
        "_core.driver_info()",
        "_core.devices()",
        'gpuprof.timer("step", backend="cuda")',
    ],
)
def test_no_thread_waits_for_the_initialisation_in_another_one(call: str, fake_path: Path) -> None:
    out = check_python(
        f"""
        import os, signal, threading, time
        import gpuprof
        from gpuprof import _core
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
        print(_core.driver_info()["available"])
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
        print(gpuprof._core.driver_info()["missing"])
        try:
            gpuprof.calibrate()
        except gpuprof.errors.CudaError as error:
            print(error.call, error.name, error.detail)
        """,
        driver=fake_path,
        FAKECUDA_CONFIG="missing=cuStreamCreate",
    )
    lines = out.splitlines()
    assert lines[0] == "True"
    assert lines[1] == "['cuStreamCreate']"
    assert lines[2].startswith("cuStreamCreate CUDA_ERROR_NOT_FOUND")
    assert "no such entry point" in lines[2]


def test_elapsed_time_falls_back_to_its_older_version(fake_path: Path) -> None:
    out = check_python(
        """
        import gpuprof
        with gpuprof.timer("step", backend="cuda") as sample:
            pass
        print(sample.ms, gpuprof._core.driver_info()["missing"])
        """,
        driver=fake_path,
        FAKECUDA_CONFIG="driver_version=12020",
    )
    assert "cuEventElapsedTime" not in out
    assert float(out.split()[0]) > 0.0


def test_the_driver_in_use_is_reported(fake_path: Path) -> None:
    out = check_python(
        """
        from gpuprof import _core
        info = _core.driver_info()
        print(info["path"] == info["override"], info["path"], info["version"])
        """,
        driver=fake_path,
    )
    assert out.split() == ["True", str(fake_path), "13000"]


@pytest.fixture
def copy_of_fake(fake_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(fake_path, tmp_path / "libfakecuda.so"))


def _override_warning(path: str) -> str:
    code = "from gpuprof import _core; print(_core.driver_info()['override'])"
    done = run_python(code, GPUPROF_CUDA_DRIVER=path)
    assert done.returncode == 0
    assert done.stdout.strip() == "None"
    return done.stderr


def test_an_override_that_changed_hands_before_it_was_opened_is_not_opened(
    copy_of_fake: Path,
) -> None:
    out = check_python(
        """
        import os
        from gpuprof import _core
        assert not _core.cuda_in_use()  # looks where the driver is, and opens nothing
        os.chmod(os.environ["GPUPROF_CUDA_DRIVER"], 0o666)
        info = _core.driver_info()
        print(info["available"], info["reason"])
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


def test_a_relative_override_is_ignored_with_a_warning() -> None:
    assert "not an absolute path" in _override_warning("libfakecuda.so")


def test_an_override_that_does_not_exist_is_ignored_with_a_warning(tmp_path: Path) -> None:
    assert "no such file" in _override_warning(str(tmp_path / "nothing.so"))


def test_an_override_that_is_a_folder_is_ignored_with_a_warning(tmp_path: Path) -> None:
    assert "not a regular file" in _override_warning(str(tmp_path))
