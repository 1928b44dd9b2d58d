"""How often verdicts are wrong on a GPU: processes measure the same kernels, one after the other.

The rows are shares in percent. "False SLOW" is unchanged code that is called SLOW; "missed" is
slower code that is not. See support/verdict_runs.py.
"""

from __future__ import annotations

import sys

from support import measure, verdict_runs


def main() -> None:
    """Measure and report, or be one of the processes."""
    if sys.argv[1:2] in (["runs"], ["interleaved"]):
        verdict_runs.main()
        return
    options = measure.arguments(__doc__)
    notes: list[str] = []
    measure.report("benchmark_verdicts", [*verdict_runs.rows(notes)], notes, options.json)


if __name__ == "__main__":
    main()
