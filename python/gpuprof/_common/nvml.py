"""NVIDIA's management library, NVML, through nvidia-ml-py where that is installed.

NVML needs no context and does not initialise CUDA. It counts the devices that
CUDA_VISIBLE_DEVICES hides, so a device of CUDA's is found by its UUID.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

# The bits of NVML's clocks event reasons, which older headers call throttle reasons.
_CLOCK_REASONS = {
    0x001: "idle",
    0x002: "application clocks setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clock setting",
    0x200: "board limit",
    0x400: "reliability",
}
IDLE, APPLICATION_CLOCKS = _CLOCK_REASONS[0x001], _CLOCK_REASONS[0x002]


class NvmlUnavailable(Exception):
    """NVML cannot be used; the text says why. gpuprof always catches it."""


@contextmanager
def session() -> Iterator[Any]:
    """Give ``pynvml``, which is initialised for the block, or raise `NvmlUnavailable`."""
    try:
        with warnings.catch_warnings():
            # An old package of the same import name warns that it is not nvidia-ml-py.
            warnings.simplefilter("ignore")
            nvml = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        message = "nvidia-ml-py is not installed: pip install nvidia-ml-py"
        raise NvmlUnavailable(message) from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NvmlUnavailable(str(error)) from error
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def handle_of(nvml: Any, uuid: str) -> Any:
    """Return NVML's handle of the device with CUDA's `uuid`; None if NVML does not know it."""
    uuid = uuid.removeprefix("GPU-").removeprefix("MIG-")
    for prefix in ("GPU-", "MIG-"):
        with suppress(nvml.NVMLError):
            return nvml.nvmlDeviceGetHandleByUUID(f"{prefix}{uuid}")
    return None


def ask(nvml: Any, handle: Any, *names: str, arguments: tuple[Any, ...] = ()) -> Any:
    """Call functions until one works, for modules and devices lack some; None if none does."""
    for name in names:
        with suppress(AttributeError, nvml.NVMLError):
            return getattr(nvml, name)(handle, *arguments)
    return None


def sm_mhz(nvml: Any, handle: Any) -> int | None:
    mhz: int | None = ask(
        nvml, handle, "nvmlDeviceGetClockInfo", arguments=(getattr(nvml, "NVML_CLOCK_SM", 1),)
    )
    return mhz


def clock_reasons(nvml: Any, handle: Any) -> list[str] | None:
    """Return what limits the clocks now, in words; None if the device does not report it."""
    bits = ask(
        nvml,
        handle,
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    )
    if bits is None:
        return None
    known = [name for bit, name in _CLOCK_REASONS.items() if int(bits) & bit]
    rest = int(bits) & ~sum(_CLOCK_REASONS)
    return [*known, f"{rest:#x}"] if rest else known


def text(value: Any) -> str | None:
    """Return a text of NVML's, which older modules give as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def driver_release() -> str | None:
    """Return the driver's release, such as 580.159.04; errors are `session`'s and NVML's."""
    with session() as nvml:
        return text(nvml.nvmlSystemGetDriverVersion())
