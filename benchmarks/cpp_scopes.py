"""What a scope of the C++ library costs a thread, alone and beside others.

The figures are CPU time, so threads that wait for a core do not count; for the longest pause they
are time, and the same program without a reader stands beside it. Builds the library and a program
with CMake; needs no GPU.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from support import measure
from support.measure import Rounds

_SOURCE = Path(__file__).with_name("cpp_scopes")
_THREADS_COST = 1.3
_ANNOTATE_NS = 190.0


def main() -> int:
    """Build, run, and report."""
    options = measure.arguments(__doc__)
    rounds = Rounds()
    with tempfile.TemporaryDirectory() as folder:
        _run("cmake", "-S", _SOURCE, "-B", folder, "-DCMAKE_BUILD_TYPE=Release")
        _run("cmake", "--build", folder, "--parallel")
        printed = _run(
            Path(folder) / "cpp_scopes", 3 if options.quick else 9, Path(folder) / "trace.json"
        )
    for line in printed.splitlines():
        name, value = line.split("\t")
        rounds.add(name, float(value))
    rows = [
        rounds.row("timer"),
        rounds.row("timer, 16 threads", to="timer", target=_THREADS_COST),
        rounds.row("GPUPROF_SCOPE", to="timer"),
        rounds.row("timer, trace open", to="timer"),
        rounds.row("annotate"),
        replace(rounds.row("annotate, trace open"), target=_ANNOTATE_NS),
        rounds.row("pause, nobody reads"),
        rounds.row("pause, stats() of 3,000 rows", to="pause, nobody reads"),
    ]
    measure.report("cpp_scopes", rows, ["scopes are on the CPU's clock"], options.json)
    return 0


def _run(*command: object) -> str:
    done = subprocess.run(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=sys.stderr, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
