"""What an empty interval reads on a device, and the step of its event clock."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import gpuprof._core as _core


@dataclass(frozen=True)
class Calibration:
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

    __module__ = "gpuprof"

    device: int
    tick_ns: float
    idle_ns: float
    queued_ns: float | None
    pairs: int
    method: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<code>{escape(repr(self))}</code>"


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
    if device is not None and (isinstance(device, bool) or not isinstance(device, int)):
        message = f"device: expected an int or None, got {device!r}"
        raise TypeError(message)
    if device is not None and device < 0:
        message = f"device: expected an index from 0, got {device}"
        raise ValueError(message)
    found = _core.calibrate(max(_core.cuda_device(), 0) if device is None else device)
    queued = None if math.isnan(found["queued_ns"]) else found["queued_ns"]
    gate = "no gate on this device" if queued is None else "behind a closed cuStreamWaitValue32"
    return Calibration(
        device=found["device"],
        tick_ns=found["tick_ns"],
        idle_ns=found["idle_ns"],
        queued_ns=queued,
        pairs=found["pairs"],
        method=(
            f"{found['pairs']} event pairs with nothing between on a non-blocking stream of their "
            f"own, one by one (idle) and all at once (queued, {gate}); medians; the tick is the "
            "greatest common divisor of all readings"
        ),
    )
