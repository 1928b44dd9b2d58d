"""How the facts of a result are put into words, from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuprof._common.instructions import Instructions
from gpuprof._common.launches import Launches
from gpuprof._common.text import plural
from gpuprof._common.units import byte_size, duration, percent, rate

CLOCKS = {
    "cuda": "CUDA event times",
    "host": "host time around a wait for the device",
    "cpu": "host time; no GPU time was measured",
}
L2_STATES = {
    "hot": "L2 hot",
    "rotated": "L2 cold (arguments rotated)",
    "flushed": "L2 cold (flushed)",
}


def samples_text(count: int, independent: float, calls: int) -> str:
    """Say how many samples there are, of how many calls each."""
    as_few = f" (as {independent:,.0f} independent ones)" if independent < count else ""
    return f"{plural(count, 'sample')}{as_few} of {plural(calls, 'call')}"


def taken_text(duration_s: float, tick_ms: float) -> str:
    """Say how long the samples took, and the clock's tick if it is worth a word."""
    tick = f", tick {duration(tick_ms)}" if tick_ms >= 5e-7 else ""
    return f" in {duration(1e3 * duration_s)}{tick}"


def rate_text(per_second: float | None, unit: str, share: float | None) -> str:
    """Write an amount per second, with its share of the device's peak where that is known."""
    of_peak = "" if share is None else f" ({percent(share)} of peak)"
    return rate(per_second, unit) + of_peak


def peaks_text(peaks: Mapping[str, Any], *, has_bytes: bool, has_flops: bool) -> str:
    """Say what shares are of: the peaks of what there is a rate for; no text without any.

    It ends with whether they were measured or given, and when.
    """
    said = []
    if has_bytes and "bytes_per_s" in peaks:
        said.append(rate(peaks["bytes_per_s"], "B"))
    if has_flops and "flops_per_s" in peaks:
        dtype = peaks.get("dtype")
        of_what = f" for {dtype}" if dtype else ""
        said.append(f"{rate(peaks['flops_per_s'], 'FLOP')}{of_what}")
    if not said:
        return ""
    since = " ".join(str(peaks[key]) for key in ("source", "date") if peaks.get(key))
    return ", ".join(said) + (f"; {since}" if since else "")


def peak_text(peak_bytes: float | None) -> str:
    """Write the peak of the memory that a call takes; no text for None."""
    return "" if peak_bytes is None else byte_size(round(peak_bytes), precise=True)


def memory_text(memory: Mapping[str, int]) -> str:
    """Say what a call does to the allocated memory; no text if it was not measured."""
    if not memory:
        return ""
    peak, left = peak_text(memory["peak_bytes"]), memory["change_bytes"]
    keeps = f"; {byte_size(left, precise=True)} stay allocated after it" if left > 0 else ""
    frees = f"; {byte_size(-left, precise=True)} less are allocated after it" if left < 0 else ""
    return f"peak {peak} above the level before a call{keeps}{frees}"


def launches_text(launches: Launches | None) -> str:
    """Say what a call launches; no text if that was not counted."""
    if launches is None:
        return ""
    return f"{launches}; {launches.varies}" if launches.varies else str(launches)


def instructions_text(instructions: Instructions | None) -> str:
    """Say how many instructions a call takes; no text if they were not counted."""
    if instructions is None or not instructions.per_call:
        return ""
    return f"{instructions} a call, on this thread and those it starts"
