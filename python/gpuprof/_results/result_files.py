"""Files of results: what ``--gpu-benchmark-json`` wrote, or a `BenchResult` as JSON.

Files are not trusted: they may have been merged by hand, cut off by a full disk, or come with a
checkout. Only regular files up to a size are read, as strict JSON of a known version and depth, and
every field is checked. An error is a `BaselineError` that names the file and the place.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuprof._common.checks import shortened, value_error
from gpuprof._common.files import open_regular
from gpuprof._common.records import Record, format_of
from gpuprof._results.result import BenchResult
from gpuprof.errors import BaselineError

MAX_BYTES = 256 << 20
MAX_DEPTH = 32
# Decoded, a file of ours takes at most five times its size; `[],` over and over takes fifty times.
MAX_GROWTH = 12
GROWTH_COUNTS_FROM = 64 << 20

_VERSION = 1
_STATS_FORMAT = "gpuprof-stats"


@dataclass(frozen=True)
class Run(Record):
    """The results of one run of a program, by the name of the benchmark."""

    created: str  # ISO 8601 text in UTC
    machine: dict[str, Any]
    results: dict[str, BenchResult] = field(default_factory=dict)
    commit: str | None = None  # of the measured code; with -dirty where files were changed

    _MEMBERS = ("created", "commit", "machine", "results")


def load_kind(path: str | Path) -> tuple[str, Run]:
    """Read a file of results; return its format and its run.

    Anything else is a BaselineError that says what is wrong and where.
    """
    path = Path(path)
    return kind_of(path, load_data(path))


def kind_of(path: Path, data: Any) -> tuple[str, Run]:
    """Do as `load_kind`, with what `load_data` has read of the file."""
    kind = data.get("format") if isinstance(data, dict) else None
    with _refusing(path):
        if kind == format_of(BenchResult):
            result = BenchResult._read("the result", data)
            return format_of(BenchResult), _run_of({result.name: result})
        if isinstance(data, dict) and isinstance(data.get("benchmarks"), list):
            return "pytest-benchmark", _session(data)
        if kind == _STATS_FORMAT:
            message = (
                "it holds statistics of scopes, which have no samples to compare: save benchmarks "
                "instead, with pytest --gpu-benchmark-save=NAME or BenchResult.to_json()"
            )
            raise ValueError(message)
        message = (
            f"it is neither a file of --gpu-benchmark-json nor a result: its format is "
            f"{shortened(kind)}"
        )
        raise ValueError(message)


def load_data(path: Path) -> Any:
    """Read a file as JSON of bounded size and depth; BaselineError says why it cannot be."""
    with _refusing(path):
        return load_text(read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """Return what a regular file of bounded size holds; BaselineError says why it cannot be."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        message = f"{str(path)!r} cannot be read: {reason}"
        raise BaselineError(message) from error
    check_size(path, len(data))
    return data


def check_size(place: object, size: int) -> None:
    if size > MAX_BYTES:
        message = f"{place} is larger than {MAX_BYTES >> 20} MiB"
        raise BaselineError(message)


def load_text(raw: bytes) -> Any:
    """Read JSON of bounded size and depth; ValueError says why it cannot be."""
    check_growth(raw)
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        _check_plain([data])
    except RecursionError:
        message = f"it is nested deeper than {MAX_DEPTH} levels"
        raise ValueError(message) from None
    return data


def check_growth(raw: bytes) -> None:
    """Raise ValueError for a document that would take far more memory than its size."""
    taken = 40 * raw.count(b",") + 64 * raw.count(b"[") + 240 * raw.count(b"{")
    if taken > GROWTH_COUNTS_FROM and taken > MAX_GROWTH * len(raw):
        message = f"it would take {taken >> 20} MiB of memory, which no file of results does"
        raise ValueError(message)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        message = f"{path} cannot be used: {error}"
        raise BaselineError(message) from None


def _refuse_constant(constant: str) -> float:
    message = f"it holds {constant}, which is no JSON"
    raise ValueError(message)


def _check_plain(data: Any, depth: int = 0) -> None:
    """Raise RecursionError for a document that is nested too deep, ValueError for an infinity."""
    if depth > MAX_DEPTH:
        raise RecursionError
    for value in data.values() if isinstance(data, dict) else data:
        if isinstance(value, float) and not math.isfinite(value):
            message = "it holds a number that is too large"
            raise ValueError(message)
        if isinstance(value, (dict, list)):
            _check_plain(value, depth + 1)


def _session(data: Mapping[str, Any]) -> Run:
    """Return the run that a test session wrote in the form of pytest-benchmark."""
    version = data.get("format_version")
    if version is not None and (version != _VERSION or isinstance(version, bool)):
        raise value_error(version, "its format_version", f"{_VERSION} (it is of another gpuprof)")
    results = {}
    for place, entry in enumerate(data["benchmarks"]):
        where = f"benchmarks[{place}]"
        own = entry.get("gpuprof") if isinstance(entry, dict) else None
        if not isinstance(own, dict):
            message = f"{where} has no object 'gpuprof': gpuprof did not measure it"
            raise ValueError(message)
        result = BenchResult._read(f"{where}.gpuprof.result", own.get("result"))
        results[str(entry.get("fullname") or result.name)] = result
    if not results:
        message = "it holds no benchmark"
        raise ValueError(message)
    return _run_of(results, commit_of(data.get("commit_info")))


def commit_of(info: object) -> str | None:
    """Return the commit of a file's ``commit_info``, with ``-dirty`` where files were changed."""
    if not isinstance(info, dict) or not isinstance(info.get("id"), str):
        return None
    return f"{info['id']}{'-dirty' if info.get('dirty') is True else ''}"


def _run_of(results: dict[str, BenchResult], commit: str | None = None) -> Run:
    last = list(results.values())[-1]
    return Run(last.created, dict(last.machine), results, commit)
