"""The GPU's clocks while a benchmark runs, from NVML.

Without nvidia-ml-py, or for a device that NVML does not know, everything here answers "not known".
Nothing raises, and nothing makes the GPU wait. One thread uses a `Clocks` at a time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpuprof._common import nvml as common_nvml

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Clocks:
    """Reads the clocks of one device.

    Parameters
    ----------
    device_uuid
        CUDA's UUID of the device, with or without ``GPU-`` or ``MIG-`` before it. None: nothing is
        known. Of a MIG slice the whole GPU's clocks are read, which it runs on.
    """

    def __init__(self, device_uuid: str | None) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        if not device_uuid:
            return
        # The bindings reach into a foreign library; whatever goes wrong there, the benchmark runs.
        with suppress(Exception):
            self._nvml = common_nvml.opened()
            self._handle = _physical(self._nvml, device_uuid.removeprefix("GPU-"))
        if self._handle is None:
            self.close()

    def sm_mhz(self) -> float | None:
        """Return the SM clock now, in MHz; None if it is not known."""
        with suppress(Exception):
            if self._handle is not None:
                mhz = common_nvml.sm_mhz(self._nvml, self._handle)
                return float(mhz) if mhz else None
        return None

    def throttle_reasons(self) -> tuple[str, ...]:
        """Return what holds the clocks down now, in words.

        An idle GPU and clocks that somebody has set are no reasons.
        """
        return tuple(
            reason
            for reason in self._reasons() or ()
            if reason not in {common_nvml.IDLE, common_nvml.APPLICATION_CLOCKS}
        )

    @property
    def locked(self) -> bool | None:
        """Whether somebody has set the clocks; None if that is not known.

        NVML tells of application clocks (``nvidia-smi -ac``) only. It has no way to ask for locked
        ones (``nvidia-smi -lgc``), so this is True or None and never False.
        """
        return True if common_nvml.APPLICATION_CLOCKS in (self._reasons() or ()) else None

    def _reasons(self) -> list[str] | None:
        with suppress(Exception):
            if self._handle is not None:
                return common_nvml.clock_reasons(self._nvml, self._handle)
        return None

    def close(self) -> None:
        """Let go of NVML. Idempotent."""
        nvml, self._nvml, self._handle = self._nvml, None, None
        if nvml is not None:
            with suppress(Exception):
                nvml.nvmlShutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _physical(nvml: Any, uuid: str) -> Any:
    handle = common_nvml.handle_of(nvml, uuid.removeprefix("MIG-"))
    if handle is None:
        return None
    whole = common_nvml.ask(nvml, handle, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
    return handle if whole is None else whole
