"""The file of ``--gpu-benchmark-json``: pytest-benchmark's keys, and all that gpuprof knows.

pytest-benchmark's tools read it: times in seconds, one object a test with its ``stats``. Each also
has a ``gpuprof`` object with the whole results, the decision and the outcome of the test.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpuprof._core import __version__
from gpuprof._results import statistics
from gpuprof._results.result import BenchResult

FORMAT = "gpuprof-pytest"
VERSION = 1
_GIT_TIMEOUT_S = 10.0
# Tukey's fences: further from the quartiles than this many times their distance is an outlier.
_FENCE = 1.5


def document(records: Iterable[Mapping[str, Any]], commit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the file for what the tests reported."""
    benchmarks = [_benchmark(record) for record in records]
    return {
        "format": FORMAT,
        "format_version": VERSION,
        "machine_info": _machine_info(benchmarks),
        "commit_info": dict(commit),
        "benchmarks": benchmarks,
        "datetime": datetime.now(timezone.utc).isoformat(),
        "version": __version__,
    }


def _benchmark(record: Mapping[str, Any]) -> dict[str, Any]:
    *earlier, result = record["results"]
    return {
        "group": record["group"],
        "name": record["name"],
        "fullname": record["key"],
        "params": record["params"],
        "param": record["param"],
        "extra_info": result["extra_info"],
        "options": record["options"],
        "stats": stats(BenchResult.from_dict(result)),
        "gpuprof": {
            "result": result,
            "earlier": earlier,
            "decision": record["decision"],
            "outcome": record["outcome"],
            "failure": record["failure"],
        },
    }


def stats(result: BenchResult) -> dict[str, Any]:
    """Return the figures that pytest-benchmark knows, in seconds."""
    data = [ms / 1e3 for ms in result.samples_ms]
    low, high = statistics.quantile(data, 0.25), statistics.quantile(data, 0.75)
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


def _machine_info(benchmarks: list[dict[str, Any]]) -> dict[str, Any]:
    machines: list[dict[str, Any]] = [each["gpuprof"]["result"]["machine"] for each in benchmarks]
    # One with a GPU says the most.
    machine: dict[str, Any] = max(machines, key=lambda each: bool(each.get("gpu")), default={})
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
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=True,
        )
        return done.stdout.strip()

    found: dict[str, Any] = {"id": None, "time": None, "author_time": None, "dirty": False}
    found |= {"project": folder.name, "branch": None}
    try:
        found["id"], found["time"], found["author_time"] = git(
            "log", "-1", "--format=%H%n%cI%n%aI"
        ).splitlines()
        found["branch"] = git("rev-parse", "--abbrev-ref", "HEAD")
        found["dirty"] = bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, ValueError, subprocess.SubprocessError):
        pass  # no git, no repository, or no commit in it yet
    return found
