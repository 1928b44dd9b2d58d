"""The pytest plugin: options, ini keys, marker, fixture and hooks.

Every start of pytest loads this module where gpuprof is installed, so it imports pytest and the
standard library only. The parts that measure, judge and report are imported when a test uses
``gpu_benchmark``, or when an option needs them.

Tests run in the worker, which measures, judges and puts a dict of plain data on the test's report.
The controller collects these dicts, saves them and shows them. Without pytest-xdist one process is
both.

PYTEST_DONT_REWRITE: there is no test's assertion in it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpuprof._pytest.fixture import GpuBenchmark
    from gpuprof._pytest.session import Results
    from gpuprof._results.baselines import Run

FIXTURE = "gpu_benchmark"
# The attribute of a test's report that carries what was measured from worker to controller.
REPORTED = "gpuprof_benchmark"
FAIL_ON = ("slow", "ambiguous", "nodata", "incomparable")
NEVER = "never"
DEFAULT_STORAGE = ".gpuprof"
MODES = ("auto", "graph", "batched", "isolated")
# What the marker takes, with the default of each; None leaves it to `gpuprof.benchmark`.
MARKER_ARGUMENTS: dict[str, Any] = {
    "threshold": None,
    "max_ms": None,
    "group": None,
    "mode": "auto",
    "cold_l2": False,
    "scopes": False,
    "warmup_s": None,
    "min_samples": None,
    "min_time_s": None,
    "max_time_s": None,
    "rel_precision": None,
    "nbytes": None,
    "flops": None,
}
_MARKER_HELP = (
    f"{FIXTURE}({', '.join(f'{name}={value!r}' for name, value in MARKER_ARGUMENTS.items())}): "
    "how the test's gpu_benchmark measures and judges; every test that uses the fixture has it"
)
_OPTIONS = (
    ("save", "NAME", "append this run's times to the stored baseline NAME"),
    ("compare", "NAME", "compare with the stored baseline NAME; a test that got slower fails"),
    ("storage", "DIR", f"where baselines are kept; default: {DEFAULT_STORAGE} in the root folder"),
    ("json", "FILE", "write everything that was measured, in pytest-benchmark's form"),
    (
        "fail-on",
        "VERDICTS",
        f"which verdicts fail a test that is compared: {', '.join(FAIL_ON)}, separated by commas, "
        f"or {NEVER}; default: slow",
    ),
)
_WORKER_STORAGE = "gpuprof_storage"


@dataclass(frozen=True)
class Settings:
    """What the options and ini keys ask for. Paths are absolute."""

    save: str | None
    compare: str | None
    storage: Path
    json: Path | None
    disabled: bool
    fail_on: frozenset[str]

    @cached_property
    def baseline(self) -> dict[str, list[Run]]:
        """The runs to compare with, by the kind of machine; read when first used.

        Raises
        ------
        gpuprof.errors.BaselineError
            If there is no such baseline, or a file of it is damaged.
        """
        from gpuprof._results.baselines import Baselines

        return Baselines(self.storage).runs(self.compare) if self.compare else {}


SETTINGS = pytest.StashKey[Settings]()
# Of an item: its identity in baselines, and its fixture once that is set up.
KEY = pytest.StashKey[str]()
BENCHMARK = pytest.StashKey["GpuBenchmark"]()
# Of the config: how many benchmarks run, which is how many comparisons are made.
COMPARISONS = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--gpu-benchmark-*`` and an ini key for each."""
    group = parser.getgroup("gpu-benchmark", "benchmarks with gpuprof")
    for name, metavar, text in _OPTIONS:
        group.addoption(f"--gpu-benchmark-{name}", metavar=metavar, help=text)
        key = f"gpu_benchmark_{name.replace('-', '_')}"
        parser.addini(key, f"{text} (as --gpu-benchmark-{name})", default=None)
    text = "call each benchmarked function once and measure nothing, as GPUPROF_DISABLE=1 does"
    group.addoption("--gpu-benchmark-disable", action="store_true", default=None, help=text)
    parser.addini("gpu_benchmark_disable", f"{text} (as the option)", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Read the settings; on the controller, listen to the tests' reports."""
    config.addinivalue_line("markers", _MARKER_HELP)
    config.stash[SETTINGS] = _settings(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Controller(config), "gpuprof-results")


def _settings(config: pytest.Config) -> Settings:
    def given(name: str) -> tuple[str | None, Path]:
        """Return an option or its ini key, and the folder that a path in it starts from."""
        value = config.getoption(f"gpu_benchmark_{name}")
        if value is not None:
            _check_given(f"--gpu-benchmark-{name.replace('_', '-')}", value)
            return value, config.invocation_params.dir
        value = config.getini(f"gpu_benchmark_{name}")
        if value is not None and not isinstance(value, str):  # TOML has lists and numbers
            message = f"the ini key gpu_benchmark_{name} is {value!r}; expected text"
            raise pytest.UsageError(message)
        if value is not None:
            _check_given(f"the ini key gpu_benchmark_{name}", value)
        inifile = config.inipath
        return value, inifile.parent if inifile else config.rootpath

    def path(name: str) -> Path | None:
        value, start = given(name)
        return start / value if value else None

    compare, fail_on = given("compare")[0], _fail_on(given("fail_on")[0])
    switched_off = config.getoption("gpu_benchmark_disable") or config.getini(
        "gpu_benchmark_disable"
    )
    worker = getattr(config, "workerinput", {})
    storage = worker.get(_WORKER_STORAGE) or path("storage") or config.rootpath / DEFAULT_STORAGE
    return Settings(
        save=given("save")[0],
        compare=compare,
        storage=Path(storage).absolute(),
        json=path("json"),
        disabled=bool(switched_off) or _is_set("GPUPROF_DISABLE"),
        fail_on=fail_on if compare else frozenset(),
    )


def _check_given(what: str, value: str) -> None:
    if not value.strip():
        message = f"{what} is empty, as from an unset variable; give it a value or leave it out"
        raise pytest.UsageError(message)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in {"1", "true", "on", "yes"}


def _fail_on(text: str | None) -> frozenset[str]:
    names = [name.strip().lower() for name in (text or "slow").split(",") if name.strip()]
    unknown = [name for name in names if name not in (*FAIL_ON, NEVER)]
    if not names or unknown or (NEVER in names and len(names) > 1):
        message = (
            f"--gpu-benchmark-fail-on is {text!r}; expected {NEVER}, or some of "
            f"{', '.join(FAIL_ON)} separated by commas"
        )
        raise pytest.UsageError(message)
    return frozenset(names) - {NEVER}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Find out before anything runs that a baseline is missing or cannot be written."""
    config = session.config
    settings = config.stash[SETTINGS]
    asked = settings.compare or settings.save or settings.json
    if asked and not settings.disabled and not hasattr(config, "workerinput"):
        from gpuprof._pytest import session as pytest_session

        pytest_session.check(settings)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where the baselines are: its working folder may differ."""
    node.workerinput[_WORKER_STORAGE] = str(node.config.stash[SETTINGS].storage)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that use the fixture, so that ``-m gpu_benchmark`` selects them."""
    if FIXTURE in getattr(item, "fixturenames", ()):
        # Now, because pytest-xdist adds its group to the ids of tests later.
        item.stash[KEY] = item.nodeid
        if item.get_closest_marker(FIXTURE) is None:
            item.add_marker(FIXTURE)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the comparisons: deciding many at once asks for more evidence in each."""
    session.config.stash[COMPARISONS] = sum(KEY in item.stash for item in session.items)


class MarkerError(Exception):
    """A marker says what nobody understands."""


def marker_arguments(item: pytest.Item) -> dict[str, Any]:
    """Return what the markers of a test say, the closest winning, and the defaults.

    Raises
    ------
    MarkerError
        An argument is none of the marker's, or has a value that makes no sense; it is named.
    """
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
    """Return what `name` should be, None if `value` is that."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "threshold" and not (number and 0 < value <= 1):
        return "a fraction above 0 and up to 1, such as 0.05 for 5 %"
    if name == "max_ms" and not (number and value > 0):
        return "milliseconds above 0"
    if name == "group" and not isinstance(value, str):
        return "text"
    if name == "mode" and value not in MODES:
        return f"one of {', '.join(map(repr, MODES))}"
    return None


def _marker_error(item: pytest.Item, problem: str) -> MarkerError:
    return MarkerError(
        f"{item.nodeid}: the marker {FIXTURE} {problem}; it takes these arguments, by name: "
        f"{', '.join(MARKER_ARGUMENTS)}"
    )


@pytest.fixture
def gpu_benchmark(request: pytest.FixtureRequest) -> GpuBenchmark:
    """Measure a function, once a test: ``value = gpu_benchmark(fn, *args, **kwargs)``.

    Afterwards ``gpu_benchmark.result`` is the `gpuprof.BenchResult`.
    """
    from gpuprof._pytest.fixture import GpuBenchmark

    item, refused = request.node, None
    arguments = MARKER_ARGUMENTS
    try:
        arguments = marker_arguments(item)
    except MarkerError as error:
        refused = str(error)  # the test fails for it, not its set-up
    benchmark = GpuBenchmark(
        key=item.stash.get(KEY, item.nodeid),
        settings=request.config.stash[SETTINGS],
        arguments=arguments,
        comparisons=max(1, request.config.stash.get(COMPARISONS, 1)),
        warn=item.warn,
        say=partial(_say, request.config),
        refused=refused,
    )
    item.stash[BENCHMARK] = benchmark
    return benchmark


def _say(config: pytest.Config, text: str) -> None:
    """Write a line at once, past what pytest captures. A worker has no terminal but this."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        sys.stderr.write(f"\n{FIXTURE}: {text}\n")
        sys.stderr.flush()


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail the test that got slower: comes after its body, and only if that has passed."""
    benchmark = item.stash.get(BENCHMARK, None)
    if benchmark is None:
        return
    if not benchmark.used and benchmark.failure is None:
        item.warn(
            pytest.PytestWarning(
                f"{item.name} has the fixture {FIXTURE} but measured nothing: call "
                f"{FIXTURE}(function, *arguments)"
            )
        )
    if benchmark.failure is not None:
        pytest.fail(benchmark.failure, pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Put what was measured on the report of the test's call."""
    outcome = yield
    benchmark = item.stash.get(BENCHMARK, None)
    if call.when == "call" and benchmark is not None and benchmark.result is not None:
        setattr(outcome.get_result(), REPORTED, benchmark.record(item))  # type: ignore[attr-defined]


class _Controller:
    """Collects what the reports bring, here or from workers, and hands it on at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._results: Results | None = None
        self._interrupted = False

    def _made(self) -> Results:
        if self._results is None:
            from gpuprof._pytest.session import Results

            self._results = Results(self._config.stash[SETTINGS], self._config.rootpath)
        return self._results

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._results is not None or hasattr(report, REPORTED):
            self._made().add(report)

    def pytest_keyboard_interrupt(self) -> None:
        # Also of pytest.exit, which may ask for any exit status.
        self._interrupted = True

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        wanted = self._results is not None or self._config.stash[SETTINGS].json is not None
        if wanted and not self._config.getoption("collectonly"):
            ended = exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
            self._made().finish(complete=ended and not self._interrupted)
            if self._made().problems and exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._results is not None:
            self._results.show(terminalreporter)
            return
        settings = self._config.stash[SETTINGS]
        asked = [name for name in ("save", "compare") if getattr(settings, name)]
        if asked and not settings.disabled and not self._config.getoption("collectonly"):
            options = " and ".join(f"--gpu-benchmark-{name}" for name in asked)
            terminalreporter.write_line(f"gpu_benchmark: nothing was measured for {options}")
