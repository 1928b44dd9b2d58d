"""What every test gets: the fake CUDA driver (or the real one with ``-m gpu``), and a clean slate.

The library chooses its driver once per process, so the choice is made here, before it is imported.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.fake_cupti.control import FakeCupti
    from tests.fake_driver.control import FakeCuda
    from tests.support.pytest_projects import Project
    from tests.support.torch_blocks import Run
    from tests.support.warm_torch import WarmTorch

pytest_plugins = ["pytester"]

_REAL_DRIVER = pytest.StashKey[bool]()
_FAKE_PATH = pytest.StashKey[Path]()

# Every skip needs one of these reasons: a test that does not run must not be able to hide.
_SKIP_REASONS = re.compile(
    r"GPU|Node|Chromium|viztracer|torch|CuPy|Numba|JAX|Ray|pandas|Python version|Python build|"
    r"FastAPI|NVIDIA command-line tool|original package|neighbour"
)


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would the processes that tests interrupt.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) == signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    # Where CI is set, pytest prints the whole text of a failure in its summary as well.
    os.environ.pop("CI", None)
    os.environ.pop("BUILD_NUMBER", None)
    real = re.search(r"(?<!not )\b(gpu|alone)\b", config.option.markexpr) is not None
    config.stash[_REAL_DRIVER] = real
    if real:
        os.environ.pop("GPUPROF_CUDA_DRIVER", None)
        return
    # More than one are processes that each import torch.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    from tests.fake_driver.build import build

    cache = getattr(config, "cache", None)  # absent with -p no:cacheprovider
    path = build(Path(cache.mkdir("fake_driver")) if cache else Path("build/fake_driver"))
    config.stash[_FAKE_PATH] = path
    os.environ["GPUPROF_CUDA_DRIVER"] = str(path)


def pytest_report_header(config: pytest.Config) -> str:
    return f"CUDA driver: {'real' if config.stash[_REAL_DRIVER] else config.stash[_FAKE_PATH]}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import another part of all tests first in each worker, so that none is compiled twice.

    Workers collect in the same order, and where no test was run yet, rewriting the asserts of one
    file after the other takes several times as long as all else. What cannot be imported is left to
    the collection.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or session.config.args != session.config.getini("testpaths"):
        return
    names = [
        ".".join(path.relative_to(session.config.rootpath).with_suffix("").parts)
        for path in sorted(Path(__file__).parent.rglob("test_*.py"))
    ]
    for name in names[int(worker[2:]) :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]:
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


def pytest_collection_finish() -> None:
    """Leave out of all later collections of garbage what the tests' modules hold.

    Many tests collect garbage, and torch and the tests themselves are a million objects.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give workers files that follow each other, for fixtures of modules are dear.

    A worker that is done takes tests from the other one. Another ``--dist`` is left alone.
    """
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
        if not _SKIP_REASONS.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped for a reason that is not listed: {reason}"


@pytest.fixture(scope="session")
def fake_path(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.stash[_FAKE_PATH]


@pytest.fixture(autouse=True)
def clean_slate() -> Iterator[None]:
    """Start and leave every test with empty statistics, no warning said and timing on."""
    import gpuprof
    from tests.support.held import forget_warnings

    gpuprof.enable()
    gpuprof.reset()
    forget_warnings()
    yield
    gpuprof.enable()
    gpuprof.flush()
    gpuprof.reset()
    forget_warnings()


@pytest.fixture(autouse=True)
def nothing_compiled(request: pytest.FixtureRequest) -> None:
    """Have graphed callables run a function as if no other test had compiled any."""
    if {"fake", "cupy"} & set(request.fixturenames):
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        patch.setattr("gpuprof._callable.capture.may_run_compiled_code", lambda: False)


@pytest.fixture
def fake(fake_path: Path) -> Iterator[object]:
    """The fake driver with a current context; a leak or a changed thread state fails the test."""
    from tests.support.cuda import assert_nothing_alive, primary_context

    with primary_context(fake_path) as controls:
        yield controls
    assert_nothing_alive(controls)


@pytest.fixture
def stream(fake: FakeCuda) -> Iterator[int]:
    """A stream of the fake driver."""
    handle = fake.stream_create()
    yield handle
    fake.stream_destroy(handle)


@pytest.fixture
def other(fake: FakeCuda) -> Iterator[int]:
    """Another stream of the fake driver."""
    handle = fake.stream_create()
    yield handle
    fake.stream_destroy(handle)


@pytest.fixture
def in_cuda(fake_path: Path) -> Run:
    """Run code in a process of its own, with a context and a stream of the fake driver."""
    from tests.support.processes import check_cuda

    return lambda body: check_cuda(fake_path, body)


@pytest.fixture
def torch_version() -> str:
    """The version of the torch of `in_torch`; a test may ask for others by parameters."""
    return "2.11.0"


@pytest.fixture
def in_torch(fake_path: Path, torch_version: str) -> Run:
    """Run code in a process of its own, with a stand-in for torch on the fake driver."""
    from tests.support.torch_blocks import check

    return lambda body: check(fake_path, body, torch_version)


@pytest.fixture(scope="session")
def warm_torch() -> WarmTorch:
    """Run programs that use torch as forks of one process that has imported it."""
    from tests.support.warm_torch import WarmTorch

    pytest.importorskip("torch", reason="torch is not installed")
    return WarmTorch()


@pytest.fixture
def cupy(fake: FakeCuda) -> Iterator[Any]:
    """A CuPy whose arrays and streams are the fake driver's, with a stream as the current one."""
    from tests.support.stand_in_cupy import installed

    gc.freeze()  # what is there already, to collect only what comes
    with installed(fake) as module:
        module.world.context_goes_too = True
        yield module
        gc.collect()  # what a failure that was expected has left in cycles


@pytest.fixture
def cupti(pytestconfig: pytest.Config) -> Iterator[FakeCupti]:
    """The fake CUPTI, which gpuprof has loaded; nothing of it stays enabled."""
    from tests.fake_cupti.build import cached
    from tests.fake_cupti.control import FakeCupti
    from tests.support.cupti import loaded

    fake = FakeCupti(cached(pytestconfig))
    with loaded(fake.path):
        fake.reset()
        yield fake
    fake.flush()
    fake.reset()


@pytest.fixture
def benchmark_scripts(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the benchmarks, whose scripts can be imported by name."""
    folder = Path(__file__).resolve().parents[1] / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def results(benchmark_scripts: Path) -> Any:
    """The module that reads and checks the benchmarks' results."""
    return importlib.import_module("support.results")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder of tests to be tested with the pytest plugin, on made-up times."""
    from tests.support.pytest_projects import Project

    # Only what a test names: gpuprof's own entry point would load the plugin a second time.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("GPUPROF_DISABLE", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # the inner session is none of them
    return Project(pytester)
