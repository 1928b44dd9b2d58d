"""Baselines: the runs that were saved under a name, in a folder, by kind of machine.

``<root>/baselines/<name>/<machine>.json`` holds the last 20 runs of each benchmark on one kind of
machine, with their raw samples. Two processes may append at once: a lock lets one after the other
read, add and replace.

Files are not trusted: they may have been merged by hand, cut off by a full disk, or come with a
checkout. Only regular files up to a size are read, as strict JSON of a known version and depth, and
every field is checked. An error is a `BaselineError` that names the file and the place; the file is
left as it is.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from gpuprof._common import machine
from gpuprof._common.checks import shortened, value_error
from gpuprof._common.files import TEMPORARY, FileLock, open_regular, replace_file
from gpuprof._common.records import Document, Record, format_of, head
from gpuprof._results.result import BenchResult
from gpuprof._trace.path import output_path
from gpuprof.errors import BaselineError

DEFAULT_ROOT = ".gpuprof"
KEPT_RUNS = 20  # of each benchmark
MAX_RUNS = 5 * KEPT_RUNS
LOCK_TIMEOUT_S = 60.0
FORMAT = "gpuprof-baseline"
VERSION = 1
MAX_BYTES = 256 << 20
MAX_DEPTH = 32
# Decoded, a file of ours takes at most five times its size; `[],` over and over takes fifty times.
MAX_GROWTH = 12
GROWTH_COUNTS_FROM = 64 << 20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOCK = ".lock"
_STATS_FORMAT = "gpuprof-stats"


@dataclass(frozen=True)
class Run(Record):
    """The results of one run of a program, by the name of the benchmark.

    `created` is ISO 8601 text in UTC, `machine` describes where it was measured, and `commit` is
    the version of the measured code; it ends in ``-dirty`` where tracked files were changed.
    """

    created: str
    machine: dict[str, Any]
    results: dict[str, BenchResult] = field(default_factory=dict)
    commit: str | None = None

    _MEMBERS = ("created", "commit", "machine", "results")


@dataclass(frozen=True)
class _File(Document):
    runs: tuple[Run, ...]

    _HEAD = head(FORMAT)


def check_name(name: str) -> str:
    """Return `name` if a baseline can be called so; ValueError says what can be."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = (
            f"a baseline cannot be called {name!r}; expected 1 to 100 of the letters A to Z and a "
            "to z, digits, '.', '_' and '-', the first one a letter or a digit"
        )
        raise ValueError(message)
    return name


class Baselines:
    """The baselines in a folder, which need not exist before something is appended."""

    def __init__(self, root: str | Path = DEFAULT_ROOT) -> None:
        self.root = Path(root)
        self._folder = self.root / "baselines"

    def names(self) -> list[str]:
        """Return the names under which something is saved, sorted."""
        names = [name for name in _listed(self._folder, FileNotFoundError) if _NAME.fullmatch(name)]
        return [name for name in names if _files(self._folder / name)]

    def latest(self) -> str | None:
        """Return the name under which a run was saved last; None if nothing is saved.

        A BaselineError says that a file is damaged: it may be the one.
        """
        found = [
            (runs[-1].created, path.stat().st_mtime_ns, name)
            for name in self.names()
            for path in _files(self._folder / name)
            if (runs := read(path))
        ]
        return max(found)[2] if found else None

    def append(self, name: str, run: Run) -> Path:
        """Add a run to a baseline, which is made if needed; return the file of the run's machine.

        A damaged file stays as it is. That, a file that cannot be written, and another process that
        holds the lock for a minute are a BaselineError.
        """
        path = self._folder / check_name(name) / f"{machine.key(run.machine)}.json"
        with _locked(path):
            runs = read(path) if os.path.lexists(path) else []
            _write(path, encode(_kept([*runs, run])))
        return path

    def drop(self, name: str, machine_key: str, created: Collection[str]) -> list[Run]:
        """Remove the runs that were made at these times, and return them; errors as of `append`."""
        path = self._folder / check_name(name) / f"{machine_key}.json"
        with _locked(path):
            runs = read(path)
            _write(path, encode([run for run in runs if run.created not in created]))
        return [run for run in runs if run.created in created]

    def sync(self, remote: str) -> str:
        """Join what is saved with that of a remote, which a folder cannot."""
        message = f"{self.root} is a folder: it has no {remote!r} to be joined with"
        raise BaselineError(message)

    def runs(self, name: str, most: int = KEPT_RUNS) -> dict[str, list[Run]]:  # noqa: ARG002
        """Return the runs of a baseline by kind of machine, the oldest first.

        There are up to `most` of each benchmark where a store keeps more than 20. A BaselineError
        says that a file is damaged, or lists the baselines if there is none of this name.
        """
        paths = _files(self._folder / check_name(name)) or self._unknown(name, self.names())
        return {path.stem: read(path) for path in paths}

    def _unknown(self, name: str, names: Sequence[str]) -> NoReturn:
        there = f"there are {', '.join(names)}" if names else "there are none at all"
        message = f"no baseline is called {name!r} in {self.root}: {there}"
        raise BaselineError(message)


def _kept(runs: Sequence[Run]) -> list[Run]:
    """Leave out results that have enough newer ones, and runs that are then empty.

    Each benchmark is counted by itself: one that is missing in a run, because it failed or was not
    selected, must not lose its baseline to the others.
    """
    counts: Counter[str] = Counter()
    kept: list[Run] = []
    for run in reversed(runs[-MAX_RUNS:]):
        results = {name: each for name, each in run.results.items() if counts[name] < KEPT_RUNS}
        counts.update(list(results))
        if results or not kept:
            kept.append(replace(run, results=results))
    return kept[::-1]


def _files(folder: Path) -> list[Path]:
    names = _listed(folder, FileNotFoundError, NotADirectoryError)
    return [folder / name for name in names if name.endswith(".json") and name != ".json"]


def _listed(folder: Path, *empty: type[OSError]) -> list[str]:
    """Return the names in a folder, sorted; none where reading it raises one of these."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except empty:
        return []
    except OSError as error:
        raise _failed(folder, "read", error) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file's folder, which is made if needed; an OSError means not written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / _LOCK) as lock:
            if not lock.acquire(LOCK_TIMEOUT_S):
                held = f"is locked by another process for {LOCK_TIMEOUT_S:g} seconds"
                message = f"{path.parent / _LOCK} {held}"
                raise BaselineError(message)
            yield
    except OSError as error:
        raise _failed(path, "written", error) from error


def _write(path: Path, data: bytes) -> None:
    """Replace a file, following a link, and remove what an interrupted write left behind.

    Only while the folder is locked: the rest of a write could be one in progress.
    """
    path = Path(output_path(str(path)))
    for left in path.parent.glob(f".{path.name}.*{TEMPORARY}"):
        left.unlink(missing_ok=True)
    replace_file(path, data)


def _failed(path: Path, what: str, error: OSError) -> BaselineError:
    return BaselineError(f"{path} cannot be {what}: {error.strerror or error}")


def read(path: Path) -> list[Run]:
    """Read a baseline file; BaselineError if it is missing, damaged or of another format."""
    return _runs(path, load_data(path))


def _runs(path: Path, data: object) -> list[Run]:
    with _refusing(path):
        file: _File = _File._read("the file", data)
        return list(file.runs)


def load_kind(path: str | Path) -> tuple[str, list[Run]]:
    """Read any of gpuprof's files of results; return its format and the runs, oldest first.

    That is a stored baseline, what ``--gpu-benchmark-json`` wrote, or a `BenchResult` as JSON.
    Anything else is a BaselineError that says what is wrong and where.
    """
    path = Path(path)
    return kind_of(path, load_data(path))


def kind_of(path: Path, data: Any) -> tuple[str, list[Run]]:
    """Do as `load_kind`, with what `load_data` has read of the file."""
    kind = data.get("format") if isinstance(data, dict) else None
    if kind == FORMAT:
        return FORMAT, _runs(path, data)
    with _refusing(path):
        if kind == format_of(BenchResult):
            result = BenchResult._read("the result", data)
            return format_of(BenchResult), [_run_of({result.name: result})]
        if isinstance(data, dict) and isinstance(data.get("benchmarks"), list):
            return "pytest-benchmark", [_session(data)]
        if kind == _STATS_FORMAT:
            message = (
                "it holds statistics of scopes, which have no samples to compare: save benchmarks "
                "instead, with pytest --gpu-benchmark-save=NAME or BenchResult.to_json()"
            )
            raise ValueError(message)
        message = (
            f"it is neither a baseline, nor a file of --gpu-benchmark-json, nor a result: its "
            f"format is {shortened(kind)}"
        )
        raise ValueError(message)


def encode(runs: Sequence[Run]) -> bytes:
    """Return the file of these runs; the oldest are left out where it would grow too large."""
    parts = [json.dumps(run.to_dict(), allow_nan=False) for run in runs]
    while sum(len(part) + 2 for part in parts) > MAX_BYTES - 256:  # some room for the head
        if len(parts) == 1:
            message = f"a run is larger than {MAX_BYTES >> 20} MiB, more than a baseline may hold"
            raise BaselineError(message)
        del parts[0]
    head = f'{{"format": {json.dumps(FORMAT)}, "version": {VERSION}, "runs": ['
    return "\n".join([head, ",\n".join(parts), "]}", ""]).encode("ascii")


def load_data(path: Path) -> Any:
    """Read a file as JSON of bounded size and depth; BaselineError says why it cannot be."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        message = f"{str(path)!r} cannot be read: {reason}"
        raise BaselineError(message) from error
    with _refusing(path):
        if len(raw) > MAX_BYTES:
            message = f"it is larger than {MAX_BYTES >> 20} MiB"
            raise ValueError(message)
        return load_text(raw)


def load_text(raw: bytes) -> Any:
    """Read JSON of bounded size and depth; ValueError says why it cannot be."""
    _check_growth(raw)
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        _check_plain([data])
    except RecursionError:
        message = f"it is nested deeper than {MAX_DEPTH} levels"
        raise ValueError(message) from None
    return data


def _check_growth(raw: bytes) -> None:
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
        what_then = "It is left as it is: repair or move it, or use another name"
        message = f"{path} cannot be used: {error}. {what_then}"
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
    if version is not None and (version != VERSION or isinstance(version, bool)):
        raise value_error(version, "its format_version", f"{VERSION} (it is of another gpuprof)")
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
    found = info.get("id") if isinstance(info, dict) else None
    if not isinstance(found, str) or not isinstance(info, dict):
        return None
    return f"{found}-dirty" if info.get("dirty") is True else found


def _run_of(results: dict[str, BenchResult], commit: str | None = None) -> Run:
    last = list(results.values())[-1]
    return Run(last.created, dict(last.machine), results, commit)
