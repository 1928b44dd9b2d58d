"""Programs that run by `python` and by ``gpuprof run``, so that the two can be compared."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.processes import environment

DONE = "gpuprof: {} ran for "


class Ended(NamedTuple):
    """How a program ended."""

    status: int
    out: str
    err: str  # its own
    report: str  # what gpuprof said after it


def script(folder: Path, code: str, name: str = "script.py") -> str:
    """Write a script into a folder, and return its name."""
    (folder / name).write_text(textwrap.dedent(code), encoding="utf-8")
    return name


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start Python in a folder, in a group of its own."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(
            variables.pop("GPUPROF_CUDA_DRIVER", None),
            PYTHONIOENCODING="utf-8",
            CUDA_VISIBLE_DEVICES="",
            **variables,
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def end(process: subprocess.Popen[str], program: str) -> Ended:
    """Wait for a process to end."""
    try:
        out, err = process.communicate(timeout=110)
    finally:
        process.kill()
    return parted(process.returncode, out, err, program)


def parted(status: int, out: str, err: str, program: str) -> Ended:
    """Part what a program said from what gpuprof said after it."""
    own, line, report = err.partition(DONE.format(program))
    return Ended(status, out, own, line + report)


def plain(folder: Path, *arguments: str, **variables: str) -> Ended:
    """Run a program by `python` itself."""
    return end(start(folder, *arguments, **variables), "nobody")


def measured(folder: Path, *arguments: str, program: str, **variables: str) -> Ended:
    """Run a program by ``gpuprof run``; the arguments are the command's."""
    return end(start(folder, "-m", "gpuprof", "run", *arguments, **variables), program)


def both(folder: Path, *arguments: str, **variables: str) -> tuple[Ended, Ended]:
    """Run ``SCRIPT ...`` or ``-m MODULE ...`` by both, which must end alike; return both ends."""
    program = arguments[1] if arguments[0] == "-m" else arguments[0]
    expected = plain(folder, *arguments, **variables)
    found = measured(folder, *arguments, program=program, **variables)
    assert found[:3] == expected[:3]
    return expected, found


def rows(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of a file of statistics by their paths."""
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["format"] == "gpuprof-stats"
    return {"/".join(row["names"]): row for row in data["rows"]}


def counts(path: Path) -> dict[str, int]:
    """Return how often each row of a file of statistics was measured."""
    return {name: (row["host"] or {"count": 0})["count"] for name, row in rows(path).items()}
