"""What importing gpuprof costs a program, and what backends() costs without a driver.

Milliseconds of whole Python processes, each beside a Python that does nothing, median of the
differences. The driver is made unloadable with GPUPROF_CUDA_DRIVER, so that the figures are those
of a machine without one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter_ns

from support import measure
from support.results import Row

_PROGRAMS = {
    "import gpuprof": ("import gpuprof", 40.0),
    "import gpuprof; gpuprof.timer": ("import gpuprof; gpuprof.timer", None),
    "gpuprof.backends() without a driver": (
        "import gpuprof; assert not gpuprof.backends()['cuda'].available",
        150.0,
    ),
}
_NOTHING = "python -c pass"


def _process_ms(source: str, environment: dict[str, str]) -> float:
    begun = perf_counter_ns()
    subprocess.run([sys.executable, "-c", source], env=environment, check=True)
    return (perf_counter_ns() - begun) / 1e6


def _rows(rounds: int, environment: dict[str, str]) -> list[Row]:
    sources = {name: source for name, (source, _) in _PROGRAMS.items()}
    for source in sources.values():
        _process_ms(source, environment)  # fills the caches of files and of compiled code
    nothing = []
    extra: dict[str, list[float]] = {name: [] for name in sources}
    for _ in range(rounds):
        base = _process_ms("pass", environment)
        nothing.append(base)
        for name, source in sources.items():
            extra[name].append(max(_process_ms(source, environment) - base, 0.0))
    rows = [Row(_NOTHING, statistics.median(nothing), "ms")]
    for name, values in extra.items():
        rows.append(Row(name, statistics.median(values), "ms", target=_PROGRAMS[name][1]))
    return rows


def main() -> None:
    """Measure and report."""
    options = measure.arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        no_library = Path(folder) / "libcuda.so.1"
        no_library.touch(mode=0o600)
        environment = dict(os.environ, GPUPROF_CUDA_DRIVER=str(no_library))
        rows = _rows(5 if options.quick else 20, environment)
    notes = [f"medians; every row but the first is what comes on top of `{_NOTHING}`"]
    measure.report("timing_import", rows, notes, options.json)


if __name__ == "__main__":
    main()
