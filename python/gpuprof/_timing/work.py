"""What the scopes of a row did, as they were told, and how fast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuprof._common.records import Record, in_results

if TYPE_CHECKING:
    from gpuprof._common.peaks import Peaks


@in_results
@dataclass(frozen=True, slots=True)
class Work(Record):
    """The work of a row's samples that were told it, and its rates.

    What was not told, and what cannot be said of it, is None. Rates are the work of those samples
    over their time: the GPU's on the clock ``'cuda'``, else the host's.

    Attributes
    ----------
    count : int
        How many samples have work.
    flops, nbytes : float or None
        Floating-point operations and bytes of one sample, on average.
    flops_per_s, bytes_per_s : float or None
        FLOP/s and bytes per second.
    flops_share, bytes_share : float or None
        The share of the device's peak, 1.0 being all of it; None where that is not known.
    peak_dtype : str
        The data type of whose peak `flops_share` is: the fastest of the device.
    """

    count: int
    flops: float | None = None
    nbytes: float | None = None
    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    flops_share: float | None = None
    bytes_share: float | None = None
    peak_dtype: str = ""

    @classmethod
    def from_sums(cls, sums: Mapping[str, Any], peaks: Peaks | None) -> Work:
        """Build one from what the core summed up, in FLOP, bytes and milliseconds."""
        flops_per_s = _ratio(sums["flops"], sums["flops_ms"] / 1000.0)
        bytes_per_s = _ratio(sums["nbytes"], sums["bytes_ms"] / 1000.0)
        fastest = None if peaks is None or flops_per_s is None else peaks.flops_of()
        most_bytes = None if peaks is None else peaks.bytes_per_s
        return cls(
            count=sums["count"],
            flops=_ratio(sums["flops"], sums["flops_count"]),
            nbytes=_ratio(sums["nbytes"], sums["bytes_count"]),
            flops_per_s=flops_per_s,
            bytes_per_s=bytes_per_s,
            flops_share=_ratio(flops_per_s, fastest[1] if fastest else 0.0),
            bytes_share=_ratio(bytes_per_s, most_bytes or 0.0),
            peak_dtype=fastest[0] if fastest else "",
        )


def _ratio(amount: float | None, of: float) -> float | None:
    """Return one over the other; None where there is none, or none that JSON can hold."""
    found = amount / of if amount is not None and of > 0 else math.inf
    return found if math.isfinite(found) else None
