"""The settings: what options and ini keys say, and marker arguments; the package uses them.

Every start of pytest imports it, so it imports pytest and the standard library only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuprof._pytest import options
from gpuprof._pytest.options import DEFAULT_STORAGE, FAIL_ON, FAIL_ON_BY_DEFAULT, LATEST, NEVER
from gpuprof._pytest.view import View, read_view

if TYPE_CHECKING:
    from gpuprof._pytest.fail_expression import FailExpression
    from gpuprof._results.baselines import Run

FIXTURE = "gpu_benchmark"
# The attribute of a test's report that carries the measurement from worker to controller.
REPORTED = "gpuprof_benchmark"
# What the controller tells its workers.
WORKER_STORAGE = "gpuprof_storage"
WORKER_COMPARE = "gpuprof_compare"
CPU_METRICS = ("time", "instructions")
MODES = ("auto", "graph", "batched", "isolated")
RANKS = ("together", "each")
WARM_UP = ("on", "off", "auto")
WARM_UP_S = 0.2  # the least, as in `gpuprof.benchmark`
# What the marker takes, with the default of each; None leaves it to the option or to
# `gpuprof.benchmark`.
MARKER_ARGUMENTS: dict[str, Any] = {
    "threshold": None,
    "memory_threshold": None,
    "max_ms": None,
    "group": None,
    "mode": "auto",
    "cold_l2": False,
    "scopes": False,
    "launches": None,
    "warmup_s": None,
    "min_samples": None,
    "min_time_s": None,
    "max_time_s": None,
    "rel_precision": None,
    "nbytes": None,
    "flops": None,
    "flops_dtype": None,
    "ranks": None,
    "min_rounds": None,
    "disable_gc": None,
}
# The names that pytest-benchmark's marker has for some of them.
MARKER_ALIASES = {"max_time": "max_time_s", "warmup": "warmup_s", "precision": "rel_precision"}


@dataclass(frozen=True)
class Settings:
    """The values of the options and ini keys. Paths are absolute.

    `compare` is a baseline's name. `measuring` has marker arguments for the tests whose markers do
    not have them. `notes` are shown at the end.
    """

    save: str | None
    compare: str | None
    storage: Path
    json: Path | None
    disabled: bool
    fail_on: frozenset[str]
    memory_threshold: float | None = None
    cpu_metric: str = "time"
    fail_expressions: tuple[FailExpression, ...] = ()
    only: bool = False
    skip: bool = False
    measuring: Mapping[str, Any] = field(default_factory=dict)
    view: View = field(default_factory=View)
    histogram: Path | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def baseline(self) -> dict[str, list[Run]]:
        """The runs to compare with, by the kind of machine; read when first used.

        Raises BaselineError if there is no such baseline, or a file of it is damaged.
        """
        from gpuprof._results.baselines import Baselines

        return Baselines(self.storage).runs(self.compare) if self.compare else {}


def read_settings(config: pytest.Config, name_of_commit: Callable[[Path], str]) -> Settings:
    """Read options and ini keys; raise a usage error if one has an invalid value.

    `name_of_commit` names a baseline after the commit of a folder.
    """

    def path(name: str) -> Path | None:
        value, start = options.text(config, name)
        return start / value if value else None

    options.refuse(config)
    worker = getattr(config, "workerinput", {})
    folder = worker.get(WORKER_STORAGE) or path("storage") or config.rootpath / DEFAULT_STORAGE
    storage = Path(folder).absolute()
    disabled = _is_disabled(config)
    save = options.text(config, "save")[0]
    # Only the controller saves, and only at the end: workers need no name.
    if save is None and options.switch(config, "autosave") and not worker and not disabled:
        save = name_of_commit(config.rootpath)
    expressions, fail_on = _expressions(config), options.text(config, "fail-on")[0]
    # Those who name a figure mean that figure; a verdict fails besides if it is named, too.
    verdicts = _fail_on(NEVER if expressions and fail_on is None else fail_on)
    cpu_metric = options.choice(config, "cpu-metric", CPU_METRICS) or CPU_METRICS[0]
    if cpu_metric == "instructions" and "slow" in verdicts:
        verdicts |= {"instructions"}
    compare = options.text(config, "compare")[0]
    notes: tuple[str, ...] = ()
    if compare == LATEST and not disabled:
        compare = worker[WORKER_COMPARE] if worker else _saved_last(storage)
        if compare is None:
            notes = (f"nothing to compare with: no baseline is saved in {storage} yet",)
    if expressions and compare is None:
        why = notes[0] if notes else "give --gpu-benchmark-compare, too"
        message = f"--gpu-benchmark-compare-fail needs something to compare with: {why}"
        raise pytest.UsageError(message)
    return Settings(
        save=save,
        compare=compare,
        storage=storage,
        json=path("json"),
        disabled=disabled,
        fail_on=verdicts if compare else frozenset(),
        memory_threshold=_fraction(options.text(config, "memory-threshold")[0]),
        fail_expressions=expressions,
        only=options.switch(config, "only"),
        skip=options.switch(config, "skip") and not options.switch(config, "only"),
        measuring=_measuring(config),
        view=read_view(config),
        histogram=path("histogram"),
        notes=notes,
        cpu_metric=cpu_metric,
    )


def _is_disabled(config: pytest.Config) -> bool:
    """Return whether nothing is measured; ``--gpu-benchmark-enable`` undoes the option only."""
    disabled = options.switch(config, "disable") and not options.switch(config, "enable")
    if disabled and options.switch(config, "only"):
        message = (
            "--gpu-benchmark-only and --gpu-benchmark-disable contradict each other; leave one "
            "out, or give --gpu-benchmark-enable where the ini file disables"
        )
        raise pytest.UsageError(message)
    variable = os.environ.get("GPUPROF_DISABLE", "").strip().lower()
    return disabled or variable in {"1", "true", "on", "yes"}


def _saved_last(storage: Path) -> str | None:
    from gpuprof._results.baselines import Baselines
    from gpuprof.errors import BaselineError

    try:
        return Baselines(storage).latest()
    except BaselineError as error:
        message = f"--gpu-benchmark-compare: {error}"
        raise pytest.UsageError(message) from error


def _expressions(config: pytest.Config) -> tuple[FailExpression, ...]:
    given = options.text(config, "compare-fail")[0]
    if given is None:
        return ()
    from gpuprof._pytest.fail_expression import FailExpression

    try:
        return tuple(map(FailExpression.parse, given.split()))
    except ValueError as error:
        message = f"--gpu-benchmark-compare-fail: {error}"
        raise pytest.UsageError(message) from error


def _measuring(config: pytest.Config) -> dict[str, Any]:
    """Return the marker arguments that options and ini keys give to all tests."""
    warm_up = options.choice(config, "warmup", WARM_UP)
    found = {
        "min_rounds": options.whole(config, "min-rounds"),
        "max_time_s": options.number(config, "max-time", "seconds above 0, such as 0.5", math.inf),
        "rel_precision": options.number(
            config, "precision", "a fraction between 0 and 1, such as 0.02", 1.0
        ),
        "warmup_s": 0.0 if warm_up == "off" else None,
        "disable_gc": options.switch(config, "disable-gc") or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _fail_on(text: str | None) -> frozenset[str]:
    given = (text or FAIL_ON_BY_DEFAULT).split(",")
    names = [name.strip().lower() for name in given if name.strip()]
    unknown = [name for name in names if name not in (*FAIL_ON, NEVER)]
    if not names or unknown or (NEVER in names and len(names) > 1):
        message = (
            f"--gpu-benchmark-fail-on is {text!r}; expected {NEVER}, or some of "
            f"{', '.join(FAIL_ON)} separated by commas"
        )
        raise pytest.UsageError(message)
    return frozenset(names) - {NEVER}


def _fraction(text: str | None) -> float | None:
    if text is None:
        return None
    number = text.strip()
    try:
        value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        message = (
            f"--gpu-benchmark-memory-threshold is {text!r}; expected a percentage such as 5%, or a "
            "fraction up to 1 such as 0.05"
        )
        raise pytest.UsageError(message)
    return value


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
            problem = f"has the positional argument {marker.args[0]!r}"
            raise _marker_error(item, problem)
        given.update(_own_names(item, marker.kwargs))
    return {**MARKER_ARGUMENTS, **given}


def _own_names(item: pytest.Item, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check one marker's arguments; return them under gpuprof's names."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        own = MARKER_ALIASES.get(name, name)
        why = options.REFUSED.get(name.replace("_", "-"))
        if why is not None:
            problem = f"has the argument {name!r} of pytest-benchmark's marker, which cannot mean"
            raise _marker_error(item, f"{problem} the same here: {why}")
        if own not in MARKER_ARGUMENTS:
            raise _marker_error(item, f"has the unknown argument {name!r}")
        expected = _expected(name, value)
        if expected and value is not None:
            raise _marker_error(item, f"has {name}={value!r}; expected {expected}")
        if own in found:
            raise _marker_error(item, f"has {own!r} under two names; give one of them")
        found[own] = _warm_up_seconds(value) if name == "warmup" else value
    return found


def _warm_up_seconds(value: Any) -> float | None:
    """Return how long to warm up at least, for the switch that pytest-benchmark's marker has."""
    if value is None:
        return None
    is_off = value is False or (isinstance(value, str) and value.lower() == "off")
    return 0.0 if is_off else WARM_UP_S


def _expected(name: str, value: Any) -> str | None:
    """Say what `name` should be; None if `value` is valid."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "threshold" and not (number and 0 < value <= 1):
        return "a fraction above 0 and up to 1, such as 0.05 for 5 %"
    if name == "memory_threshold" and not (number and 0 <= value <= 1):
        return "a fraction from 0 up to 1, such as 0.05 for 5 %"
    if name == "max_ms" and not (number and value > 0):
        return "milliseconds above 0"
    if name == "group" and not isinstance(value, str):
        return "text"
    if name == "launches" and not isinstance(value, bool):
        return "True, False or None"
    if name == "min_rounds" and not (number and isinstance(value, int) and value >= 1):
        return "a whole number from 1"
    if name == "disable_gc" and not isinstance(value, bool):
        return "True or False"
    if name == "warmup" and not isinstance(value, bool) and str(value).lower() not in WARM_UP:
        return f"True, False, or one of {', '.join(map(repr, WARM_UP))}"
    if name == "ranks" and value not in RANKS:
        return f"one of {', '.join(map(repr, RANKS))}"
    if name == "mode" and value not in MODES:
        return f"one of {', '.join(map(repr, MODES))}"
    return None


def _marker_error(item: pytest.Item, problem: str) -> MarkerError:
    return MarkerError(
        f"{item.nodeid}: the marker {FIXTURE} {problem}; it takes these arguments, by name: "
        f"{', '.join([*MARKER_ARGUMENTS, *MARKER_ALIASES])}"
    )
