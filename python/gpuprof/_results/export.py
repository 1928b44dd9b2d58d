"""What results and comparisons have in common as files: JSON, CSV and data frames."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gpuprof._common import machine
from gpuprof._common.quantiles import quantile
from gpuprof._display.records import Cell, Records

# Attributes of a result that are columns under their own names, in two parts.
_HOW = ("name", "mode", "requested_mode", "clock", "l2", "gate", "count", "calls_per_sample")
SPREAD = (
    "min_ms",
    "max_ms",
    "mean_ms",
    "stddev_ms",
    "q1_ms",
    "q3_ms",
    "iqr_ms",
    "mad_ms",
    "p10_ms",
    "p90_ms",
)
RATES = ("gbytes_per_s", "tflops_per_s", "bytes_share", "flops_share")
_FIGURES = (
    *SPREAD,
    "independent_samples",
    "host_ms",
    "tick_ms",
    "nbytes",
    "flops",
    *RATES,
    "peak_bytes",
    "duration_s",
    "created",
)
# Tukey's fences: further from the quartiles than this many times their distance is an outlier.
_FENCE = 1.5


def samples_of(results: Sequence[Any]) -> Records:
    """Return a record for each sample of each `BenchResult`."""
    lines: list[list[Cell]] = []
    for result in results:
        clocks = result.clock_mhz or [None] * result.count
        pairs = enumerate(zip(result.samples_ms, clocks, strict=True))
        lines += ([result.name, place, ms, mhz] for place, (ms, mhz) in pairs)
    return Records(("name", "sample", "ms", "clock_mhz"), lines)


def figures_of(result: Any) -> dict[str, Cell]:
    low, high = result.interval_ms
    launches, params = result.launches, result.params
    return {
        **{name: getattr(result, name) for name in _HOW},
        "median_ms": result.median_ms,
        "interval_low_ms": low,
        "interval_high_ms": high,
        **{name: getattr(result, name) for name in _FIGURES},
        "joules": result.energy.get("joules"),
        "watts": result.energy.get("watts"),
        "energy_resolution": result.energy.get("resolution"),
        "kernels": launches and launches.num_kernels,
        "copies": launches and launches.copies,
        "memsets": launches and launches.memsets,
        "machine": machine.key(result.machine) if result.machine else None,
        "params": json.dumps(dict(params), ensure_ascii=False, default=str) if params else None,
        "warnings": "; ".join(result.warnings),
    }


def figures(result: Any) -> dict[str, Any]:
    """Return what pytest-benchmark knows of a result, under its names and in seconds.

    ``data`` has the samples, ``rounds`` is their number and ``iterations`` the calls that each is
    taken over. ``outliers`` counts those beyond a standard deviation, and beyond Tukey's fences.
    """
    data = [ms / 1e3 for ms in result.samples_ms]
    low, high = quantile(data, 0.25), quantile(data, 0.75)
    mean, sigma = result.mean_ms / 1e3, result.stddev_ms / 1e3
    reach = _FENCE * (high - low)
    inside = [value for value in data if low - reach <= value <= high + reach]
    beyond_sigma = sum(abs(value - mean) > sigma for value in data)
    beyond_fence = len(data) - len(inside)
    return {
        "min": min(data),
        "max": max(data),
        "mean": mean,
        "stddev": sigma,
        "rounds": len(data),
        "median": result.median_ms / 1e3,
        "iqr": high - low,
        "q1": low,
        "q3": high,
        "iqr_outliers": beyond_fence,
        "stddev_outliers": beyond_sigma,
        "outliers": f"{beyond_sigma};{beyond_fence}",
        "ld15iqr": min(inside),
        "hd15iqr": max(inside),
        "ops": 1 / mean if mean > 0 else 0.0,
        "total": sum(data),
        "data": data,
        "iterations": result.calls_per_sample,
    }
