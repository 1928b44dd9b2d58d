"""What is stored of the machine that measured: found without starting CUDA, and never an error."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof import _core
from gpuprof._common import machine as common_machine
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_python

FIELDS = {
    *("gpu", "gpu_uuid", "sms", "cc", "gpu_memory", "driver", "cuda"),
    *("torch", "cupy", "numpy", "python", "cpu", "cpus", "os", "gpuprof"),
}


@pytest.fixture(autouse=True)
def _ask_anew() -> Any:
    common_machine._gpu_of.cache_clear()
    yield
    common_machine._gpu_of.cache_clear()


def test_the_gpu_in_use_is_named(fake: FakeCuda) -> None:
    found = common_machine.describe()
    (device,) = (entry for entry in _core.devices() if entry["index"] == 0)
    assert found.keys() == FIELDS
    assert found["gpu"] == device["name"] == "Fake GPU"
    assert found["gpu_uuid"] == device["uuid"]
    assert found["sms"] == device["sms"]
    assert found["cc"] == ".".join(map(str, device["cc"]))
    assert found["gpu_memory"] == device["total_memory"]
    version = _core.driver_info()["version"]
    assert found["cuda"] == f"{version // 1000}.{version % 1000 // 10}"
    assert json.loads(json.dumps(found)) == found


def test_the_host_is_described_on_every_machine() -> None:
    found = common_machine.describe()
    assert found["python"] == platform.python_version()
    assert found["gpuprof"] == gpuprof.__version__
    assert found["cpus"] == os.cpu_count()
    assert found["os"].startswith(platform.system())
    assert found["cpu"]


def test_a_device_that_does_not_exist_is_none(fake: FakeCuda) -> None:
    assert common_machine.describe(device=99)["gpu"] is None


def test_describing_initialises_no_cuda(fake_path: Path) -> None:
    code = """
        from gpuprof import _core
        from gpuprof._common import machine as _machine
        found = _machine.describe()
        assert not _core.cuda_in_use()
        assert found["gpu"] is found["driver"] is found["cuda"] is None
        print(found["cpu"])
    """
    assert check_python(code, driver=fake_path).strip()


def test_the_gpu_is_found_once_cuda_came_into_use_after_a_first_look(fake_path: Path) -> None:
    code = """
        import os, time
        from gpuprof._common import machine as _machine
        from tests.fake_driver.control import FakeCuda
        assert _machine.describe()["gpu"] is None
        FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"]).use_primary()
        time.sleep(0.002)
        assert _machine.describe()["gpu"] == "Fake GPU"
    """
    check_python(code, driver=fake_path)


def test_the_caller_may_change_what_it_got(fake: FakeCuda) -> None:
    common_machine.describe().clear()
    assert common_machine.describe().keys() == FIELDS


def test_a_driver_that_is_gone_leaves_the_host(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise gpuprof.errors.DriverGoneError("exiting")

    monkeypatch.setattr(_core, "devices", gone)
    found = common_machine.describe()
    assert found["gpu"] is None
    assert found["cpu"]


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("580.159.04\n", "580.159.04"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86  Release Build\n"
            "GCC version: gcc version 12.3.0 (Ubuntu)\n",
            "570.86",
        ),
    ],
)
def test_the_drivers_release_is_read_where_linux_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, release: str
) -> None:
    path = tmp_path / "version"
    path.write_text(text)
    monkeypatch.setattr(common_machine, "_DRIVER_FILES", (tmp_path / "absent", path))
    assert common_machine.driver_release() == release


def test_without_those_files_nvml_knows_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuprof._common import nvml

    monkeypatch.setattr(common_machine, "_DRIVER_FILES", (tmp_path / "absent",))
    monkeypatch.setattr(nvml, "driver_release", lambda: "580.1")
    assert common_machine.driver_release() == "580.1"

    def broken() -> None:
        raise ImportError("half an installation")

    monkeypatch.setattr(nvml, "driver_release", broken)
    assert common_machine.driver_release() is None


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor : 0\nmodel name\t: A CPU @ 2 GHz\n\nmodel name : Another\n", "A CPU @ 2 GHz"),
        (
            "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n\n",
            f"{platform.machine()} 0x41 0xd4f",
        ),
        ("", platform.machine()),
    ],
)
def test_the_cpus_model_is_its_name_or_what_identifies_the_core(
    tmp_path: Path, text: str, model: str
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert common_machine._cpu_model(path) == model


@pytest.mark.parametrize(
    ("machine", "key"),
    [
        ({"gpu": "NVIDIA H200", "cpu": "x"}, "NVIDIA-H200"),
        ({"gpu": "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
        (
            {"gpu": None, "cpu": "Intel(R) Xeon(R) CPU @ 2.20GHz"},
            "cpu-Intel-R-Xeon-R-CPU-2.20GHz",
        ),
        ({}, "cpu-unknown"),
        ({"gpu": "../../etc/passwd"}, "etc-passwd"),
        ({"gpu": "a\0b/c\nd"}, "a-b-c-d"),
        ({"gpu": "..."}, "unknown"),
        ({"gpu": "é" * 9}, "unknown"),
        ({"gpu": "x" * 500}, "x" * 80),
    ],
)
def test_the_key_is_safe_as_a_file_name(machine: dict[str, Any], key: str) -> None:
    assert common_machine.key(machine) == key
