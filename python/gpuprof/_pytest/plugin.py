"""The pytest plugin: hooks, and the fixture ``gpu_benchmark``.

Every start of pytest loads this module where gpuprof is installed, so it imports pytest, the
standard library and the settings only. The modules that measure, judge and report are imported
when a test uses ``gpu_benchmark``, or when an option needs them.

Tests run in the worker, which measures, judges and puts a dict of plain data on the test's report.
The controller collects these dicts, saves them and shows them. Without pytest-xdist one process is
both.

PYTEST_DONT_REWRITE: this module has no assertions of tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from gpuprof._pytest.options import OPTIONS, REPORTED
from gpuprof._pytest.settings import (
    FIXTURE,
    MARKER_ARGUMENTS,
    WORKER_COMPARE,
    WORKER_STORAGE,
    MarkerError,
    Settings,
    marker_arguments,
    read_settings,
)

if TYPE_CHECKING:
    from gpuprof._pytest.fixture import GpuBenchmark
    from gpuprof._pytest.session import Results

_MARKER_HELP = (
    f"{FIXTURE}({', '.join(f'{name}={value!r}' for name, value in MARKER_ARGUMENTS.items())}): "
    "how the test's gpu_benchmark measures and judges; every test that uses the fixture has it"
)
SETTINGS = pytest.StashKey[Settings]()
# Of an item: its identity in baselines, and its fixture once that is set up.
KEY = pytest.StashKey[str]()
BENCHMARK = pytest.StashKey["GpuBenchmark"]()
# Of the config: how many benchmarks run, which is how many comparisons are made.
COMPARISONS = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpu-benchmark", "benchmarks with gpuprof")
    for option in OPTIONS:
        option.add(parser, group)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER_HELP)
    config.stash[SETTINGS] = read_settings(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Controller(config), "gpuprof-results")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Report a missing baseline, or one that cannot be written, before any test runs."""
    settings = session.config.stash[SETTINGS]
    asked = settings.compare or settings.save or settings.json
    if asked and not settings.disabled and not hasattr(session.config, "workerinput"):
        from gpuprof._pytest.session import check

        check(settings)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist what to compare with; its working folder may differ."""
    settings = node.config.stash[SETTINGS]
    node.workerinput[WORKER_STORAGE] = str(settings.storage)
    # What was saved last may change meanwhile.
    node.workerinput[WORKER_COMPARE] = settings.compare


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that use the fixture, so that ``-m gpu_benchmark`` selects them."""
    if FIXTURE in getattr(item, "fixturenames", ()):
        # Now, because pytest-xdist adds its group to the ids of tests later.
        item.stash[KEY] = item.nodeid
        if item.get_closest_marker(FIXTURE) is None:
            item.add_marker(FIXTURE)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    settings = config.stash[SETTINGS]
    if not (settings.only or settings.skip):
        return
    reason = f"--gpu-benchmark-{'only' if settings.only else 'skip'} is given"
    for item in items:
        if (KEY in item.stash) == settings.skip:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the comparisons: each of many decisions needs more evidence than a single one."""
    session.config.stash[COMPARISONS] = sum(KEY in item.stash for item in session.items)


def pytest_assertrepr_compare(op: str, left: Any, right: Any) -> list[str] | None:
    """Say in words what two signatures of graphs, or two counts of launches, differ in."""
    kind = type(left)
    kinds = {("gpuprof.results", name) for name in ("GraphSignature", "Launches")}
    if op != "==" or type(right) is not kind or (kind.__module__, kind.__name__) not in kinds:
        return None
    return [f"{left} == {right}", f"the first, by the second: {right.diff(left)}"]


@pytest.fixture
def gpu_benchmark(request: pytest.FixtureRequest) -> GpuBenchmark:
    """Measure a function, once a test: ``value = gpu_benchmark(fn, *args, **kwargs)``.

    Afterwards ``gpu_benchmark.result`` is the `gpuprof.BenchResult`.
    """
    from gpuprof._pytest.fixture import GpuBenchmark

    settings = request.config.stash[SETTINGS]
    if settings.skip:  # a test may ask for the fixture while it runs
        pytest.skip("--gpu-benchmark-skip is given")
    item, refused, arguments = request.node, None, MARKER_ARGUMENTS
    try:
        arguments = marker_arguments(item)
    except MarkerError as error:
        refused = str(error)  # the test fails for it, not its set-up
    benchmark = GpuBenchmark(
        item,
        item.stash.get(KEY, item.nodeid),
        settings,
        arguments,
        comparisons=max(1, request.config.stash.get(COMPARISONS, 1)),
        refused=refused,
    )
    item.stash[BENCHMARK] = benchmark
    return benchmark


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
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
    outcome = yield
    benchmark = item.stash.get(BENCHMARK, None)
    if call.when == "call" and benchmark is not None and benchmark.result is not None:
        setattr(outcome.get_result(), REPORTED, benchmark.record())  # type: ignore[attr-defined]


class _Controller:
    """Collects the records on the reports, of this process or of workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._results: Results | None = None
        self._interrupted = False

    def _collected(self) -> Results:
        if self._results is None:
            from gpuprof._pytest.session import Results

            self._results = Results(self._config.stash[SETTINGS], self._config)
        return self._results

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._results is not None or hasattr(report, REPORTED):
            self._collected().add(report)

    def pytest_keyboard_interrupt(self) -> None:
        # Also of pytest.exit, which may ask for any exit status.
        self._interrupted = True

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        wanted = self._results is not None or self._config.stash[SETTINGS].json is not None
        if wanted and not self._config.getoption("collectonly"):
            ended = exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
            self._collected().finish(complete=ended and not self._interrupted)
            if self._collected().problems and exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._results is not None:
            from gpuprof._pytest.terminal import show

            show(self._results, terminalreporter)
            return
        settings = self._config.stash[SETTINGS]
        asked = [name for name in ("save", "compare") if getattr(settings, name)]
        if asked and not settings.disabled and not self._config.getoption("collectonly"):
            options = " and ".join(f"--gpu-benchmark-{name}" for name in asked)
            terminalreporter.write_line(f"gpu_benchmark: nothing was measured for {options}")
