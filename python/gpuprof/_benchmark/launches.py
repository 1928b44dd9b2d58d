"""What one call launches, counted once and outside of all measured times.

In graph mode the captured graphs tell, for nothing. Elsewhere one call is captured, or run under
`kernels`, if that is asked for. It is counted twice, because the first calls of a function may
choose kernels by trying several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpuprof._common.launches import Launches, counted
from gpuprof._frameworks import gpu_libraries
from gpuprof.errors import GpuprofError

if TYPE_CHECKING:
    from gpuprof._benchmark.work import Work
    from gpuprof._graphs.graph import CapturedGraph

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

NOT_COUNTED = "what a call launches was not counted"
MAX_WALKED = 5_000  # nodes of the graph that is read to see whether calls differ


def of_graphs(once: CapturedGraph, several: CapturedGraph, calls: int) -> Launches | None:
    """Count one call by its graph, and see by a graph of several whether calls differ."""
    try:
        found = of_graph(once)
        if several.num_nodes > MAX_WALKED:
            return found
        rest = of_graph(several)
    except GpuprofError:
        return None
    expected = replace(
        found,
        kernels={name: calls * count for name, count in found.kernels.items()},
        copies=calls * found.copies,
        memsets=calls * found.memsets,
    )
    return replace(found, varies=expected.diff(rest))


def of_graph(graph: CapturedGraph) -> Launches:
    """Count what a replay launches."""
    from gpuprof._graphs.signature import launches_of

    return launches_of(graph.nodes)


def of_calls(
    work: Work, capture: Callable[[], CapturedGraph] | None, synchronize: Callable[[], None]
) -> Launches:
    """Count two calls: captured if `capture` is given and works, else under `kernels`.

    Raises whatever keeps both from working.
    """
    if capture is not None:
        with suppress(Exception):  # whatever the function raises where it is captured
            return _of_both(partial(_captured, work, capture))
    return _of_both(partial(_collected, work, synchronize))


def completed(launches: Launches | None, device: int | None) -> Launches | None:
    """Add the GPU and the versions of the libraries that have chosen the kernels."""
    return launches and replace(launches, versions=gpu_libraries.versions(device))


def _captured(work: Work, capture: Callable[[], CapturedGraph]) -> Launches:
    work.set_up()
    graph = capture()
    try:
        return of_graph(graph)
    finally:
        graph.close()


def _collected(work: Work, synchronize: Callable[[], None]) -> Launches:
    from gpuprof._kernels.api import kernels

    work.set_up()
    synchronize()  # what was given to the GPU before is not the call's
    with kernels() as found:
        work.call()
    names = [record.name for record in found.records if record.kind == "kernel"]
    kinds = Counter(record.kind for record in found.records)
    source = found.source.partition(" ")[0]
    return Launches(counted(names), kinds["memcpy"], kinds["memset"], source)


def _of_both(count: Callable[[], Launches]) -> Launches:
    first, second = count(), count()
    return replace(second, varies=first.diff(second))
