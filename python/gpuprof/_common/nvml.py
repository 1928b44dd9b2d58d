"""NVIDIA's management library, NVML, through nvidia-ml-py where that is installed.

NVML needs no context and does not initialise CUDA. It counts the devices that
CUDA_VISIBLE_DEVICES hides, so a device of CUDA's is found by its UUID.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
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

_NO_COUNTER = "the GPU has no counter of its energy, as before Volta, and as MIG slices"


class NvmlUnavailable(Exception):
    """NVML cannot be used; the text says why. gpuprof always catches it."""


def opened() -> Any:
    """Return ``pynvml``, initialised, or raise `NvmlUnavailable`; needs an ``nvmlShutdown()``."""
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
    return nvml


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


@contextmanager
def energy_counter(uuid: str | None) -> Iterator[Callable[[], float]]:
    """Give what reads the energy of a whole GPU since its driver was loaded, in joules.

    `NvmlUnavailable`, from both, says why it cannot be read.
    """
    nvml = opened()
    try:
        handle = handle_of(nvml, uuid or "")
        if handle is None:
            message = f"NVML does not know the device {uuid or 'without a UUID'}"
            raise NvmlUnavailable(message)

        def joules() -> float:
            millijoules = ask(nvml, handle, "nvmlDeviceGetTotalEnergyConsumption")
            if millijoules is None:
                raise NvmlUnavailable(_NO_COUNTER)
            return float(millijoules) * 1e-3

        yield joules
    finally:
        nvml.nvmlShutdown()


def text(value: Any) -> str | None:
    """Return a text of NVML's, which older modules give as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def driver_release() -> str | None:
    """Return the driver's release, such as 580.159.04; errors are `opened`'s and NVML's."""
    nvml = opened()
    try:
        return text(nvml.nvmlSystemGetDriverVersion())
    finally:
        nvml.nvmlShutdown()
