"""Baselines: the runs that were saved under a name, in a folder, by kind of machine.

``<root>/baselines/<name>/<machine>.json`` holds the last 20 runs of each benchmark on one kind of
machine, with their raw samples. Two processes may append at once: a lock lets one after the other
read, add and replace, and the lock of a process that dies is free again. A file is replaced as a
whole, so that it is the old one or the new one whenever a process is killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpuprof._common import machine
from gpuprof._results.baseline_file import Run, encode, load_file, read, write
from gpuprof.errors import BaselineError

__all__ = ["DEFAULT_ROOT", "KEPT_RUNS", "Baselines", "Run", "check_name", "load_file"]

DEFAULT_ROOT = ".gpuprof"
KEPT_RUNS = 20  # of each benchmark
MAX_RUNS = 5 * KEPT_RUNS
LOCK_TIMEOUT_S = 60.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOCK = ".lock"
_POLL_S = 0.02


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
    """The baselines in a folder.

    Parameters
    ----------
    root
        The folder, ``.gpuprof`` by default; it need not exist before something is appended.
    """

    def __init__(self, root: str | Path = DEFAULT_ROOT) -> None:
        self._root = Path(root)
        self._folder = self._root / "baselines"

    def __repr__(self) -> str:
        return f"Baselines({str(self._root)!r})"

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def names(self) -> list[str]:
        """Return the names under which something is saved, sorted."""
        try:
            entries = list(self._folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed(self._folder, "read", error) from error
        return sorted(
            entry.name for entry in entries if _NAME.fullmatch(entry.name) and _files(entry)
        )

    def append(self, name: str, run: Run) -> Path:
        """Add a run to a baseline, made if it does not exist; return its file.

        Parameters
        ----------
        name
            What the baseline is called.
        run
            The run; its machine says which file it goes to.

        Raises
        ------
        ValueError
            If a baseline cannot be called so.
        BaselineError
            If the file is damaged, which it then stays, if it cannot be written, or if another
            process holds its lock for a minute.
        """
        folder = self._folder / check_name(name)
        path = folder / f"{machine.key(run.machine)}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / _LOCK):
                runs = read(path) if os.path.lexists(path) else []
                write(path, encode(_kept([*runs, run])))
        except OSError as error:
            raise _failed(path, "written", error) from error
        return path

    def runs(self, name: str) -> dict[str, list[Run]]:
        """Return the runs of a baseline by kind of machine, the oldest first.

        Parameters
        ----------
        name
            What the baseline is called.

        Raises
        ------
        ValueError
            If no baseline can be called so.
        BaselineError
            If there is none of this name, and then it lists those that are there; or if a file is
            damaged.
        """
        files = _files(self._folder / check_name(name))
        if not files:
            known = ", ".join(self.names())
            there = f"there are {known}" if known else "there are none at all"
            message = f"no baseline is called {name!r} in {self._root}: {there}"
            raise BaselineError(message)
        return {path.stem: read(path) for path in files}


def _kept(runs: Sequence[Run]) -> list[Run]:
    """Leave out results that have enough newer ones, and runs that nothing is left of.

    Benchmarks are counted each by itself: one that is not in a run, because it failed or was not
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
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _failed(folder, "read", error) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes and threads out; a process that dies lets go."""
    # A FIFO would be waited for.
    flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            message = f"{path} is in the way: it is the lock of the baseline, and no regular file"
            raise BaselineError(message)
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = f"{path} is locked by another process for {LOCK_TIMEOUT_S:g} seconds"
                    raise BaselineError(message) from None
                time.sleep(_POLL_S)
        try:
            yield
        finally:
            # By hand: a child that was forked meanwhile has the lock too, until it is let go.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def _failed(path: Path, what: str, error: OSError) -> BaselineError:
    return BaselineError(f"{path} cannot be {what}: {error.strerror or error}")
