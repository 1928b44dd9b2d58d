"""Options, ini keys and the marker's arguments: one table that says what each of them may be.

Every start of pytest imports it, so it imports little. `settings` says what the values mean.
Options that pytest-benchmark has are called as there, with ``gpu-`` before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuprof._common import checks

FAIL_ON = ("slow", "memory", "launches", "ambiguous", "nodata", "incomparable")
FAIL_ON_BY_DEFAULT = "slow,memory,launches"
NEVER = "never"
STORAGE = ".gpuprof"
GIT = "git:"  # begins a storage that is a ref; as in `git_store`, which is imported only then
# Of --gpu-benchmark-compare without a value. No baseline can be called so.
LATEST = "@latest"
WARM_UP = ("on", "off", "auto")
WARM_UP_S = 0.2  # the least, as in `gpuprof.benchmark`

# What pytest-benchmark has, then what only gpuprof has.
COLUMNS = (
    *("min", "max", "mean", "stddev", "median", "iqr", "outliers", "ops", "rounds", "iterations"),
    *("interval", "precision", "p10", "p90", "p99", "host", "samples", "mode", "l2", "bytes"),
    *("flops", "memory", "distribution", "baseline", "ratio", "floor", "verdict"),
)
SORT = (
    *("min", "max", "mean", "stddev", "name", "fullname"),
    *("median", "iqr", "ops", "rounds", "p10", "p90", "p99"),
)
GROUPS = ("group", "name", "func", "fullname", "fullfunc", "param")
PARAMETER = "param:"

# The attribute of a test's report that carries the measurement from worker to controller.
REPORTED = "gpuprof_benchmark"


# Takes what a value is called, and the value; raises TypeError or ValueError.
Check = Callable[[str, Any], Any]


def _one_of(*known: str) -> Check:
    return partial(checks.choice, known=known)


def _some_of(known: Sequence[str], prefix: str = ",") -> Check:
    def check(name: str, words: Sequence[str]) -> None:
        for word in words or [""]:
            if not word.startswith(prefix) or word == prefix:
                checks.choice(name, word, known)

    return check


def _verdicts(name: str, given: Sequence[str]) -> None:
    if given != (NEVER,) and not (given and {*given} <= {*FAIL_ON}):
        expected = f"{NEVER}, or some of {', '.join(FAIL_ON)} separated by commas"
        raise checks.value_error(",".join(given), name, expected)


def _growth(name: str, value: Any) -> float:
    try:
        return checks.number(name, value, 0, 1)
    except (TypeError, ValueError) as error:
        message = f"{error}; 5 % are 0.05, in an option also 5%"
        raise ValueError(message) from None


_ABOVE_0 = partial(checks.number, least=0, above=True)
_SHARE_ABOVE_0 = partial(checks.number, least=0, most=1, above=True)


def warm_up(name: str, given: Any) -> float | None:
    """Return how long to warm up at least, for pytest-benchmark's switch."""
    if given is True or given is False or given is None:
        return None if given is None else WARM_UP_S * given
    checks.choice(name, given.lower() if isinstance(given, str) else given, WARM_UP)
    return 0.0 if given.lower() == "off" else WARM_UP_S


def _small(text: str) -> str:
    return text.strip().lower()


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _small_words(text: str) -> tuple[str, ...]:
    return _words(text.lower())


@dataclass(frozen=True)
class Declared:
    """An option with its ini key, an argument of the marker, or both.

    `written` is an option's name and what stands for its value in the help. `read` makes a value of
    its text: bool is that of a switch, and without one there is no option. A value that has no
    `check` is checked where it is used. The `default` is the argument's; None leaves it to the
    option, or to `gpuprof.benchmark`. `implied` is the text of an option that is given without one.
    """

    written: str
    read: Callable[[str], Any] | None = None
    help: str = ""
    check: Check | None = None
    argument: str | None = None
    default: Any = None
    implied: str | None = None

    @property
    def name(self) -> str:
        return self.written.partition(" ")[0]

    @property
    def flag(self) -> str:
        return f"--gpu-benchmark-{self.name}"

    @property
    def key(self) -> str:
        """The ini key, which is also the option's name inside pytest."""
        return f"gpu_benchmark_{self.name.replace('-', '_')}"

    def add(self, parser: pytest.Parser, group: pytest.OptionGroup) -> None:
        given: dict[str, Any] = {"help": self.help.replace("%", "%%"), "default": None}
        ini: dict[str, Any] = {"help": f"{self.help} (as {self.flag})", "default": None}
        if self.read is bool:
            given["action"] = "store_true"
            ini |= {"type": "bool", "default": False}
        else:
            given["metavar"] = self.written.partition(" ")[2]
        if self.implied is not None:
            given |= {"nargs": "?", "const": self.implied}
        group.addoption(self.flag, **given)
        parser.addini(self.key, **ini)


def _argument(name: str, check: Check | None = None, default: Any = None) -> Declared:
    return Declared(name, argument=name, check=check, default=default)


DECLARED = (
    Declared("save NAME", str, "append this run's times to the stored baseline NAME"),
    Declared("autosave", bool, "as save, in a baseline that is named after the commit"),
    Declared(
        "compare NAME",
        str,
        "compare with the stored baseline NAME, without a name with the one that was saved last; a "
        "test that got slower, takes more memory or launches more fails",
        implied=LATEST,
    ),
    Declared(
        "storage DIR",
        Path,
        "where baselines are kept: a folder, or a git ref such as git:refs/gpuprof; default: "
        f"{STORAGE} in the root folder",
    ),
    Declared("json FILE", Path, "write everything that was measured, in pytest-benchmark's form"),
    Declared(
        "fail-on VERDICTS",
        _small_words,
        f"which verdicts fail a test that is compared: {', '.join(FAIL_ON)}, separated by commas, "
        f"or {NEVER}; default: {FAIL_ON_BY_DEFAULT}",
        _verdicts,
    ),
    Declared(
        "threshold 5%",
        checks.share,
        "the smallest change of a time to report; default: 5%, with fewer than 5 stored runs 10%",
        _SHARE_ABOVE_0,
        "threshold",
    ),
    Declared(
        "memory-threshold 5%",
        checks.share,
        "by how much a test's peak memory may grow; default: 5%, and always 1 MiB",
        _growth,
        "memory_threshold",
    ),
    Declared(
        "disable",
        bool,
        "call each benchmarked function once and measure nothing, as GPUPROF_DISABLE=1 does",
    ),
    Declared("enable", bool, "measure although --gpu-benchmark-disable or its ini key is there"),
    Declared("only", bool, "skip the tests that do not use gpu_benchmark; wins over skip"),
    Declared("skip", bool, "skip the tests that use gpu_benchmark"),
    Declared(
        "min-rounds NUM",
        int,
        "samples to take at least, even if that takes longer than max-time",
        checks.whole,
        "min_rounds",
    ),
    Declared(
        "max-time SECONDS",
        float,
        "seconds to take samples for at most; default: 10",
        partial(_ABOVE_0, most=checks.MOST_S),
        "max_time_s",
    ),
    Declared(
        "precision FRACTION",
        float,
        "stop when the median is known to this fraction; default: 0.01",
        _SHARE_ABOVE_0,
        "rel_precision",
    ),
    Declared(
        "warmup KIND",
        _small,
        "whether to warm up: on, off or auto; default: on",
        _one_of(*WARM_UP),
        implied="on",
    ),
    Declared(
        "reruns N",
        int,
        "how many processes of their own measure a test again, one after the other, before it "
        "fails; 0: this process does; default: 2",
        partial(checks.whole, least=0),
    ),
    Declared(
        "disable-gc",
        bool,
        "keep the garbage collector off during the whole measurement",
        check=checks.flag,
        argument="disable_gc",
    ),
    Declared(
        "sort COL",
        _small,
        "the column to sort the tables by; default: the order of the tests",
        _one_of(*SORT),
    ),
    Declared(
        "group-by LABEL",
        _words,
        "a table for each group, name, func, fullname, fullfunc, param or param:NAME, several "
        "separated by commas; default: group",
        _some_of((*GROUPS, f"{PARAMETER}NAME"), PARAMETER),
    ),
    Declared(
        "columns LABELS",
        _small_words,
        "the columns of the tables, separated by commas",
        _some_of(COLUMNS),
    ),
    _argument("max_ms", _ABOVE_0),
    _argument("group", checks.text),
    _argument("mode", _one_of("auto", "graph", "batched", "isolated"), "auto"),
    _argument("cold_l2", default=False),
    _argument("scopes", default=False),
    _argument("launches", checks.flag),
    _argument("warmup_s"),
    _argument("min_samples"),
    _argument("min_time_s"),
    _argument("nbytes"),
    _argument("flops"),
    _argument("flops_dtype"),
    _argument("ranks", _one_of("together", "each")),
)
OPTIONS = tuple(each for each in DECLARED if each.read is not None)
ARGUMENTS = {each.argument: each for each in DECLARED if each.argument is not None}
# The names that pytest-benchmark's marker has for some of them.
ALIASES = {"max_time": "max_time_s", "warmup": "warmup_s", "precision": "rel_precision"}


def value(config: pytest.Config, option: Declared) -> Any:
    """Return what an option or its ini key says; None, or False of a switch, without either.

    A usage error says what is wrong with it. Paths are relative to the folder of who names them.
    """
    if option.read is bool:
        return bool(config.getoption(option.key) or config.getini(option.key))
    what, folder = option.flag, config.invocation_params.dir
    given = config.getoption(option.key)
    if given is None:
        what = f"the ini key {option.key}"
        folder = config.inipath.parent if config.inipath else config.rootpath
        given = config.getini(option.key)
    if given is None:
        return None
    if not isinstance(given, str):  # TOML has lists and numbers
        message = f"{what} is {given!r}; expected text"
        raise pytest.UsageError(message)
    if not given.strip():
        message = f"{what} is empty, as from an unset variable; give it a value or leave it out"
        raise pytest.UsageError(message)
    found: Any = given
    with suppress(ValueError):
        found = option.read(given) if option.read else given
    try:
        if option.check is not None:
            option.check(option.flag, found)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(str(error)) from error
    is_path = option.read is Path and not str(found).startswith(GIT)
    return folder / found if is_path else found
