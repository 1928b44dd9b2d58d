"""The controller's part: it checks what the options name, collects, saves and has it shown."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuprof._pytest import plugin
from gpuprof.errors import BaselineError

if TYPE_CHECKING:
    from gpuprof._pytest.plugin import Settings

_FOR_VERDICTS = ("numpy", "scipy")


def check(settings: Settings) -> None:
    """Raise a usage error if a baseline cannot be compared with or written.

    Better now than after an hour of measuring.
    """
    from gpuprof._results.baselines import Baselines, check_name

    if settings.compare:
        missing = [name for name in _FOR_VERDICTS if importlib.util.find_spec(name) is None]
        if missing:
            message = (
                f"--gpu-benchmark-compare needs {' and '.join(missing)}, which "
                f"{'is' if len(missing) == 1 else 'are'} not installed: "
                "pip install 'gpuprof[bench]'"
            )
            raise pytest.UsageError(message)
    # What is no regular file, such as a device, would be replaced by one.
    if settings.json is not None and _is_in_the_way(settings.json):
        what = "a folder" if settings.json.is_dir() else "no regular file"
        message = f"--gpu-benchmark-json is {str(settings.json)!r}, {what}; expected a file"
        raise pytest.UsageError(message)
    folders = {"json": settings.json and Path(os.path.realpath(settings.json)).parent}
    folders["save"] = settings.storage / "baselines" / settings.save if settings.save else None
    for option, folder in folders.items():
        if folder is not None and not _can_be_written(folder):
            message = f"--gpu-benchmark-{option}: the folder {folder} cannot be written"
            raise pytest.UsageError(message)
    option = "compare"
    try:
        if settings.compare:
            _ = settings.baseline
        option = "save"
        stored = Baselines(settings.storage)
        if settings.save and check_name(settings.save) in stored.names():
            stored.runs(settings.save)
    except (BaselineError, ValueError) as error:
        message = f"--gpu-benchmark-{option}: {error}"
        raise pytest.UsageError(message) from error


class Results:
    """What the tests measured, in the order of their reports."""

    def __init__(self, settings: Settings, root: Path) -> None:
        self._settings = settings
        self._root = root
        self.records: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}
        self.notes: list[str] = []
        self.problems: list[str] = []

    @property
    def settings(self) -> Settings:
        """What the options ask for."""
        return self._settings

    def add(self, report: pytest.TestReport) -> None:
        """Take what a report brings; a later phase that fails counts as the test's outcome."""
        record = getattr(report, plugin.REPORTED, None)
        if record is not None:
            self._keys[report.nodeid] = record["key"]
            self.records[record["key"]] = {**record, "outcome": report.outcome}
        elif report.failed and report.nodeid in self._keys:
            self.records[self._keys[report.nodeid]]["outcome"] = report.outcome

    def finish(self, *, complete: bool) -> None:
        """Write the JSON file and append to the baseline; `problems` has what went wrong."""
        from gpuprof._pytest import json_file

        commit: dict[str, Any] = {}
        if self._settings.json or self._settings.save:
            commit = json_file.commit_info(self._root)
        if self._settings.json:
            try:
                _write(self._settings.json, json_file.document(self.records.values(), commit))
                self.notes.append(f"wrote {_shown(self._settings.json)}")
            except (OSError, ValueError) as error:  # ValueError: what no JSON can hold
                self.problems.append(f"the JSON file was not written: {error}")
        if self._settings.save and not self._settings.disabled:
            if complete:
                self._save(self._settings.save, commit.get("id"))
            elif self.records:
                self.notes.append("nothing was saved: the run was cut short")

    def _save(self, name: str, commit: str | None) -> None:
        from gpuprof._common import machine as common_machine
        from gpuprof._results.baselines import Baselines, Run
        from gpuprof._results.result import BenchResult

        passed = [each for each in self.records.values() if each["outcome"] == "passed"]
        by_machine: dict[str, dict[str, BenchResult]] = {}
        for record in passed:
            result = BenchResult.from_dict(record["results"][-1])
            by_machine.setdefault(common_machine.key(result.machine), {})[record["key"]] = result
        left_out = len(self.records) - len(passed)
        if left_out:
            self.notes.append(f"not saved, because the test did not pass: {left_out}")
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        for results in by_machine.values():
            machine = dict(next(iter(results.values())).machine)
            try:
                path = Baselines(self._settings.storage).append(
                    name, Run(created=now, machine=machine, results=results, commit=commit)
                )
            except (BaselineError, OSError, ValueError) as error:
                self.problems.append(f"the baseline {name!r} was not saved: {error}")
            else:
                self.notes.append(f"saved {len(results)} in the baseline {name!r}: {_shown(path)}")

    def show(self, reporter: pytest.TerminalReporter) -> None:
        """Write the table and what became of the files."""
        from gpuprof._pytest import terminal

        terminal.show(self, reporter)


def _shown(path: Path) -> str:
    """Return a path as somebody who stands here would write it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _is_in_the_way(path: Path) -> bool:
    with suppress(OSError):
        return not stat.S_ISREG(path.stat().st_mode)
    return False


def _can_be_written(folder: Path) -> bool:
    """Return whether files can be made in a folder, which need not exist yet."""
    with suppress(OSError):
        while not folder.exists():
            folder = folder.parent
        return os.access(folder, os.W_OK)
    return False


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON so that the file is there as a whole or not at all; a link stays one."""
    from gpuprof._common.files import replace_file
    from gpuprof._trace.path import output_path

    path = Path(output_path(str(path)))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    replace_file(path, text.encode("ascii"))
