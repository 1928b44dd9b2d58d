"""``gpuprof info``: what this machine offers, and what gpuprof makes of it.

Nothing here fails: where something cannot be found out, the reason stands in its place. It
initialises CUDA, and NVML where nvidia-ml-py is installed, but makes no context.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable
from typing import Any

import gpuprof._core as _core
from gpuprof._cli.command import Answer, records_text
from gpuprof._common import nvml as common_nvml
from gpuprof._common import peaks as common_peaks
from gpuprof._common.instructions import reason_of
from gpuprof._common.machine import FRAMEWORKS, cuda_version, driver_release, installed
from gpuprof._common.units import byte_size, rate
from gpuprof._display.records import Records
from gpuprof._display.table import aligned
from gpuprof._timing.backends import backends

FORMAT = "gpuprof-info"
VERSION = 1

_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "GPUPROF_CUDA_DRIVER",
    "GPUPROF_DISABLE",
    "GPUPROF_NVTX",
    "GPUPROF_RELEASE_GIL",
    "GPUPROF_TRACE_BUFFER_MIB",
    "GPUPROF_TRACE_OUT",
)


def run(options: argparse.Namespace) -> Answer:
    """Return what to print: what there is, or what was measured."""
    if options.peaks:
        from gpuprof._cli import peaks

        return peaks.run(options.format)
    found = collect()
    if options.format == "json":
        return Answer(json.dumps(found, indent=2) + "\n")
    if options.format == "text":
        return Answer("\n".join([*aligned(_entries(found)), ""]))
    return Answer(records_text(Records(("what", "found"), _entries(found)), options.format))


def collect() -> dict[str, Any]:
    """Gather everything as plain, JSON-serialisable data."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        driver = _or_reason(lambda: dict(_core.driver_info()))
        devices = _or_reason(_devices) if driver.get("available") else []
        known = devices if isinstance(devices, list) else []
        found = {
            "format": FORMAT,
            "version": VERSION,
            "gpuprof": _or_reason(lambda: dict(_core.build_info())),
            "python": _python(),
            "instructions": _or_reason(_instructions),
            "driver": driver,
            "devices": devices,
            "nvml": _or_reason(lambda: _nvml_section(known)),
            "peaks": _or_reason(lambda: _peaks(known)),
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


def _peaks(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the stored peaks of each device that has any."""
    release = driver_release() if devices else None
    found = []
    for device in devices:
        facts = {"gpu": device["name"], "gpu_memory": device["total_memory"], "driver": release}
        peaks = common_peaks.peaks_of(facts)
        if peaks is not None:
            found.append({"index": device["index"], **peaks.to_dict()})
    return found


def _python() -> dict[str, Any]:
    gil = getattr(sys, "_is_gil_enabled", None)
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "gil": True if gil is None else bool(gil()),
        "platform": platform.platform(),
    }


def _instructions() -> dict[str, Any]:
    counter = _core._InstructionCounter()
    counter.close()
    reason = reason_of(counter.error) if counter.error else ""
    return {"available": not reason, "reason": reason}


def _nvml_section(devices: list[dict[str, Any]]) -> dict[str, Any]:
    try:
        nvml = common_nvml.opened()
    except common_nvml.NvmlUnavailable as error:
        return {"available": False, "reason": str(error)}
    try:
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
    finally:
        nvml.nvmlShutdown()


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
    driver, devices = info["driver"], info["devices"]
    sections: dict[str, tuple[Any, Callable[[Any], list[tuple[str, str]]]]] = {
        "gpuprof": (info["gpuprof"], _build_lines),
        "python": (info["python"], _python_lines),
        "instructions": (info["instructions"], _instruction_lines),
        "driver": (driver, _driver_lines),
        "devices": (devices, _device_lines),
        "clocks": (info["nvml"], _nvml_lines),
        "peaks": (info["peaks"], lambda peaks: _peak_lines(peaks, devices)),
        "backends": (info["backends"], lambda found: _backend_lines(found, driver)),
    }
    lines = []
    for name, (section, lines_of) in sections.items():
        is_known = not isinstance(section, dict) or "unknown" not in section
        lines += lines_of(section) if is_known else [(name, f"not known: {section['unknown']}")]
    return [
        *lines,
        *((name, version or "not installed") for name, version in info["frameworks"].items()),
        *info["environment"].items(),
        *(("warning", text) for text in info["warnings"]),
    ]


def _build_lines(build: dict[str, Any]) -> list[tuple[str, str]]:
    headers = f"CUDA headers {build['cuda_headers']}, compiler {build['compiler']}"
    return [("gpuprof", f"{build['version']} ({headers})")]


def _python_lines(python: dict[str, Any]) -> list[tuple[str, str]]:
    gil = "" if python["gil"] else ", free-threaded"
    text = f"{python['version']} ({python['implementation']}{gil}, {python['platform']})"
    return [("python", text)]


def _instruction_lines(counter: dict[str, Any]) -> list[tuple[str, str]]:
    text = "counted by benchmarks on the CPU's clock"
    return [("instructions", f"not counted: {counter['reason']}" if counter["reason"] else text)]


def _driver_lines(driver: dict[str, Any]) -> list[tuple[str, str]]:
    version = cuda_version(driver["version"])
    loaded = f"{driver['path']}, CUDA {version}" if driver["path"] else "none"
    found = [("driver", loaded)]
    if not driver["available"]:
        found.append(("driver: why not", driver["reason"]))
        found.append(("driver: tried", ", ".join(driver["tried"])))
    if driver["override"]:
        found.append(("driver: override", f"GPUPROF_CUDA_DRIVER={driver['override']}"))
    if driver["missing"]:
        found.append(("driver: missing entries", ", ".join(driver["missing"])))
    return found


def _device_lines(devices: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (
            f"device {device['index']}",
            f"{device['name']}, {byte_size(device['total_memory'])}, compute capability "
            f"{'.'.join(map(str, device['cc']))}, {device['sms']} multiprocessors, "
            f"UUID {device['uuid'] or 'not known'}",
        )
        for device in devices
    ] or [("devices", "none")]


def _nvml_lines(nvml: dict[str, Any]) -> list[tuple[str, str]]:
    if not nvml["available"]:
        return [("clocks", f"not known: {nvml['reason']}")]
    return [
        ("driver release", str(nvml["driver_release"])),
        *((f"clocks {device['index']}", _clock_line(device)) for device in nvml["devices"]),
    ]


def _clock_line(device: dict[str, Any]) -> str:
    def mhz(key: str) -> str:
        return "not known" if device[key] is None else f"{device[key]} MHz"

    reasons = device["clock_reasons"]
    held = "not known" if reasons is None else ", ".join(reasons) or "nothing"
    mig = {None: "not known", True: "on", False: "off"}[device["mig"]]
    return (
        f"SM {mhz('sm_mhz')} of at most {mhz('sm_max_mhz')}, memory {mhz('memory_mhz')}, "
        f"held back by: {held}, MIG: {mig}"
    )


def _peak_lines(peaks: list[dict[str, Any]], devices: Any) -> list[tuple[str, str]]:
    if not peaks:
        has_gpu = bool(devices) and isinstance(devices, list)
        return [("peaks", "not measured: run `gpuprof info --peaks` once")] if has_gpu else []
    lines = []
    for each in peaks:
        rates = [f"memory {rate(each['bytes_per_s'], 'B')}"] if each["bytes_per_s"] else []
        rates += [f"{name} {rate(value, 'FLOP')}" for name, value in each["flops"].items()]
        text = f"{', '.join(rates)}, {each['source']} {each['date']}"
        lines.append((f"peaks {each['index']}", text))
    return lines


def _backend_lines(backends: dict[str, Any], driver: dict[str, Any]) -> list[tuple[str, str]]:
    lines = []
    for name, entry in backends.items():
        told = not entry["available"] and entry["reason"] == driver.get("reason")
        reason = "see the driver above" if told else entry["reason"]
        lines.append((f"backend {name}", f"{'yes' if entry['available'] else 'no'}: {reason}"))
    return lines
