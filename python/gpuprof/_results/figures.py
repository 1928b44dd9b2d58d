"""The figures of a result that pytest-benchmark knows, under its names and in seconds."""

from __future__ import annotations

from typing import Any

from gpuprof._common.quantiles import quantile
from gpuprof._results.result import BenchResult

# Tukey's fences: further from the quartiles than this many times their distance is an outlier.
_FENCE = 1.5
# All of them but the samples.
FIGURES = (
    "min",
    "max",
    "mean",
    "stddev",
    "rounds",
    "median",
    "iqr",
    "q1",
    "q3",
    "iqr_outliers",
    "stddev_outliers",
    "outliers",
    "ld15iqr",
    "hd15iqr",
    "ops",
    "total",
    "iterations",
)


def figures(result: BenchResult) -> dict[str, Any]:
    """Return the figures, with the samples as ``data``.

    ``rounds`` is the number of samples and ``iterations`` the calls that each is taken over.
    ``outliers`` counts those beyond a standard deviation, and those beyond Tukey's fences.
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
