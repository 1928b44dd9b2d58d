"""What ``gpuprof compare`` reads: a saved baseline by name, or one of our JSON files.

Files come from anywhere: whatever is in one, it is an `InputError` that names the file, and the
file is left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuprof._common import machine
from gpuprof._results.baselines import Baselines, Run, load_kind
from gpuprof._results.result import FORMAT as RESULT_FORMAT
from gpuprof.errors import BaselineError


class InputError(Exception):
    """One side of a comparison cannot be had; the text says which, why, and what there is."""


@dataclass(frozen=True)
class Source:
    """One side: benchmark runs by the key of their machine, oldest first."""

    label: str
    runs: Mapping[str, list[Run]]
    is_one_result: bool = False

    @property
    def run_count(self) -> int:
        """How many runs there are on all machines."""
        return sum(map(len, self.runs.values()))


def load(given: str, storage: str) -> Source:
    """Find what `given` names: a saved baseline in the folder `storage`, else a file.

    Raises
    ------
    InputError
    """
    try:
        baselines = Baselines(storage)
        names = baselines.names()
        if given in names:
            return Source(f"baseline {given!r} in {storage}", baselines.runs(given))
    except BaselineError as error:
        raise InputError(str(error)) from error
    path = Path(given)
    if path.suffix == ".json" or os.sep in given or os.path.lexists(path):
        return _from_file(path)
    there = ", ".join(map(repr, names)) if names else "none"
    message = f"{given!r} is neither a file nor a baseline saved in {storage} (there: {there})"
    raise InputError(message)


def _from_file(path: Path) -> Source:
    try:
        form, found = load_kind(path)
    except BaselineError as error:
        raise InputError(str(error)) from error
    runs: dict[str, list[Run]] = {}
    for run in found:
        runs.setdefault(machine.key(run.machine), []).append(run)
    return Source(f"file {path}", runs, is_one_result=form == RESULT_FORMAT)
