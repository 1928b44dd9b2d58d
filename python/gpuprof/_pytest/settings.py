"""The settings: options, ini keys and marker arguments, which the rest of the package uses.

Every start of pytest imports it, so it imports pytest and the standard library only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpuprof._results.baselines import Run

FIXTURE = "gpu_benchmark"
# The attribute of a test's report that carries the measurement from worker to controller.
REPORTED = "gpuprof_benchmark"
WORKER_STORAGE = "gpuprof_storage"
FAIL_ON = ("slow", "memory", "launches", "instructions", "ambiguous", "nodata", "incomparable")
FAIL_ON_BY_DEFAULT = "slow,memory,launches"
CPU_METRICS = ("time", "instructions")
NEVER = "never"
DEFAULT_STORAGE = ".gpuprof"
MODES = ("auto", "graph", "batched", "isolated")
# What the marker takes, with the default of each; None leaves it to `gpuprof.benchmark`.
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
}


@dataclass(frozen=True)
class Settings:
    """The values of the options and ini keys. Paths are absolute."""

    save: str | None
    compare: str | None
    storage: Path
    json: Path | None
    disabled: bool
    fail_on: frozenset[str]
    memory_threshold: float | None = None
    cpu_metric: str = "time"

    @cached_property
    def baseline(self) -> dict[str, list[Run]]:
        """The runs to compare with, by the kind of machine; read when first used.

        Raises BaselineError if there is no such baseline, or a file of it is damaged.
        """
        from gpuprof._results.baselines import Baselines

        return Baselines(self.storage).runs(self.compare) if self.compare else {}


def read_settings(config: pytest.Config) -> Settings:
    """Read options and ini keys; raise a usage error if one has an invalid value."""

    def path(name: str) -> Path | None:
        value, start = _given(config, name)
        return start / value if value else None

    compare = _given(config, "compare")[0]
    fail_on = _fail_on(_given(config, "fail_on")[0])
    cpu_metric = _cpu_metric(_given(config, "cpu_metric")[0])
    if cpu_metric == "instructions":
        fail_on |= {"instructions"} if "slow" in fail_on else set()
    disable = "gpu_benchmark_disable"
    variable = os.environ.get("GPUPROF_DISABLE", "").strip().lower()
    worker = getattr(config, "workerinput", {})
    storage = worker.get(WORKER_STORAGE) or path("storage") or config.rootpath / DEFAULT_STORAGE
    return Settings(
        save=_given(config, "save")[0],
        compare=compare,
        storage=Path(storage).absolute(),
        json=path("json"),
        disabled=bool(config.getoption(disable) or config.getini(disable))
        or variable in {"1", "true", "on", "yes"},
        fail_on=fail_on if compare else frozenset(),
        memory_threshold=_fraction(_given(config, "memory_threshold")[0]),
        cpu_metric=cpu_metric,
    )


def _given(config: pytest.Config, name: str) -> tuple[str | None, Path]:
    """Return an option or its ini key, and the folder that a path in it is relative to."""
    what, folder = f"--gpu-benchmark-{name.replace('_', '-')}", config.invocation_params.dir
    value = config.getoption(f"gpu_benchmark_{name}")
    if value is None:
        what = f"the ini key gpu_benchmark_{name}"
        folder = config.inipath.parent if config.inipath else config.rootpath
        value = config.getini(f"gpu_benchmark_{name}")
    if value is not None and not isinstance(value, str):  # TOML has lists and numbers
        message = f"{what} is {value!r}; expected text"
        raise pytest.UsageError(message)
    if value is not None and not value.strip():
        message = f"{what} is empty, as from an unset variable; give it a value or leave it out"
        raise pytest.UsageError(message)
    return value, folder


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


def _cpu_metric(text: str | None) -> str:
    name = (text or CPU_METRICS[0]).strip().lower()
    if name not in CPU_METRICS:
        message = f"--gpu-benchmark-cpu-metric is {text!r}; expected {' or '.join(CPU_METRICS)}"
        raise pytest.UsageError(message)
    return name


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
        given.update(marker.kwargs)
    for name, value in given.items():
        if name not in MARKER_ARGUMENTS:
            raise _marker_error(item, f"has the unknown argument {name!r}")
        expected = _expected(name, value)
        if expected and value is not None:
            raise _marker_error(item, f"has {name}={value!r}; expected {expected}")
    return {**MARKER_ARGUMENTS, **given}


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
    if name == "mode" and value not in MODES:
        return f"one of {', '.join(map(repr, MODES))}"
    return None


def _marker_error(item: pytest.Item, problem: str) -> MarkerError:
    return MarkerError(
        f"{item.nodeid}: the marker {FIXTURE} {problem}; it takes these arguments, by name: "
        f"{', '.join(MARKER_ARGUMENTS)}"
    )
