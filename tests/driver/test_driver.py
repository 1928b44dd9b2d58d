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


def test_a_library_without_cu_get_proc_address_is_no_driver(fake_path: Path) -> None:
    older = build(fake_path.parent, get_proc_address=False)
    assert "cuGetProcAddress_v2" in _answer(older, "")


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
