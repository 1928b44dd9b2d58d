"""The settings: what options and ini keys say, and marker arguments; the package uses them.

Every start of pytest imports it, so it imports little.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuprof._pytest.options import (
    ALIASES,
    ARGUMENTS,
    FAIL_ON_BY_DEFAULT,
    GIT,
    LATEST,
    NEVER,
    OPTIONS,
    STORAGE,
    value,
    warm_up,
)

if TYPE_CHECKING:
    from gpuprof._results.result_files import Run

FIXTURE = "gpu_benchmark"
# What the controller tells its workers.
WORKER_STORAGE = "gpuprof_storage"
WORKER_COMPARE = "gpuprof_compare"
# Of a process that measures one test for another pytest: the file for the result.
RESULT_FILE = "GPUPROF_BENCHMARK_RESULT"
# The options whose values become settings unchanged.
_PLAIN = ("json", "reruns", "only", "columns", "sort", "group-by")
# What the marker takes, with the default of each.
MARKER_ARGUMENTS: dict[str, Any] = {name: declared.default for name, declared in ARGUMENTS.items()}


@dataclass(frozen=True)
class Settings:
    """The values of the options and ini keys. Paths are absolute; `storage` may be a
    git ref, as in ``git:refs/gpuprof``.

    `compare` is a baseline's name, and `reruns` how many processes measure a test again.
    `measuring` has marker arguments for the tests whose markers do not have them. `notes` are shown
    at the end. Without `columns` the tables have the usual ones; without `sort` the tests are in
    their order.
    """

    storage: Path
    save: str | None = None
    compare: str | None = None
    json: Path | None = None
    disabled: bool = False
    fail_on: frozenset[str] = frozenset()
    reruns: int = 2
    verbose: bool = False
    only: bool = False
    skip: bool = False
    measuring: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    sort: str | None = None
    group_by: tuple[str, ...] = ("group",)
    notes: tuple[str, ...] = ()

    @cached_property
    def baseline(self) -> dict[str, list[Run]]:
        """The runs to compare with, by the kind of machine; reading them may be a BaselineError."""
        from gpuprof._results.git_store import opened

        return opened(self.storage).runs(self.compare) if self.compare else {}


def read_settings(config: pytest.Config) -> Settings:
    """Read options and ini keys; raise a usage error if one has an invalid value."""
    worker = getattr(config, "workerinput", {})
    given = {option.name: value(config, option) for option in OPTIONS}
    storage = Path(worker.get(WORKER_STORAGE) or given["storage"] or config.rootpath / STORAGE)
    if not str(storage).startswith(GIT):
        storage = storage.absolute()
    measuring = _measuring(given)
    if RESULT_FILE in os.environ:
        file = Path(os.environ[RESULT_FILE])
        return Settings(storage=storage, json=file, measuring=measuring)
    disabled = _is_disabled(given)
    save = given["save"]
    # Only the controller saves, and only at the end: workers need no name.
    if save is None and given["autosave"] and not worker and not disabled:
        from gpuprof._pytest.json_file import name_of_commit

        save = name_of_commit(config.rootpath)
    verdicts = frozenset(given["fail-on"] or FAIL_ON_BY_DEFAULT.split(",")) - {NEVER}
    compare = given["compare"]
    notes: tuple[str, ...] = ()
    if compare == LATEST and not disabled:
        compare = worker[WORKER_COMPARE] if worker else _saved_last(storage)
        if compare is None:
            notes = (f"nothing to compare with: no baseline is saved in {storage} yet",)
    plain = {name.replace("-", "_"): given[name] for name in _PLAIN if given[name] is not None}
    return Settings(
        save=save,
        compare=compare,
        storage=storage,
        disabled=disabled,
        fail_on=verdicts if compare else frozenset(),
        skip=given["skip"] and not given["only"],
        measuring=measuring,
        notes=notes,
        verbose=config.getoption("verbose", 0) > 0,
        **plain,
    )


def _is_disabled(given: Mapping[str, Any]) -> bool:
    """Return whether nothing is measured; ``--gpu-benchmark-enable`` undoes the option only."""
    disabled = given["disable"] and not given["enable"]
    if disabled and given["only"]:
        message = (
            "--gpu-benchmark-only and --gpu-benchmark-disable contradict each other; leave one "
            "out, or give --gpu-benchmark-enable where the ini file disables"
        )
        raise pytest.UsageError(message)
    variable = os.environ.get("GPUPROF_DISABLE", "").strip().lower()
    return disabled or variable in {"1", "true", "on", "yes"}


def _saved_last(storage: Path) -> str | None:
    from gpuprof._results.git_store import opened
    from gpuprof.errors import BaselineError

    try:
        return opened(storage).latest()
    except BaselineError as error:
        message = f"--gpu-benchmark-compare: {error}"
        raise pytest.UsageError(message) from error


def _measuring(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {each.argument: given[each.name] for each in OPTIONS if each.argument}
    if given["warmup"] == "off":
        found["warmup_s"] = 0.0
    return {name: each for name, each in found.items() if each is not None and each is not False}


class MarkerError(Exception):
    """A marker has an unknown argument or an invalid value."""


def marker_arguments(item: pytest.Item) -> dict[str, Any]:
    """Merge a test's markers, the closest winning, with the defaults; raise `MarkerError`."""
    given: dict[str, Any] = {}
    # pytest puts the marks of a set of parameters behind those of the function.
    of_parameters = getattr(getattr(item, "callspec", None), "marks", ())
    closer = [marker for marker in of_parameters if marker.name == FIXTURE]
    for marker in (*reversed(list(item.iter_markers(FIXTURE))), *closer):
        if marker.args:
            raise _marker_error(item, f"has the positional argument {marker.args[0]!r}")
        given.update(_own_names(item, marker.kwargs))
    return {**MARKER_ARGUMENTS, **given}


def _own_names(item: pytest.Item, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check one marker's arguments; return them under gpuprof's names."""
    found: dict[str, Any] = {}
    for name, each in given.items():
        own = ALIASES.get(name, name)
        if own not in ARGUMENTS:
            raise _marker_error(item, f"has the unknown argument {name!r}")
        if own in found:
            raise _marker_error(item, f"has {own!r} under two names; give one of them")
        found[own] = each
        check = ARGUMENTS[own].check
        try:
            if name == "warmup":
                found[own] = warm_up(name, each)
            elif check is not None and each is not None:
                check(name, each)
        except (TypeError, ValueError) as error:
            raise _marker_error(item, f"has a wrong argument: {error}") from error
    return found


def _marker_error(item: pytest.Item, problem: str) -> MarkerError:
    return MarkerError(
        f"{item.nodeid}: the marker {FIXTURE} {problem}; it takes these arguments, by name: "
        f"{', '.join([*MARKER_ARGUMENTS, *ALIASES])}"
    )
