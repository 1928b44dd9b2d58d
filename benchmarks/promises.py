"""How many tests of each promise pass, and of what gpuprof must survive, on this machine.

A row is what one run of pytest counted. With a GPU the tests of a GPU run, without one those on the
fake driver. A test with random input counts once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from support import environment, measure
from support.results import Row

_ROOT = Path(__file__).resolve().parents[1]
_CPU: Mapping[str, Sequence[str]] = {
    "each driver call fails": ["tests/faults/test_sweep.py"],
    "random programs with faults": ["tests/faults/test_fuzz_programs.py"],
    "each driver call hangs": ["tests/faults/test_hanging_calls.py"],
    "any order of calls": ["tests/timing/test_any_order.py"],
    "long use": ["tests/faults/test_soak.py"],
    "files and messages that hold anything": [
        "tests/results/test_any_input.py",
        "tests/distributed/test_any_message.py",
        "tests/trace/test_tools_hostile.py",
        "tests/trace/test_tools_odd.py",
    ],
    "processes that are killed": ["tests/trace/test_dump_signals.py", "tests/trace/test_disk.py"],
    "surroundings": ["tests/faults/test_surroundings.py"],
    "answers of the real driver": ["tests/doubles/test_conformance.py"],
}
_GPU: Mapping[str, Sequence[str]] = {
    "times, streams, captures": ["tests/gpu/timing"],
    "graphs": ["tests/gpu/graphs"],
    "graphed callables": ["tests/gpu/callable"],
    "kernels": ["tests/gpu/kernels"],
    "watched modules": ["tests/gpu/watch"],
    "random programs with faults": ["tests/gpu/faults"],
    "answers of the real driver": ["tests/doubles/test_conformance.py"],
}


def _promises() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((_ROOT / "tests" / "promises").glob("test_p*.py")):
        found.setdefault(f"P{int(path.name[6:8])}", []).append(str(path.relative_to(_ROOT)))
    return found


def _count(paths: Sequence[str], *options: str) -> Mapping[str, int]:
    """Run the tests; return how many passed, failed and were skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *paths]
        subprocess.run(command, cwd=_ROOT, stdout=subprocess.DEVNULL, check=False)
        suite = ET.parse(report).getroot()[0]
    counts = {key: int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped")}
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    return {"passed": passed, "failed": failed, "skipped": counts["skipped"]}


def _rows() -> Iterator[Row]:
    options: list[str] = []
    if environment.machine()["gpu"] is not None:
        groups, options = dict(_GPU), ["-m", "gpu", "-p", "no:benchmark"]
    else:
        groups = {**_promises(), **_CPU}
    for name, paths in groups.items():
        for what, count in _count(paths, *options).items():
            yield Row(f"{name}: {what}", count, "")


def main() -> int:
    """Run the tests, print the table, and write it with ``--json``."""
    options = measure.arguments(__doc__)
    measure.report("promises", [*_rows()], [], options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
