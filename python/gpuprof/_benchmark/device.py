"""What a result says of the device besides times: the memory of a call, and the device's peaks.

The memory is that of an ordinary call, whatever the mode: what was captured into a graph allocates
from a pool of the graph's once, and then never again.
"""

from __future__ import annotations

import math
from contextlib import suppress
from time import perf_counter
from typing import Any

from gpuprof._benchmark.options import Options
from gpuprof._benchmark.work import Work, leaves
from gpuprof._common.peaks import device_peaks, dtype_name
from gpuprof._frameworks import loaded, memory

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

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
        reading = memory.begin(options.stream)
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
    """Return whether torch has initialised CUDA here, or CuPy is imported."""
    return loaded.torch_cuda() is not None or loaded.cupy() is not None


def peaks_for(work: Work, options: Options, device: int | None) -> dict[str, Any]:
    """Return `BenchResult.peaks`: of the device, for the rates that the result has."""
    if options.nbytes is None and options.flops is None:
        return {}
    known = device_peaks(device)
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
    return {**found, "source": known.source, "date": known.date} if found else {}


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
