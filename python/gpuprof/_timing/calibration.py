"""What an empty interval reads on a device, and the step of its event clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.records import Record, in_results
from gpuprof._display.shown import Shown
from gpuprof._display.table import Table


@in_results
@dataclass(frozen=True)
class Calibration(Shown, Record):
    """What an empty interval reads on a device.

    Attributes
    ----------
    device : int
        The device's index.
    tick_ns : float
        The step of the GPU's event clock: the greatest common divisor of all readings.
    idle_ns : float
        Median of an event pair with nothing between, on an idle stream.
    queued_ns : float or None
        The same recorded while the stream is held back; None where the device cannot.
    pairs : int
        How many pairs were read for each figure.
    method : str
        How it was measured, in words.
    """

    device: int
    tick_ns: float
    idle_ns: float
    queued_ns: float | None
    pairs: int
    method: str

    def _table(self) -> Table:
        lines = [(name, str(value)) for name, value in self.to_dict().items()]
        return Table(("figure", "value"), lines, {"figure", "value"})


def calibrate(device: int | None = None) -> Calibration:
    """Measure the tick of the GPU's clock and what an empty interval reads.

    Parameters
    ----------
    device : int, optional
        The device's index; None is the current one, else device 0.

    Returns
    -------
    Calibration
        In nanoseconds.

    Raises
    ------
    CudaUnavailableError
        There is no usable driver or device.
    CudaError
        The driver failed.
    """
    if device is not None:
        device = checks.whole("device", device, least=0)
    found = _core.calibrate(max(_core.cuda_device(), 0) if device is None else device)
    queued = None if math.isnan(found["queued_ns"]) else found["queued_ns"]
    gate = "no gate on this device" if queued is None else "behind a closed cuStreamWaitValue32"
    method = (
        f"{found['pairs']} event pairs with nothing between on a non-blocking stream of their "
        f"own, one by one (idle) and all at once (queued, {gate}); medians; the tick is the "
        "greatest common divisor of all readings"
    )
    return Calibration(**{**found, "queued_ns": queued, "method": method})
