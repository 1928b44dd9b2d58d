"""What a result says besides times: the memory of a call, what it launches, the device's peaks.

All of it is outside of the measured times. The memory is that of an ordinary call, whatever the
mode: what was captured into a graph allocates from a pool of the graph's once, and then never
again. In graph mode the captured graphs tell what a call launches at no cost. Elsewhere one call
is captured, or run under `kernels`, if that is asked for. It is counted twice, because the first
calls of a function may choose kernels by trying several.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gpuprof._benchmark.options import Options
from gpuprof._benchmark.work import Work, leaves
from gpuprof._common.launches import Launches, counted
from gpuprof._common.peaks import device_peaks, dtype_name
from gpuprof._frameworks import gpu_libraries, loaded, memory
from gpuprof.errors import GpuprofError

if TYPE_CHECKING:
    from gpuprof._graphs.graph import CapturedGraph

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

NOT_COUNTED = "what a call launches was not counted"
MAX_WALKED = 5_000  # nodes of the graph that is read to see whether calls differ
MOST_CALLS = 3
LONG_S = 1.0  # after a call as long as this no other is made
_SUM = (
    "its peak memory is the sum of torch's peak and CuPy's, which may be more than both had at once"
)
_FLOATS = ("float", "bfloat")


def memory_of_call(work: Work, options: Options) -> dict[str, int]:
    """Call the function once or a few times more and return `BenchResult.memory`.

    Two calls that agree are enough; of three the middle one counts, because another thread, or a
    collection of garbage, may allocate and free meanwhile.
    """
    found: list[tuple[int, int]] = []
    if not somebody_allocates():
        return {}
    while len(found) < 2 or (
        len(found) < MOST_CALLS and work.ranks.decide("memory", found[0] != found[1])
    ):
        work.set_up()
        begun = perf_counter()
        reading = memory.Reading(options.stream)
        work.call()
        figures = reading.end()
        took = work.ranks.decide("a call", perf_counter() - begun)
        if math.isnan(figures.peak) or math.isnan(figures.change):  # nobody allocates, or tells
            return {}
        if figures.note == memory.SUM:
            work.warn(_SUM)
        found.append((max(int(figures.peak), 0), int(figures.change)))
        if took > LONG_S:
            break
    peak, change = sorted(found)[len(found) // 2]
    return {"peak_bytes": peak, "change_bytes": change}


def somebody_allocates() -> bool:
    return loaded.torch_cuda() is not None or loaded.cupy() is not None


def peaks_for(work: Work, options: Options, device: int | None) -> dict[str, Any]:
    wanted = (options.nbytes, options.flops) != (None, None)
    known = device_peaks(device) if wanted else None
    if known is None:
        return {}
    found: dict[str, Any] = {}
    if options.nbytes is not None and known.bytes_per_s is not None:
        found["bytes_per_s"] = known.bytes_per_s
    if options.flops is not None:
        flops = known.flops_of(options.flops_dtype or _dtype_of(work))
        if flops is None and options.flops_dtype and known.flops:
            there = ", ".join(known.flops)
            work.warn(f"no peak is known for {options.flops_dtype}; there are those of {there}")
        if flops is not None:
            found["dtype"], found["flops_per_s"] = flops
    return found


def _dtype_of(work: Work) -> str | None:
    """Return the one type of the floating-point arrays among the arguments; None without one."""
    names = {str(array.dtype).removeprefix("torch.") for _, array in leaves(work.arguments)}
    names = {name for name in names if name.startswith(_FLOATS)}
    if len(names) != 1:
        return None
    name = dtype_name(names.pop())
    return "tf32" if name == "float32" and _uses_tf32() else name


def _uses_tf32() -> bool:
    """Return whether torch may round the factors of float32's products to TensorFloat-32."""
    found = loaded.torch_part("backends.cuda")
    # torch raises where the older of its two ways to set this is asked for what the newer has set.
    with suppress(Exception):
        precision = getattr(found.matmul, "fp32_precision", None)
        return bool(found.matmul.allow_tf32) if precision is None else precision == "tf32"
    return False


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
    from gpuprof._graphs.signature import launches_of

    return launches_of(graph.nodes)


def of_calls(
    work: Work, capture: Callable[[], CapturedGraph] | None, synchronize: Callable[[], None]
) -> Launches:
    """Count two calls: captured if `capture` is given and works, else under `kernels`."""
    if capture is not None:
        with suppress(Exception):  # whatever the function raises where it is captured
            return _of_both(partial(_captured, work, capture))
    return _of_both(partial(_collected, work, synchronize))


def completed(launches: Launches | None, device: int | None) -> Launches | None:
    return launches and replace(launches, versions=gpu_libraries.versions(device))


def _captured(work: Work, capture: Callable[[], CapturedGraph]) -> Launches:
    work.set_up()
    with capture() as graph:
        return of_graph(graph)


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
