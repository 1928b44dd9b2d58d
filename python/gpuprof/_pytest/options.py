"""The options of the command line and their ini keys: how they are declared and read.

Every start of pytest imports it, so it imports pytest and the standard library only. `settings`
says what the values mean. Options that pytest-benchmark has are called as there, with ``gpu-``
before; one that cannot mean the same here is refused with a text that says what to use.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest

FAIL_ON = ("slow", "memory", "launches", "instructions", "ambiguous", "nodata", "incomparable")
FAIL_ON_BY_DEFAULT = "slow,memory,launches"
NEVER = "never"
DEFAULT_STORAGE = ".gpuprof"
# Of --gpu-benchmark-compare without a value. No baseline can be called so.
LATEST = "@latest"


def time_text() -> str:
    """Return the time in UTC as part of a name."""
    return f"{datetime.now(timezone.utc):%Y%m%d_%H%M%S}"


@dataclass(frozen=True)
class Option:
    """An option with its ini key; without a `metavar` it is a switch.

    `implied` is the value of an option that is given without one, and `several` takes many values.
    """

    name: str
    text: str
    metavar: str | None = None
    implied: str | None = None
    several: bool = False

    @property
    def flag(self) -> str:
        """The option as it is written."""
        return f"--gpu-benchmark-{self.name}"

    @property
    def key(self) -> str:
        """The ini key, which is also the option's name inside pytest."""
        return f"gpu_benchmark_{self.name.replace('-', '_')}"

    def add(self, parser: pytest.Parser, group: pytest.OptionGroup) -> None:
        """Declare the option and its ini key."""
        escaped, text = self.text.replace("%", "%%"), f"{self.text} (as {self.flag})"
        if self.metavar is None:
            group.addoption(self.flag, action="store_true", default=None, help=escaped)
            parser.addini(self.key, text, type="bool", default=False)
            return
        if self.several:
            group.addoption(
                self.flag, action="extend", nargs="+", metavar=self.metavar, help=escaped
            )
        elif self.implied is not None:
            group.addoption(
                self.flag, nargs="?", const=self.implied, metavar=self.metavar, help=escaped
            )
        else:
            group.addoption(self.flag, metavar=self.metavar, help=escaped)
        parser.addini(self.key, text, default=None)


OPTIONS = (
    Option("save", "append this run's times to the stored baseline NAME", "NAME"),
    Option("autosave", "as save, in a baseline that is named after the commit"),
    Option(
        "compare",
        "compare with the stored baseline NAME, without a name with the one that was saved last; a "
        "test that got slower, takes more memory or launches more fails",
        "NAME",
        implied=LATEST,
    ),
    Option(
        "compare-fail",
        "fail a test whose figure is above the baseline's by more than this, such as min:5% or "
        "median:0.001 for seconds; in place of the verdicts, unless fail-on names some",
        "EXPR",
        several=True,
    ),
    Option(
        "storage", f"where baselines are kept; default: {DEFAULT_STORAGE} in the root folder", "DIR"
    ),
    Option("json", "write everything that was measured, in pytest-benchmark's form", "FILE"),
    Option(
        "fail-on",
        f"which verdicts fail a test that is compared: {', '.join(FAIL_ON)}, separated by commas, "
        f"or {NEVER}; default: {FAIL_ON_BY_DEFAULT}",
        "VERDICTS",
    ),
    Option(
        "memory-threshold",
        "by how much a test's peak memory may grow; default: 5%, and always 1 MiB",
        "5%",
    ),
    Option(
        "cpu-metric",
        "what decides on the CPU's clock: time (the default), or instructions where they were "
        "counted on both sides",
        "METRIC",
    ),
    Option(
        "disable",
        "call each benchmarked function once and measure nothing, as GPUPROF_DISABLE=1 does",
    ),
    Option("enable", "measure although --gpu-benchmark-disable or its ini key is there"),
    Option("only", "skip the tests that do not use gpu_benchmark; wins over skip"),
    Option("skip", "skip the tests that use gpu_benchmark"),
    Option(
        "min-rounds", "samples to take at least, even if that takes longer than max-time", "NUM"
    ),
    Option("max-time", "seconds to take samples for at most; default: 10", "SECONDS"),
    Option(
        "precision", "stop when the median is known to this fraction; default: 0.01", "FRACTION"
    ),
    Option("warmup", "whether to warm up: on, off or auto; default: on", "KIND", implied="on"),
    Option("disable-gc", "keep the garbage collector off during the whole measurement"),
    Option("sort", "the column to sort the tables by; default: the order of the tests", "COL"),
    Option(
        "group-by",
        "a table for each group, name, func, fullname, fullfunc, param or param:NAME, several "
        "separated by commas; default: group",
        "LABEL",
    ),
    Option("columns", "the columns of the tables, separated by commas", "LABELS"),
    Option("name", "how the tables name tests: short, normal or long", "FORMAT"),
    Option("time-unit", "the unit of the times in the tables: ns, us, ms, s or auto", "UNIT"),
    Option(
        "histogram",
        "draw the tests of each group into PREFIX-GROUP.svg; default: benchmark_TIME",
        "PREFIX",
        implied=f"benchmark_{time_text()}",
    ),
)
BY_NAME = {option.name: option for option in OPTIONS}

_CALLS = "gpuprof chooses how many calls a sample takes, by how long a call is"
_PROFILE = "a trace says where time goes: gpuprof.trace(), or a timer() around each part"
# What pytest-benchmark has and gpuprof has not, and what to use. Markers take none of them either.
REFUSED = {
    "min-time": f"there it is the least time of a round, and {_CALLS}; leave it out, or set the "
    "marker's min_time_s, which is the least time of all samples together",
    "calibration-precision": f"{_CALLS}; leave it out",
    "timer": "the clock is the GPU's for GPU work and the host's for other work, and the result's "
    "clock says which; leave it out",
    "warmup-iterations": "the warm-up ends when times are stable; set the marker's warmup_s, which "
    "is its least time in seconds",
    "confidence": "an interval of the median is always one of 95 %; leave it out",
    "save-data": "baselines always hold all samples; leave it out",
    "cprofile": _PROFILE,
    "cprofile-loops": _PROFILE,
    "cprofile-top": _PROFILE,
    "cprofile-dump": _PROFILE,
    "netrc": "baselines are files in a folder; set --gpu-benchmark-storage",
    "verbose": "use pytest's own -v, which also shows the samples of each test",
    "quiet": "use pytest's own --no-summary, which leaves the tables out",
}


def add_options(parser: pytest.Parser) -> None:
    """Declare all options, and those that are refused when they are used."""
    group = parser.getgroup("gpu-benchmark", "benchmarks with gpuprof")
    for option in OPTIONS:
        option.add(parser, group)
    for name in REFUSED:
        group.addoption(
            f"--gpu-benchmark-{name}", nargs="?", const="", default=None, help=argparse.SUPPRESS
        )


def refuse(config: pytest.Config) -> None:
    """Raise a usage error if an option was given that only pytest-benchmark has."""
    for name, why in REFUSED.items():
        if config.getoption(f"gpu_benchmark_{name.replace('-', '_')}") is not None:
            message = (
                f"--gpu-benchmark-{name} cannot mean what pytest-benchmark's --benchmark-{name} "
                f"does: {why}"
            )
            raise pytest.UsageError(message)


def switch(config: pytest.Config, name: str) -> bool:
    """Return whether a switch is on, by the option or the ini key."""
    option = BY_NAME[name]
    return bool(config.getoption(option.key) or config.getini(option.key))


def text(config: pytest.Config, name: str) -> tuple[str | None, Path]:
    """Return an option or its ini key, and the folder that a path in it is relative to."""
    option = BY_NAME[name]
    what, folder = option.flag, config.invocation_params.dir
    value = config.getoption(option.key)
    if value is None:
        what = f"the ini key {option.key}"
        folder = config.inipath.parent if config.inipath else config.rootpath
        value = config.getini(option.key)
    if option.several and isinstance(value, list):
        value = " ".join(map(str, value))
    if value is not None and not isinstance(value, str):  # TOML has lists and numbers
        message = f"{what} is {value!r}; expected text"
        raise pytest.UsageError(message)
    if value is not None and not value.strip():
        message = f"{what} is empty, as from an unset variable; give it a value or leave it out"
        raise pytest.UsageError(message)
    return value, folder


def choice(config: pytest.Config, name: str, known: Sequence[str]) -> str | None:
    """Return an option that is one of the known texts, in small letters."""
    given = text(config, name)[0]
    if given is not None and given.strip().lower() not in known:
        raise wrong(name, given, f"one of {', '.join(known)}")
    return None if given is None else given.strip().lower()


def words(config: pytest.Config, name: str) -> list[str]:
    """Return the parts of an option that are separated by commas."""
    given = text(config, name)[0]
    if given is None:
        return []
    found = [part.strip() for part in given.split(",") if part.strip()]
    if not found:
        raise wrong(name, given, "names separated by commas")
    return found


def number(config: pytest.Config, name: str, expected: str, most: float) -> float | None:
    """Return an option that is a number above 0 and below `most`."""
    given = text(config, name)[0]
    if given is None:
        return None
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0 < value < most:
        raise wrong(name, given, expected)
    return value


def whole(config: pytest.Config, name: str) -> int | None:
    """Return an option that is a whole number from 1."""
    given = text(config, name)[0]
    if given is None:
        return None
    digits = given.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10 and int(digits) > 0):
        raise wrong(name, given, "a whole number from 1")
    return int(digits)


def wrong(name: str, given: str, expected: str) -> pytest.UsageError:
    """Return the error for an option whose value is not what is expected."""
    return pytest.UsageError(f"{BY_NAME[name].flag} is {given!r}; expected {expected}")
