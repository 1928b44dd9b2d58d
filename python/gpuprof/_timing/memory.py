"""What the allocators did in scopes with ``memory=True``, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuprof._common.records import Record, in_results
from gpuprof._frameworks.memory import Reading

begin, end = Reading, Reading.end  # which C++ calls at the entry and the exit of a scope

# By `MemoryNote` of src/timing/work.hpp.
_NOTES = (
    "",
    "the sum of torch's and CuPy's peaks, which may be more than both at once",
    "neither torch nor CuPy is in use on the GPU, so there is no allocator to read",
    "the allocator does not tell its peak",
    "the allocator could not be read",
    "read on the 'cuda' clock only",
    "allocated by the capture; replays of the graph allocate nothing",
    "replays of a graph allocate nothing",
)


@in_results
@dataclass(frozen=True, slots=True)
class MemoryUse(Record):
    """What the allocators of torch and CuPy did in a scope, or in the scopes of a row.

    Attributes
    ----------
    count : int
        How many entries were read; 1 for a sample.
    peak : float
        The most bytes above the level at the entry; of a row, the largest.
    absolute_peak : float
        The most bytes that were allocated at once; of a row, the largest.
    change : float
        Bytes at the exit less those at the entry; of a row, the mean.
    note : str
        Why figures are NaN, or how they are to be read; empty where there is nothing to say.
    """

    count: int
    peak: float
    absolute_peak: float
    change: float
    note: str = ""

    @classmethod
    def from_sums(cls, sums: Mapping[str, Any]) -> MemoryUse:
        """Build a row's from what the core summed up."""
        count, note = int(sums["count"]), _NOTES[sums["note"]]
        if not count:
            return cls(0, math.nan, math.nan, math.nan, note)
        change = sums["change"] / count
        return cls(count, _whole(sums["peak"]), _whole(sums["absolute"]), _whole(change), note)


def use_of_sample(peak: float, absolute: float, change: float, note: int) -> MemoryUse:
    read = 0 if math.isnan(change) else 1
    return MemoryUse(read, _whole(peak), _whole(absolute), _whole(change), _NOTES[note])


def _whole(value: float) -> float:
    return int(value) if math.isfinite(value) and value == int(value) else value
