"""What ``gpuprof compare`` reads: a saved baseline by name, or one of our JSON files.

Files come from anywhere: whatever is in one, it is an `InputError` that names the file, and the
file is left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprof._common import machine
from gpuprof._results.baseline_file import _load as read_json
from gpuprof._results.baselines import Baselines, Run, load_file
from gpuprof._results.result import FORMAT as RESULT_FORMAT
from gpuprof._timing.stats import FORMAT as STATS_FORMAT
from gpuprof._timing.stats import Stats
from gpuprof.errors import BaselineError

MAX_COUNT = 1 << 62


class InputError(Exception):
    """One side of a comparison cannot be had; the text says which, why, and what there is."""


@dataclass(frozen=True)
class Source:
    """One side: benchmark runs by the key of their machine, oldest first, or statistics."""

    label: str
    runs: Mapping[str, list[Run]]
    stats: Stats | None = None
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
        data = read_json(path)
        form = data.get("format") if isinstance(data, dict) else None
        if form == STATS_FORMAT:
            return Source(f"statistics in {path}", {}, _stats(data))
        runs: dict[str, list[Run]] = {}
        for run in load_file(path):
            runs.setdefault(machine.key(run.machine), []).append(run)
    except (BaselineError, ValueError) as error:
        text = str(error)
        raise InputError(text if str(path) in text else f"{path}: {text}") from error
    return Source(f"file {path}", runs, is_one_result=form == RESULT_FORMAT)


def _stats(data: dict[str, Any]) -> Stats:
    try:
        stats = Stats.from_dict(data)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        message = f"these are no saved statistics: {type(error).__name__}: {error}"
        raise ValueError(message) from error
    for row in stats.values():
        if not 0 <= row.time.count < MAX_COUNT:
            message = f"row {row.path!r} has a count of {row.time.count}"
            raise ValueError(message)
    return stats
