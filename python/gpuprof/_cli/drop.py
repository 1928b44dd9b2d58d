"""``gpuprof drop``: removes single runs from a baseline, by number, date or commit."""

from __future__ import annotations

import argparse
import re

from gpuprof._cli.command import Answer, Refused
from gpuprof._common.text import shown_text
from gpuprof._results.baselines import Run
from gpuprof._results.git_store import opened
from gpuprof.errors import BaselineError

_COMMIT = re.compile(r"[0-9a-f]{7,40}")


def run(options: argparse.Namespace) -> Answer:
    """Remove the runs, and return what to print; Refused where not exactly these are meant."""
    try:
        baselines = opened(options.storage)
        stored = baselines.runs(options.name)
        if options.machine is not None:
            stored = {key: runs for key, runs in stored.items() if key == options.machine}
        dropped = {key: set[str]() for key in stored}
        for each in options.runs:
            for key, chosen in _meant(each, stored, options.name):
                dropped[key].add(chosen.created)
        lines = []
        for key, created in dropped.items():
            gone = baselines.drop(options.name, key, created) if created else []
            lines += [f"dropped from {options.name} ({key}): {_shown(each)}" for each in gone]
    except (BaselineError, ValueError) as error:
        raise Refused(str(error)) from error
    return Answer("".join(f"{shown_text(line)}\n" for line in lines))


def _meant(given: str, stored: dict[str, list[Run]], name: str) -> list[tuple[str, Run]]:
    """Return the run that is meant, or all of a commit, each with its machine."""
    every = [
        (key, number, run) for key, runs in stored.items() for number, run in enumerate(runs, 1)
    ]
    if given.isdecimal() and len(given) < 4:
        found = [(key, run) for key, number, run in every if number == int(given)]
    elif _COMMIT.fullmatch(given):
        found = [(key, run) for key, _, run in every if (run.commit or "").startswith(given)]
    else:
        found = [(key, run) for key, _, run in every if run.created.startswith(given)]
    if not found:
        message = (
            f"no run of the baseline {name!r} is {given!r}; expected a number, or the beginning of "
            f"a date or of a commit, as `gpuprof list {name}` shows them"
        )
        raise Refused(message)
    if len(found) > 1 and not _COMMIT.fullmatch(given):
        which = ", ".join(f"{_shown(run)} ({key})" for key, run in found)
        message = f"{given!r} may be any of {which}: give the whole date, or --machine"
        raise Refused(message)
    return found


def _shown(run: Run) -> str:
    return f"the run of {run.created}" + (f", commit {run.commit[:12]}" if run.commit else "")
