"""``gpuprof info``: what this machine offers, and what gpuprof makes of it.

Nothing here fails: where something cannot be found out, the reason stands in its place. It
initialises CUDA, and NVML where nvidia-ml-py is installed, but makes no context.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import warnings
from collections.abc import Callable
from typing import Any

import gpuprof._core as _core
from gpuprof._cli.command import Answer, printed
from gpuprof._common import nvml as common_nvml
from gpuprof._common.machine import FRAMEWORKS, cuda_version, installed
from gpuprof._common.records import head
from gpuprof._common.units import byte_size
from gpuprof._display.records import Records
from gpuprof._display.table import aligned
from gpuprof._timing.backends import backends

_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "GPUPROF_CUDA_DRIVER",
    "GPUPROF_DISABLE",
    "GPUPROF_BUDGET",
    "GPUPROF_HANG_S",
    "GPUPROF_NVTX",
    "GPUPROF_RELEASE_GIL",
    "GPUPROF_TRACE_BUFFER_MIB",
    "GPUPROF_TRACE_OUT",
)
_BYTES = {"total_memory", "l2_bytes"}


def run(options: argparse.Namespace) -> Answer:
    found = collect()
    entries = _entries(found)
    text = "\n".join([*aligned(entries), ""])
    records = Records(("what", "found"), entries)
    return Answer(printed(options.format, found, lambda: text, lambda: records))


def collect() -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        driver = _or_reason(lambda: dict(_core.driver_info()))
        devices = _or_reason(_devices) if driver.get("available") else []
        known = devices if isinstance(devices, list) else []
        found = {
            **head("gpuprof-info"),
            "gpuprof": _or_reason(lambda: dict(_core.build_info())),
            "python": {
                "version": platform.python_version(),
                "implementation": platform.python_implementation(),
                "gil": bool(getattr(sys, "_is_gil_enabled", lambda: True)()),
                "platform": platform.platform(),
            },
            "driver": driver,
            "devices": devices,
            "nvml": _or_reason(lambda: _nvml_section(known)),
            "backends": _or_reason(
                lambda: {name: each.to_dict() for name, each in backends().items()}
            ),
            "frameworks": {name: installed(names) for name, names in FRAMEWORKS.items()},
            "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        }
    found["warnings"] = list(dict.fromkeys(str(warning.message) for warning in caught))
    return found


def _or_reason(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except Exception as error:  # show the other sections all the same
        return {"unknown": f"{type(error).__name__}: {error}"}


def _devices() -> list[dict[str, Any]]:
    return [{**device, "cc": list(device["cc"])} for device in _core.devices()]


def _nvml_section(devices: list[dict[str, Any]]) -> dict[str, Any]:
    try:
        with common_nvml.session() as nvml:
            handles = [
                (device["index"], common_nvml.handle_of(nvml, device["uuid"])) for device in devices
            ]
            if not devices:
                handles = [
                    (index, nvml.nvmlDeviceGetHandleByIndex(index))
                    for index in range(nvml.nvmlDeviceGetCount())
                ]
            return {
                "available": True,
                "driver_release": common_nvml.text(nvml.nvmlSystemGetDriverVersion()),
                "devices": [
                    {"index": index, **_nvml_device(nvml, handle)}
                    for index, handle in handles
                    if handle is not None
                ],
            }
    except common_nvml.NvmlUnavailable as error:
        return {"available": False, "reason": str(error)}


def _nvml_device(nvml: Any, handle: Any) -> dict[str, Any]:
    def clock(name: str, which: Any) -> Any:
        return common_nvml.ask(nvml, handle, name, arguments=(which,))

    mig = common_nvml.ask(nvml, handle, "nvmlDeviceGetMigMode")
    return {
        "name": common_nvml.text(common_nvml.ask(nvml, handle, "nvmlDeviceGetName")),
        "sm_mhz": common_nvml.sm_mhz(nvml, handle),
        "sm_max_mhz": clock("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        "memory_mhz": clock("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "clock_reasons": common_nvml.clock_reasons(nvml, handle),
        "mig": None if mig is None else bool(mig[0]),
    }


def _entries(info: dict[str, Any]) -> list[tuple[str, str]]:
    driver = info["driver"]
    if "version" in driver:
        info = {**info, "driver": {**driver, "version": cuda_version(driver["version"])}}
    sections = {name: each for name, each in info.items() if name not in {"format", "version"}}
    return [line for name, section in sections.items() for line in _lines_of(name, section)]


def _lines_of(heading: str, found: Any) -> list[tuple[str, str]]:
    """Return a line with what a section says itself, and one for each of its parts."""
    if isinstance(found, list) and all(isinstance(each, dict) for each in found):
        parts = {str(each["index"]): each for each in found}
        return _lines_of(heading, parts) if parts else [(heading, "none")]
    if not isinstance(found, dict):
        return [(heading, _text(found))]
    plain, lines = [], []
    for name, value in found.items():
        if isinstance(value, dict) or name == "devices":
            lines += _lines_of(f"{heading} {name}", value)
        else:
            written = byte_size(value) if name in _BYTES else _text(value)
            plain.append(f"{name.replace('_', ' ')}: {written}")
    return [(heading, "; ".join(plain)), *lines] if plain else lines


def _text(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
