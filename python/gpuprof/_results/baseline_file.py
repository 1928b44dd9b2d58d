"""Files of results: how a run is written, and how one that may be anything is read.

A file is not trusted: it may have been merged by hand, cut off by a full disk, or come with a
checkout from somebody else. Only regular files up to a size are read, as strict JSON of a version
and depth that is known, and every field is checked. What is wrong is a `BaselineError` that names
the file and the place; a file that is wrong is never changed. Writing is all or nothing: whoever
reads sees the old file or the new one.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuprof._results.result import FORMAT as RESULT_FORMAT
from gpuprof._results.result import BenchResult
from gpuprof._trace.path import output_path
from gpuprof.errors import BaselineError

FORMAT = "gpuprof-baseline"
VERSION = 1
MAX_BYTES = 256 << 20
MAX_DEPTH = 32
# Decoded, a file of ours takes at most five times its size; `[],` over and over takes fifty times.
MAX_GROWTH = 12
GROWTH_COUNTS_FROM = 64 << 20
_TEMPORARY = ".tmp"


@dataclass(frozen=True)
class Run:
    """The results of one run of a program, by the name of the benchmark.

    Attributes
    ----------
    created : str
        When, as ISO 8601 text in UTC.
    machine : dict
        The machine that measured.
    results : dict
        The `BenchResult` of each benchmark.
    commit : str or None
        The version of the measured code.
    """

    created: str
    machine: dict[str, Any]
    results: dict[str, BenchResult] = field(default_factory=dict)
    commit: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form, for JSON."""
        return {
            "created": self.created,
            "commit": self.commit,
            "machine": _finite(self.machine),
            "results": {name: result.to_dict() for name, result in self.results.items()},
        }

    @classmethod
    def from_dict(cls, data: object, where: str = "the run") -> Run:
        """Build one from what `to_dict` returned; ValueError names what is wrong, and where."""
        found = _members(data, where, ("created", "commit", "machine", "results"))
        created, commit = found["created"], found["commit"]
        if not isinstance(created, str):
            raise _wrong(created, f"{where}.created", "text")
        if commit is not None and not isinstance(commit, str):
            raise _wrong(commit, f"{where}.commit", "text or null")
        for key in ("machine", "results"):
            if not isinstance(found[key], dict):
                raise _wrong(found[key], f"{where}.{key}", "an object")
        results = {
            name: _result(value, f"{where}.results[{name!r}]")
            for name, value in found["results"].items()
        }
        return cls(created, found["machine"], results, commit)


def read(path: Path) -> list[Run]:
    """Read a baseline file; BaselineError if it is missing, damaged or of another format."""
    data = _load(path)
    try:
        return _baseline(data)
    except ValueError as error:
        raise _refused(path, error) from None


def load_file(path: str | Path) -> list[Run]:
    """Read the runs in any of gpuprof's files of results.

    Parameters
    ----------
    path
        A stored baseline, what ``--gpu-benchmark-json`` wrote, or a `BenchResult` as JSON.

    Returns
    -------
    list of Run
        Oldest first; one, for files of a single run.

    Raises
    ------
    BaselineError
        If it is missing, damaged or of another format; the text says what is wrong and where.
    """
    path = Path(path)
    data = _load(path)
    try:
        kind = data.get("format") if isinstance(data, dict) else None
        if kind == FORMAT:
            return _baseline(data)
        if kind == RESULT_FORMAT:
            result = _result(data, "the result")
            return [_run_of({result.name: result})]
        if isinstance(data, dict) and isinstance(data.get("benchmarks"), list):
            return [_session(data)]
        message = (
            f"it is neither a baseline, nor a file of --gpu-benchmark-json, nor a result: its "
            f"format is {_shown(kind)}"
        )
        raise ValueError(message)
    except ValueError as error:
        raise _refused(path, error) from None


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


def write(path: Path, data: bytes) -> None:
    """Replace a file with `data`, all or nothing, and wait until it is on the disk.

    A link is followed. Call it with the folder locked: what an interrupted write left behind is
    removed.
    """
    path = Path(output_path(str(path)))
    for left in path.parent.glob(f".{path.name}.*{_TEMPORARY}"):
        left.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            with suppress(FileNotFoundError):  # keep what the user allowed others to do
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode) & 0o777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # not every file system can; the file itself is on the disk
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _load(path: Path) -> Any:
    try:
        # A FIFO would be waited for, so nothing is opened for its contents before it is known.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as opened:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                message = f"{path} is not a regular file; expected a file of results"
                raise BaselineError(message)
            raw = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        message = f"{str(path)!r} cannot be read: {reason}"
        raise BaselineError(message) from error
    try:
        if len(raw) > MAX_BYTES:
            message = f"it is larger than {MAX_BYTES >> 20} MiB"
            raise ValueError(message)
        _check_growth(raw)
        data = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        _check_plain(data)
    except RecursionError:
        raise _refused(path, f"it is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise _refused(path, error) from None
    return data


def _check_growth(raw: bytes) -> None:
    """Raise ValueError for a document that takes far more memory than its size."""
    taken = 40 * raw.count(b",") + 64 * raw.count(b"[") + 240 * raw.count(b"{")
    if taken > GROWTH_COUNTS_FROM and taken > MAX_GROWTH * len(raw):
        message = f"it would take {taken >> 20} MiB of memory, which no file of results does"
        raise ValueError(message)


def _refused(path: Path, why: object) -> BaselineError:
    return BaselineError(
        f"{path} cannot be used: {why}. It is left as it is: repair or move it, or use another name"
    )


def _refuse_constant(constant: str) -> float:
    message = f"it holds {constant}, which is no JSON"
    raise ValueError(message)


def _check_plain(data: object) -> None:
    """Raise ValueError where a document is deeper than ours are, or holds what is not finite."""
    levels: list[Iterator[Any]] = [iter([data])]
    while levels:
        for value in levels[-1]:
            if isinstance(value, float) and not math.isfinite(value):
                message = "it holds a number that is too large"
                raise ValueError(message)
            if isinstance(value, (dict, list)):
                if len(levels) > MAX_DEPTH:
                    message = f"it is nested deeper than {MAX_DEPTH} levels"
                    raise ValueError(message)
                levels.append(iter(value.values() if isinstance(value, dict) else value))
                break
        else:
            levels.pop()


def _baseline(data: object) -> list[Run]:
    if not isinstance(data, dict):
        raise _wrong(data, "the file", "an object")
    version = data.get("version")
    if data.get("format") != FORMAT:
        raise _wrong(data.get("format"), "its format", repr(FORMAT))
    # Before the members, which another version may have others of.
    if version != VERSION or isinstance(version, bool):
        raise _wrong(version, "its version", f"{VERSION}: it is of another version of gpuprof")
    found = _members(data, "the file", ("format", "version", "runs"))
    if not isinstance(found["runs"], list):
        raise _wrong(found["runs"], "runs", "a list")
    return [Run.from_dict(run, f"runs[{place}]") for place, run in enumerate(found["runs"])]


def _session(data: Mapping[str, Any]) -> Run:
    """Return the run that a test session wrote in the form of pytest-benchmark."""
    version = data.get("format_version")
    if version is not None and (version != VERSION or isinstance(version, bool)):
        raise _wrong(version, "its format_version", f"{VERSION}: it is of another gpuprof")
    results = {}
    for place, entry in enumerate(data["benchmarks"]):
        where = f"benchmarks[{place}]"
        own = entry.get("gpuprof") if isinstance(entry, dict) else None
        if not isinstance(own, dict):
            message = f"{where} has no object 'gpuprof': gpuprof did not measure it"
            raise ValueError(message)
        result = _result(own.get("result"), f"{where}.gpuprof.result")
        results[str(entry.get("fullname") or result.name)] = result
    if not results:
        message = "it holds no benchmark"
        raise ValueError(message)
    commit = data.get("commit_info")
    found = commit.get("id") if isinstance(commit, dict) else None
    return _run_of(results, found if isinstance(found, str) else None)


def _run_of(results: dict[str, BenchResult], commit: str | None = None) -> Run:
    last = list(results.values())[-1]
    return Run(last.created, dict(last.machine), results, commit)


def _result(data: object, where: str) -> BenchResult:
    if not isinstance(data, dict):
        raise _wrong(data, where, "an object")
    try:
        return BenchResult.from_dict(data)
    except ValueError as error:
        message = f"{where}: {error}"
        raise ValueError(message) from None


def _members(data: object, where: str, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise _wrong(data, where, "an object")
    wrong = sorted(data.keys() ^ set(names))
    if wrong:
        message = f"{where} has the members {', '.join(names)} and no others; wrong: {wrong[0]!r}"
        raise ValueError(message)
    return data


def _finite(value: Any, depth: int = 0) -> Any:
    """Return a description of a machine as JSON can hold it."""
    if isinstance(value, Mapping) and depth < 16:
        return {str(key): _finite(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and depth < 16:
        return [_finite(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def _wrong(value: object, what: str, expected: str) -> ValueError:
    return ValueError(f"{what} is {_shown(value)}; expected {expected}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
