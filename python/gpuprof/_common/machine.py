"""What a measurement ran on, as plain data that is stored beside it.

Describing never initialises CUDA and makes no context: the GPU is named only if the process already
uses CUDA. It never raises; what is not known is None.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import gpuprof._core as _core
from gpuprof._common import nvml
from gpuprof.errors import GpuprofError

FRAMEWORKS = {
    "torch": ("torch",),
    "cupy": ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"),
}
_DRIVER_FILES = (Path("/sys/module/nvidia/version"), Path("/proc/driver/nvidia/version"))
_RELEASE = re.compile(r"(?<![\d.])\d{3,}\.\d+(?:\.\d+)?(?![\d.])")
_MAX_KEY = 80


def describe(device: int | None = None) -> dict[str, Any]:
    """Describe this machine and one of its GPUs, by default the current context's, else the first.

    ``gpu`` (name), ``gpu_uuid``, ``sms``, ``cc`` ("9.0"), ``gpu_memory`` (bytes), ``driver``
    (release) and ``cuda`` (the newest that the driver knows, "13.0") are None while the process
    does not use CUDA. The others are ``torch``, ``cupy`` and ``numpy`` (installed versions, or
    None), ``python``, ``cpu`` (model), ``cpus``, ``os`` and ``gpuprof``. The caller may change it.
    """
    found = dict.fromkeys(("gpu", "gpu_uuid", "sms", "cc", "gpu_memory", "driver", "cuda"))
    with suppress(GpuprofError):  # the driver is gone or belongs to the parent process
        if _core.cuda_in_use():
            index = _core.cuda_device() if device is None else device
            found |= _gpu_of(os.getpid(), max(index, 0))
    return found | _host()


def key(machine: Mapping[str, Any]) -> str:
    """Return a file name for the kind of machine: from its GPU, else from ``cpu-`` and its CPU."""
    gpu = machine.get("gpu")
    name = str(gpu) if gpu else f"cpu-{machine.get('cpu') or 'unknown'}"
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", name)[:_MAX_KEY].strip("-.")
    return slug or "unknown"


def installed(names: Iterable[str]) -> str | None:
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def cuda_version(number: int | None) -> str:
    """Write CUDA's version number 13000 as 13.0."""
    return "of unknown version" if not number else f"{number // 1000}.{number % 1000 // 10}"


def driver_release() -> str | None:
    """Return the release of the driver's kernel module, such as 580.95.05; None if not known."""
    # Reading the files is cheap; starting NVML takes milliseconds, but it works in containers too.
    for path in _DRIVER_FILES:
        with suppress(OSError):
            release = _RELEASE.search(path.read_text(encoding="utf-8", errors="replace"))
            if release:
                return release.group()
    with suppress(Exception):  # a foreign library must not end a measurement
        return nvml.driver_release()
    return None


@functools.lru_cache(maxsize=64)
def _gpu_of(_process: int, index: int) -> dict[str, Any]:
    known = {entry["index"]: entry for entry in _core.devices()}
    if index not in known:
        return {}
    found, version = known[index], _core.driver_info()["version"]
    return {
        "gpu": found["name"],
        "gpu_uuid": found["uuid"] or None,
        "sms": found["sms"],
        "cc": ".".join(map(str, found["cc"])),
        "gpu_memory": found["total_memory"],
        "driver": driver_release(),
        "cuda": cuda_version(version) if version else None,
    }


@functools.lru_cache(maxsize=1)
def _host() -> dict[str, Any]:
    return {
        **{name: installed(names) for name, names in FRAMEWORKS.items()},
        "numpy": installed(["numpy"]),
        "python": platform.python_version(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "os": f"{platform.system()} {platform.release()}".strip(),
        "gpuprof": _core.build_info()["version"],
    }


def _cpu_model(path: Path = Path("/proc/cpuinfo")) -> str:
    """Return the CPU's name; on Arm, where Linux has no names, the codes of the core."""
    facts: dict[str, str] = {}
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            label, _, value = line.partition(":")
            if not label.strip():  # the end of the first CPU
                break
            facts[label.strip()] = value.strip()
    if facts.get("model name"):
        return facts["model name"]
    arm = [facts[label] for label in ("CPU implementer", "CPU part") if label in facts]
    return " ".join([platform.machine() or platform.processor() or "unknown", *arm])
