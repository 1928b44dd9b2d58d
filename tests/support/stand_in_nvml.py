"""As much of NVML as is asked of it."""

from __future__ import annotations

import types
from collections.abc import Callable


class FakeNvml(types.ModuleType):
    """As much of ``pynvml`` as is asked: one GPU, and a MIG slice of it that has no clocks."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.is_open = 0
        self.reasons = 0
        self.mhz = 1980
        self.uuid = "12-34"
        self.millijoules: Callable[[], int] | None = None  # of the whole GPU
        self.fault: Exception | None = None

    def nvmlInit(self) -> None:
        if self.fault:
            raise self.fault
        self.is_open += 1

    def nvmlShutdown(self) -> None:
        self.is_open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in {f"GPU-{self.uuid}", "MIG-56"}:
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:
        if not handle.startswith("MIG-"):
            raise self.NVMLError("no slice")
        return f"GPU-{self.uuid}"

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:
        if self.fault:
            raise self.fault
        assert (handle, which) == (f"GPU-{self.uuid}", self.NVML_CLOCK_SM)
        return self.mhz

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        if self.fault:
            raise self.fault
        assert handle == f"GPU-{self.uuid}"
        return self.reasons

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        if self.millijoules is None:
            raise self.NVMLError("Not Supported")
        assert handle == f"GPU-{self.uuid}"
        return self.millijoules()
