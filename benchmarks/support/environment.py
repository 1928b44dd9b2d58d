"""Which machine and which versions a benchmark ran with."""

from __future__ import annotations

import ctypes
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = {
    "gpuprof": ("gpuprof",),
    "torch": ("torch",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "cuda-core": ("cuda-core",),
}


def machine() -> dict[str, str | None]:
    """Return the names of GPU, driver, CPU and operating system; None for what is not there."""
    gpu, driver = _gpu_and_driver()
    return {"gpu": gpu, "driver": driver, "cpu": _cpu(), "os": _system()}


def versions() -> dict[str, str]:
    """Return the versions of Python, gpuprof and the peers that are installed."""
    found = {"python": platform.python_version()}
    for name, distributions in _PACKAGES.items():
        for distribution in distributions:
            try:
                found[name] = version(distribution)
                break
            except PackageNotFoundError:
                continue
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _gpu_and_driver() -> tuple[str | None, str | None]:
    # NVML answers without creating a CUDA context.
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None, None
    if nvml.nvmlInit_v2() != 0:
        return None, None
    size = 96
    driver = ctypes.create_string_buffer(size)
    name = ctypes.create_string_buffer(size)
    handle = ctypes.c_void_p()
    has_driver = nvml.nvmlSystemGetDriverVersion(driver, size) == 0
    has_name = (
        nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
        and nvml.nvmlDeviceGetName(handle, name, size) == 0
    )
    nvml.nvmlShutdown()
    return (
        name.value.decode("utf-8", "replace") if has_name else None,
        driver.value.decode("utf-8", "replace") if has_driver else None,
    )


def _system() -> str:
    """Return the system and its C library; the kernel's name may say whose machine it is."""
    library = " ".join(platform.libc_ver()).strip()
    return " ".join(filter(None, [platform.system(), platform.machine(), library]))
