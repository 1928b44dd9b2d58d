"""How the facts of a result are put into words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuprof._common.units import byte_size, joules, percent, rate

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
MOST_NAMES = 20


def some(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join([*names[:MOST_NAMES], *([f"and {rest:,} more"] if rest > 0 else [])])


def said_once(told: Sequence[tuple[str, Iterable[str]]], before: str = "") -> list[str]:
    """Return each text once; one that not all tell after `before` and the names of those who do."""
    found: dict[str, list[str]] = {}
    for name, texts in told:
        for text in dict.fromkeys(texts):
            found.setdefault(text, []).append(name)
    return [
        text if len(names) == len(told) else f"{before}{some(names)}: {text}"
        for text, names in found.items()
    ]


def how(result: Any) -> str:
    """Say in a line how the result was measured."""
    asked = f" ({result.requested_mode} was asked for)"
    asked = "" if result.requested_mode in {"auto", result.mode} else asked
    l2 = [L2_STATES[result.l2]] if result.l2 in L2_STATES else []
    gate = [result.gate] if result.gate != "n/a" else []
    clock = CLOCKS[result.clock]
    return ", ".join([f"{result.mode} mode{asked}", clock, *l2, *gate])


def rate_text(per_second: float | None, unit: str, share: float | None) -> str:
    """Write an amount per second, with its share of the device's peak where that is known."""
    of_peak = "" if share is None else f" ({percent(share)} of peak)"
    return rate(per_second, unit) + of_peak


def peaks_text(result: Any) -> str:
    """Name the peaks that percentages refer to; empty without any."""
    peaks, said = result.peaks, []
    if result.bytes_share is not None:
        said.append(rate(peaks["bytes_per_s"], "B"))
    if result.flops_share is not None:
        dtype = peaks.get("dtype")
        of_what = f" for {dtype}" if dtype else ""
        said.append(f"{rate(peaks['flops_per_s'], 'FLOP')}{of_what}")
    return ", ".join(said)


def peak_text(peak_bytes: float | None) -> str:
    """Write the peak of the memory that a call takes; no text for None."""
    return "" if peak_bytes is None else byte_size(round(peak_bytes), precise=True)


def energy_text(energy: Mapping[str, float]) -> str:
    """Say what energy a call takes, and how well that is known."""
    return (
        f"{joules(energy['joules'])} a call at {energy['watts']:,.0f} W; the counter's steps of "
        f"{joules(energy['step_joules'])} are {percent(energy['resolution'], 2)} of a block"
    )


def memory_text(memory: Mapping[str, int]) -> str:
    """Say what a call does to the allocated memory."""
    peak, left = peak_text(memory["peak_bytes"]), memory["change_bytes"]
    keeps = f"; {byte_size(left, precise=True)} stay allocated after it" if left > 0 else ""
    frees = f"; {byte_size(-left, precise=True)} less are allocated after it" if left < 0 else ""
    return f"peak {peak} above the level before a call{keeps}{frees}"
