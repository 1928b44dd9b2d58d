"""A fake driver of a test's own: what the test resets, nobody else in the process has in use."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fake_driver.control import FakeCuda
from tests.support.processes import run_command


def own_library(built: Path, folder: Path) -> Path:
    """Return a copy in `folder`, which the loader takes for another library."""
    return Path(shutil.copy2(built, folder / built.name))


def exported_entry_points(library: Path) -> set[str]:
    """Return the symbols of the driver's functions in a library."""
    done = run_command("nm", "-D", "--defined-only", library)
    assert done.returncode == 0, done.stderr
    symbols = {line.split()[-1] for line in done.stdout.splitlines()}
    return {symbol for symbol in symbols if symbol.startswith("cu")}


@contextmanager
def fresh(library: Path) -> Iterator[FakeCuda]:
    """Reset the driver, let its records take no time, and make the primary context current."""
    fake = FakeCuda(library)
    fake.reset()
    fake.configure(record_ns=0)
    fake.use_primary()
    try:
        yield fake
    finally:
        fake.reset()


def captured(driver: FakeCuda, stream: int, body: Callable[[], object]) -> int:
    """Return the graph of what `body` puts on the stream."""
    driver.begin_capture(stream)
    body()
    return driver.end_capture(stream)


def kernel_graph(driver: FakeCuda, stream: int, ns: int = 1_000_000) -> int:
    """Return a graph of one kernel."""
    return captured(driver, stream, lambda: driver.work(stream, ns))


def replay(driver: FakeCuda, graph: int, stream: int, times: int = 1) -> None:
    """Launch an executable copy of the graph, wait for it, and destroy the copy."""
    graph_exec = driver.instantiate(graph)
    for _ in range(times):
        driver.graph_launch(graph_exec, stream)
    driver.stream_synchronize(stream)
    driver.exec_destroy(graph_exec)
