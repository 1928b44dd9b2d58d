"""What each test reported, and the file of ``--gpu-benchmark-json`` made of it.

The file has pytest-benchmark's keys, so that its tools read it: times in seconds, one object a test
with its ``stats``. Each also has a ``gpuprof`` object with the whole results, the decision and the
outcome of the test.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from gpuprof._core import build_info
from gpuprof._pytest.options import REPORTED
from gpuprof._results.decision import Decision
from gpuprof._results.export import figures
from gpuprof._results.result import BenchResult

FORMAT = "gpuprof-pytest"
VERSION = 1
_GIT_TIMEOUT_S = 10.0


@dataclass
class Record:
    """What one test reported: what the file has of it, and what is parsed from that."""

    data: Mapping[str, Any]
    result: BenchResult  # the last one
    decision: Decision | None
    outcome: str

    @classmethod
    def from_report(cls, report: pytest.TestReport) -> Record:
        data = getattr(report, REPORTED)
        own = data["gpuprof"]
        decision = Decision.from_dict(own["decision"]) if own["decision"] else None
        return cls(data, BenchResult.from_dict(own["result"]), decision, report.outcome)

    def to_dict(self) -> dict[str, Any]:
        own = {**self.data["gpuprof"], "outcome": self.outcome}
        return {**self.data, "stats": figures(self.result), "gpuprof": own}


def document(records: Sequence[Record], commit: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "machine_info": _machine_info(records),
        "commit_info": dict(commit),
        "benchmarks": [record.to_dict() for record in records],
        "datetime": datetime.now(timezone.utc).isoformat(),
        "version": build_info()["version"],
    }


def _machine_info(records: Sequence[Record]) -> dict[str, Any]:
    """Describe the machine that measured, as pytest-benchmark does, and with more."""
    machines = [dict(record.result.machine) for record in records]
    # Prefer one with a GPU: it has the most facts.
    machine = max(machines, key=lambda each: bool(each.get("gpu")), default={})
    return {
        "node": platform.node(),
        "processor": platform.processor(),
        "machine": platform.machine(),
        "python_implementation": platform.python_implementation(),
        "python_version": platform.python_version(),
        "release": platform.release(),
        "system": platform.system(),
        "cpu": {"brand_raw": machine.get("cpu"), "count": machine.get("cpus")},
        "gpuprof": machine,
    }


def commit_info(folder: Path) -> dict[str, Any]:
    """Say which commit the sources in `folder` are at, where git can tell."""

    def git(*arguments: str) -> str:
        return subprocess.check_output(
            ["git", *arguments],
            cwd=folder,
            text=True,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT_S,
        ).strip()

    found: dict[str, Any] = {"id": None, "time": None, "author_time": None, "dirty": False}
    found |= {"project": folder.name, "branch": None}
    with suppress(OSError, ValueError, subprocess.SubprocessError):  # no git, or no commit yet
        facts = git("log", "-1", "--format=%H%n%cI%n%aI").splitlines()
        found["id"], found["time"], found["author_time"] = facts
        found["branch"] = git("rev-parse", "--abbrev-ref", "HEAD")
        found["dirty"] = bool(git("status", "--porcelain", "--untracked-files=no"))
    return found


def name_of_commit(folder: Path) -> str:
    """Name a baseline: a commit's runs share one, those of uncommitted changes have one each."""
    commit, now = commit_info(folder), f"{datetime.now(timezone.utc):%Y%m%d_%H%M%S}"
    if commit["id"] is None:
        return f"unversioned_{now}"
    return f"{commit['id']}_{now}_uncommitted-changes" if commit["dirty"] else str(commit["id"])
