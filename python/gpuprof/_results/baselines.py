"""Baselines: the runs that were saved under a name, by kind of machine, as lines of JSON.

``<name>/<machine>.jsonl`` has a line for each run with its raw samples, and one for each run that
was dropped. These files are in a folder, or in a git ref (`git_store`). Lines are not trusted: they
are read as `result_files` reads files, and an error names the line. Runs that are too old to be
used are read no further than their names.
"""

from __future__ import annotations

import io
import json
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from gpuprof._common import machine
from gpuprof._common.files import TEMPORARY, FileLock, replace_file
from gpuprof._results import result_files
from gpuprof._results.result_files import Run, check_growth, check_size, load_text, read_bytes
from gpuprof._trace.path import output_path
from gpuprof.errors import BaselineError

DEFAULT_ROOT = ".gpuprof"
KEPT_RUNS = 20  # of each benchmark
MAX_RUNS = 5 * KEPT_RUNS
LOCK_TIMEOUT_S = 60.0
Key: TypeAlias = "tuple[str, str]"  # a name and a machine

_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_FILE = re.compile(rf"({_NAME})/([A-Za-z0-9._-]+)\.jsonl")
_LOCK = ".lock"


def check_name(name: str) -> str:
    """Return `name` if a baseline can be called so; ValueError says what can be."""
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        message = (
            f"a baseline cannot be called {name!r}; expected 1 to 100 of the letters A to Z and a "
            "to z, digits, '.', '_' and '-', the first one a letter or a digit"
        )
        raise ValueError(message)
    return name


def file_of(key: Key) -> str:
    return f"{key[0]}/{key[1]}.jsonl"


def key_of(file: str) -> Key | None:
    """Return the name and the machine of a file of runs; None of other files."""
    match = _FILE.fullmatch(file)
    return (match[1], match[2]) if match else None


class Baselines(ABC):
    """The baselines in a store, which need not exist before something is appended."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @abstractmethod
    def sync(self, remote: str) -> str:
        """Join what is saved with that of a remote; return what was done."""

    @abstractmethod
    def place(self, key: Key) -> Path:
        """Return where a file is, for people."""

    @abstractmethod
    def _files(self, name: str | None = None) -> dict[Key, str]:
        """Return what `_contents` needs of each file, or of those of a baseline, sorted."""

    @abstractmethod
    def _contents(self, files: Mapping[Key, str]) -> dict[Key, bytes]: ...

    @abstractmethod
    def _add(self, key: Key, lines: list[bytes], message: str) -> None:
        """Add lines to a file; the message says why."""

    def names(self) -> list[str]:
        """Return the names under which something is saved, sorted."""
        return sorted({name for name, _ in self._files()})

    def latest(self) -> str | None:
        """Return the name under which a run was saved last; None if nothing is saved.

        A BaselineError says that a file is damaged: it may be the one.
        """
        found = [
            (run.created, key[0])
            for key, data in self._contents(self._files()).items()
            for run in self._read(key, data, 1)[-1:]
        ]
        return max(found)[1] if found else None

    def append(self, name: str, run: Run) -> Path:
        """Add a run to a baseline, which is made if needed; return the file of the run's machine.

        A damaged file stays as it is. That, a store that cannot be written, and another process
        that holds the lock for a minute are a BaselineError.
        """
        key = check_name(name), machine.key(run.machine)
        line = _line(run)
        check_size("a run", len(line) + 1)
        self._add(key, [line], f"Save a run of {name}")
        return self.place(key)

    def drop(self, name: str, machine_key: str, created: Collection[str]) -> list[Run]:
        """Remove the runs that were made at these times, and return them; errors as of `append`."""
        runs = [run for run in self.runs(name).get(machine_key, []) if run.created in created]
        lines = [json.dumps({"dropped": run.created}).encode("ascii") for run in runs]
        if lines:
            self._add((name, machine_key), lines, f"Drop runs of {name}")
        return runs

    def runs(self, name: str, most: int = KEPT_RUNS) -> dict[str, list[Run]]:
        """Return the runs of a baseline by kind of machine, the oldest first.

        There are up to `most` of each benchmark where a store keeps more than 20. A BaselineError
        says that a file is damaged, or lists the baselines if there is none of this name.
        """
        contents = self._contents(self._files(check_name(name)))
        if not contents:
            there = ", ".join(self.names()) or "none at all"
            message = f"no baseline is called {name!r} in {self.root}: there are {there}"
            raise BaselineError(message)
        return {key[1]: self._read(key, data, most) for key, data in contents.items()}

    def _read(self, key: Key, data: bytes, most: int) -> list[Run]:
        """Return the last runs in a file, the oldest first."""
        lines: list[tuple[str, int, dict[str, Any]]] = []
        dropped: set[str] = set()
        # Of each benchmark: one that failed in a run, or was not selected, keeps its baseline.
        counts: Counter[str] = Counter()
        found = []
        place = 0
        try:
            check_growth(data)
            for place, raw in enumerate(io.BytesIO(data)):  # one at a time: there may be millions
                line = load_text(raw.rstrip(b"\r\n"))
                if isinstance(line, dict) and isinstance(line.get("dropped"), str):
                    dropped.add(line["dropped"])
                    continue
                is_run = isinstance(line, dict) and isinstance(line.get("results"), dict)
                if not is_run or not isinstance(line.get("created"), str):
                    message = "it is neither a run nor one that was dropped"
                    raise ValueError(message)
                lines.append((line["created"], place, line))
            newest_first = sorted(lines, key=lambda each: each[:2], reverse=True)
            for created, place, line in newest_first:  # noqa: B007  # an error names the place
                given = line["results"].items()
                results = {name: each for name, each in given if counts[name] < most}
                if created not in dropped and results:
                    counts.update([*results])
                    found.append(Run.from_dict({**line, "results": results}))
        except ValueError as error:
            message = f"{self.place(key)}, line {place + 1} cannot be used: {error}"
            raise BaselineError(message) from None
        return found[::-1]


class FolderBaselines(Baselines):
    """The baselines in a folder, whose files have the last 20 runs of each benchmark.

    Two processes may append at once: a lock lets one after the other read, add and replace.
    """

    def place(self, key: Key) -> Path:
        return self.root / "baselines" / file_of(key)

    def sync(self, remote: str) -> str:
        message = f"{self.root} is a folder: it has no {remote!r} to be joined with"
        raise BaselineError(message)

    def _files(self, name: str | None = None) -> dict[Key, str]:
        folder = self.root / "baselines"
        names = _listed(folder) if name is None else [name]
        files = (f"{each}/{file}" for each in names for file in _listed(folder / each))
        return {key: file for file in files if (key := key_of(file))}

    def _contents(self, files: Mapping[Key, str]) -> dict[Key, bytes]:
        return {key: read_bytes(self.place(key)) for key in files}

    def _add(self, key: Key, lines: list[bytes], message: str) -> None:  # noqa: ARG002
        path = self.place(key)
        file = path.parent / _LOCK
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(file) as lock:
                if not lock.acquire(LOCK_TIMEOUT_S):
                    held = f"{file} is locked by another process for {LOCK_TIMEOUT_S:g} seconds"
                    raise BaselineError(held)
                old = read_bytes(path) if os.path.lexists(path) else b""
                end = b"" if not old or old.endswith(b"\n") else b"\n"
                runs = self._read(key, old + end + b"\n".join(lines), KEPT_RUNS)[-MAX_RUNS:]
                kept = [_line(run) + b"\n" for run in runs]
                while sum(map(len, kept)) > result_files.MAX_BYTES:
                    del kept[0]
                _write(path, b"".join(kept))
        except OSError as error:
            why = f"{path} cannot be written: {error.strerror or error}"
            raise BaselineError(why) from error


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        message = f"{folder} cannot be read: {error.strerror or error}"
        raise BaselineError(message) from error


def _line(run: Run) -> bytes:
    return json.dumps(run.to_dict(), allow_nan=False).encode("ascii")


def _write(path: Path, data: bytes) -> None:
    """Replace a file, following a link, and remove what an interrupted write left behind.

    Only while the folder is locked: the rest of a write could be one in progress.
    """
    path = Path(output_path(str(path)))
    for left in path.parent.glob(f".{path.name}.*{TEMPORARY}"):
        left.unlink(missing_ok=True)
    replace_file(path, data)
