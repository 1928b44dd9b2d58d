"""The error of GPU times on the host's clock, and whether it changes with time.

Spans are placed by the timeline of a trace and, independently, by a kernel that answers the host
through mapped memory and stamps the GPU's `%globaltimer`. The GPU is idle otherwise. The
correlation itself is uncertain by about as much as the timeline says of itself. Needs a GPU.
"""

from __future__ import annotations

import importlib
import statistics
import sys
from pathlib import Path
from typing import Any

from support import measure
from support.results import Row

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
correlation: Any = importlib.import_module("tests.gpu.support.correlation")

_LIMIT_US = 3.0
_DRIFT_LIMIT_US = 0.3


def _rows(seconds: float) -> list[Row]:
    found = correlation.watch(seconds)
    distances = [difference / 1e3 for difference, _, _ in found]
    quarter = max(1, len(found) // 4)
    drift = statistics.median(distances[-quarter:]) - statistics.median(distances[:quarter])
    median = statistics.median(abs(distance) for distance in distances)
    most = max(abs(distance) for distance in distances)
    beyond = max(abs(difference) - own_error for difference, _, own_error in found) / 1e3
    stated = statistics.median(error for _, error, _ in found) / 1e3
    own = statistics.median(error for _, _, error in found) / 1e3
    change = "its change from the first to the last quarter"
    return [
        Row("placed and correlated: distance, median", median, "us", target=_LIMIT_US),
        Row("placed and correlated: distance, largest", most, "us"),
        Row("largest beyond the correlation's own error", max(beyond, 0.0), "us", target=_LIMIT_US),
        Row(change, abs(drift), "us", target=_DRIFT_LIMIT_US),
        Row("error that the timeline states, median", stated, "us"),
        Row("error of the correlation, median", own, "us"),
    ]


def main() -> None:
    """Measure and report."""
    options = measure.arguments(__doc__)
    seconds = 10.0 if options.quick else 120.0
    notes = [f"spans of {seconds:g} s, one each half second"]
    measure.report("timing_timeline", _rows(seconds), notes, options.json)


if __name__ == "__main__":
    main()
