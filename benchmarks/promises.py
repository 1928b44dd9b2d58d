"""How many tests of each promise pass, and of what gpuprof must survive, on this machine.

With a GPU the tests of a GPU run, without one those on the fake driver. ``PYTEST_ADDOPTS="-n 14"``
runs several at once; those that need the GPU alone run after them. A test with random input counts
once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
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
    "processes that are killed": [
        "tests/trace/test_process.py",
        "tests/trace/test_dump_signals.py",
        "tests/trace/test_disk.py",
    ],
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


def _outcomes(paths: Iterable[str], *options: str, alone: bool) -> Iterator[tuple[str, str]]:
    """Run the tests; yield the module of each, as a path without its ending, and its outcome."""
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *paths]
        subprocess.run(command, cwd=_ROOT, env=env if alone else None, check=False)
        for case in ET.parse(report).iter("testcase"):
            outcomes = {"failure": "failed", "error": "failed", "skipped": "skipped"}
            outcome = [outcomes[each.tag] for each in case if each.tag in outcomes]
            yield case.attrib["classname"].replace(".", "/"), (outcome or ["passed"])[0]


def _rows() -> Iterator[Row]:
    on_gpu = environment.machine()["gpu"] is not None
    groups = dict(_GPU) if on_gpu else {**_promises(), **_CPU}
    paths = [*chain.from_iterable(groups.values())]
    if on_gpu:  # with the options of the environment, then what needs the GPU alone, without them
        runs = [
            _outcomes(paths, "-m", "gpu and not alone", "-p", "no:benchmark", alone=False),
            _outcomes(paths, "-m", "gpu and alone", "-p", "no:benchmark", alone=True),
        ]
    else:
        runs = [_outcomes(paths, alone=False)]
    counts = {name: Counter[str]() for name in groups}
    for module, outcome in chain.from_iterable(runs):
        for name, modules in groups.items():
            if any(module.startswith(each.removesuffix(".py")) for each in modules):
                counts[name][outcome] += 1
    for name, count in counts.items():
        for outcome in ("passed", "failed", "skipped"):
            yield Row(f"{name}: {outcome}", count[outcome], "")


def main() -> int:
    """Run the tests, print the table, and write it with ``--json``."""
    options = measure.arguments(__doc__)
    measure.report("promises", [*_rows()], [], options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
