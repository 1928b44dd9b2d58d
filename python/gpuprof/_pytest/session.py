"""The controller's part: checks the options against the disk, collects records, saves them."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from gpuprof._common import machine, outputs
from gpuprof._common.files import replace_file
from gpuprof._pytest import json_file
from gpuprof._pytest.json_file import Record
from gpuprof._pytest.options import REPORTED
from gpuprof._pytest.settings import Settings
from gpuprof._results.baselines import check_name
from gpuprof._results.git_store import is_git, opened
from gpuprof._results.result import BenchResult
from gpuprof._results.result_files import Run, commit_of
from gpuprof._trace.path import output_path
from gpuprof.errors import BaselineError


def check(settings: Settings) -> None:
    """Raise a usage error before anything is measured, if a baseline cannot be read or written."""
    if settings.json is not None:
        path = str(settings.json)
        wanted = outputs.Output("--gpu-benchmark-json", outputs.SESSION, path)
        if complaint := outputs.complaint([wanted]):
            raise pytest.UsageError(complaint)
        if settings.json.exists() and not settings.json.is_file():  # the write replaces the path
            message = f"--gpu-benchmark-json is {path!r}, no regular file; expected a file"
            raise pytest.UsageError(message)
    folders = {"json": settings.json and Path(os.path.realpath(settings.json)).parent}
    if settings.save and not is_git(settings.storage):
        folders["save"] = settings.storage / "baselines" / settings.save
    for option, folder in folders.items():
        if folder is not None and not _can_be_written(folder):
            message = f"--gpu-benchmark-{option}: the folder {folder} cannot be written"
            raise pytest.UsageError(message)
    option = "compare"
    try:
        if settings.compare:
            _ = settings.baseline
        option = "save"
        stored = opened(settings.storage)
        if settings.save and check_name(settings.save) in stored.names():
            stored.runs(settings.save)
    except (BaselineError, ValueError) as error:
        message = f"--gpu-benchmark-{option}: {error}"
        raise pytest.UsageError(message) from error


class Results:
    """What the tests measured, in the order of their reports."""

    def __init__(self, settings: Settings, config: pytest.Config) -> None:
        self.settings = settings
        self._config = config
        self._records: dict[str, Record] = {}
        self._of_node: dict[str, Record] = {}
        self.notes: list[str] = [*settings.notes]
        self.problems: list[str] = []

    @property
    def records(self) -> list[Record]:
        """A record for each test that measured; a repeated test keeps its last."""
        return list(self._records.values())

    def add(self, report: pytest.TestReport) -> None:
        """Take a report's record; a later phase that fails becomes the test's outcome."""
        if hasattr(report, REPORTED):
            record = Record.from_report(report)
            self._records[record.data["fullname"]] = self._of_node[report.nodeid] = record
        elif report.failed and report.nodeid in self._of_node:
            self._of_node[report.nodeid].outcome = report.outcome

    def finish(self, *, complete: bool) -> None:
        """Write the JSON file and append to the baseline; `problems` has what went wrong."""
        commit: dict[str, Any] = {}
        if self.settings.json or self.settings.save:
            commit = json_file.commit_info(self._config.rootpath)
        if self.settings.json:
            content = json_file.document(self.records, commit)
            try:
                _write(self.settings.json, content)
                self.notes.append(f"wrote {_shown(self.settings.json)}")
            except (OSError, ValueError) as error:
                self.problems.append(f"the JSON file was not written: {error}")
        if self.settings.save and not self.settings.disabled:
            if complete:
                self._save(self.settings.save, commit_of(commit))
            elif self.records:
                self.notes.append("nothing was saved: the run was cut short")

    def _save(self, name: str, commit: str | None) -> None:
        passed = [record for record in self.records if record.outcome == "passed"]
        by_machine: dict[str, dict[str, BenchResult]] = {}
        for record in passed:
            results = by_machine.setdefault(machine.key(record.result.machine), {})
            results[record.data["fullname"]] = record.result
        if left_out := len(self.records) - len(passed):
            self.notes.append(f"not saved, because the test did not pass: {left_out}")
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        for results in by_machine.values():
            where = dict(next(iter(results.values())).machine)
            run = Run(created=now, machine=where, results=results, commit=commit)
            try:
                path = opened(self.settings.storage).append(name, run)
            except (BaselineError, OSError, ValueError) as error:
                self.problems.append(f"the baseline {name!r} was not saved: {error}")
            else:
                self.notes.append(f"saved {len(results)} in the baseline {name!r}: {_shown(path)}")


def _shown(path: Path) -> str:
    with suppress(ValueError):  # it lies elsewhere
        path = path.relative_to(Path.cwd())
    return str(path)


def _can_be_written(folder: Path) -> bool:
    """Return whether files can be made in a folder, which need not exist yet."""
    with suppress(OSError):
        while not folder.exists():
            folder = folder.parent
        return folder.is_dir() and os.access(folder, os.W_OK)
    return False


def _write(path: Path, content: dict[str, Any]) -> None:
    path = Path(output_path(str(path)))
    outputs.refuse_foreign(path, outputs.SESSION)  # a test may have put a file there meanwhile
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    replace_file(path, text.encode("ascii"))
