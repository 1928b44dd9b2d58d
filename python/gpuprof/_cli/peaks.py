"""``gpuprof info --peaks``: measures the most that the GPU does, and stores it.

The memory's bandwidth is that of a copy by the driver. The FLOP/s are those of a product of square
matrices by torch; without it there are none. Each is the best of several runs of
`gpuprof.benchmark`, so that one that was disturbed does not count: there are more runs while the
best one has no second one near it. A note says where that did not help. The GPU is the first
visible one.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpuprof._core as _core
from gpuprof._benchmark.api import BenchResult, benchmark
from gpuprof._benchmark.work import first_line
from gpuprof._cli.command import FAILED, OK, Answer, printed
from gpuprof._common import machine
from gpuprof._common import peaks as common_peaks
from gpuprof._common.peaks import Peaks
from gpuprof._common.records import now
from gpuprof._common.text import shown_text
from gpuprof._common.units import byte_size, rate
from gpuprof._display.records import Records
from gpuprof._display.table import Table
from gpuprof.errors import CudaError, CudaUnavailableError, GpuprofError

RUNS = 3  # at least
MOST_RUNS = 6
AGREE = 0.02  # how far the second best run may be from the best one, as a fraction
STEADY = 0.05  # above this, a note says that the peak may be too low
RUN_S = 0.3  # at least, for each run
RUN_MOST_S = 2.0
COPY_BYTES = 2 << 30  # read and written together: many times any L2 cache
LEAST_COPY_BYTES = 256 << 20  # a few times any L2 cache
COPY_SHARE = 4  # of the GPU's memory that the copy takes at most: a fourth
# Of the matrices, which take 256 MiB each of float32 at most. The smaller product heats the GPU
# less, so that its clocks may stay higher.
SIDES = (4096, 8192)

_PER_THREAD_STREAM = 2  # the driver's handle of a default stream
_DTYPES = ("float32", "tf32", "bfloat16", "float16")


@dataclass
class Measured:
    """The peaks, a line for each of them on how it was measured, and what could not be."""

    peaks: Peaks
    memory: int
    driver: str | None
    how: dict[str, str]
    notes: list[str] = field(default_factory=list)
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form, for JSON: that of the file, with what is said besides."""
        return {
            **common_peaks.HEAD,
            "peaks": {self.peaks.key: self.peaks.to_dict()},
            "file": None if self.path is None else str(self.path),
            "how": dict(self.how),
            "notes": list(self.notes),
        }

    def records(self) -> Records:
        lines = [(name, value, unit, self.how[name]) for name, value, unit in self._rates()]
        return Records(("what", "per_s", "unit", "measured"), lines)

    def _rates(self) -> list[tuple[str, float | None, str]]:
        flops = [(name, value, "FLOP") for name, value in self.peaks.flops.items()]
        return [("memory copy", self.peaks.bytes_per_s, "B"), *flops]

    def __str__(self) -> str:
        head = f"{self.peaks.device}, {byte_size(self.memory)}, driver {self.driver or 'not known'}"
        lines = [[name, rate(value, unit), self.how[name]] for name, value, unit in self._rates()]
        table = Table(["what", "peak", "measured"], lines, frozenset({"what", "measured"})).plain()
        notes = [f"note: {note}" for note in self.notes]
        stored = [] if self.path is None else [f"stored in {self.path}"]
        text = [f"peaks of {head}", "", *table, "", *notes, *stored]
        return "".join(f"{shown_text(line)}\n" for line in text)


def run(form: str) -> Answer:
    """Measure and store, and return what to print; CudaUnavailableError without a GPU."""
    found = measured()
    code = OK
    try:
        found.path = common_peaks.store(found.peaks)
    except (OSError, ValueError) as error:
        code = FAILED
        found.notes.append(f"not stored: {common_peaks.store_path()}: {error}")
    return Answer(printed(form, found.to_dict(), found.__str__, found.records), code)


def measured() -> Measured:
    _check_driver()
    found = Measured(Peaks(), 0, None, {})
    torch = _torch(found.notes)
    memory = _core.devices()[0]["total_memory"]
    bytes_per_s = _bandwidth(min(COPY_BYTES, memory // COPY_SHARE), found)
    flops = {}
    for dtype in _DTYPES if torch else ():
        try:
            flops[dtype] = _flops(dtype, torch, found)
        except Exception as error:  # whatever the library raises; the others still count
            found.notes.append(f"{dtype} was left out: {first_line(error)}")
    described = machine.describe(0)
    found.memory, found.driver = described["gpu_memory"] or 0, described["driver"]
    found.peaks = Peaks(
        flops,
        bytes_per_s,
        date=now(),
        device=described["gpu"] or "",
        key=common_peaks.key_of(described),
    )
    return found


def _check_driver() -> None:
    driver = _core.driver_info()
    reason = "CUDA sees no device" if driver["available"] else driver["reason"]
    if not driver["available"] or not _core.devices():
        message = f"there is no GPU whose peaks could be measured: {reason}"
        raise CudaUnavailableError(message)


def _bandwidth(size: int, found: Measured) -> float:
    while True:
        try:
            buffer = _core.DeviceBuffer(size)
            break
        except CudaError as error:  # others may use most of the memory
            if error.name != "CUDA_ERROR_OUT_OF_MEMORY" or size <= LEAST_COPY_BYTES:
                raise
            size //= 2
    moved = size // 2 * 2
    stream = _PER_THREAD_STREAM
    seconds = _best_s(found, "the memory copy", buffer.copy, (1, stream), stream=stream)
    found.how["memory copy"] = f"{byte_size(moved // 2)} copied by the driver"
    return moved / seconds


def _flops(dtype: str, torch: Any, found: Measured) -> float:
    best = 0.0
    # A process of the command alone: what is set here disturbs nobody.
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    for side in SIDES:
        a, b = (torch.randn(side, side, device="cuda:0", dtype=kind) for _ in range(2))
        out = {"out": torch.empty_like(a)}
        seconds = min(_best_s(found, dtype, torch.mm, (a, each), out) for each in (b, b.t()))
        if (flops := 2 * side**3 / seconds) > best:
            best = flops
            found.how[dtype] = f"{side:,} x {side:,} matrices, torch {torch.__version__}"
    return best


def _best_s(
    found: Measured,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    stream: object = None,
) -> float:
    """Return the seconds of a call in the fastest of several runs."""
    timed: list[BenchResult] = []  # the fastest first
    for made in range(MOST_RUNS):
        if made >= RUNS and _spread(timed) <= AGREE:
            break
        run = benchmark(
            function,
            args,
            kwargs,
            name=name,
            mode="batched",
            stream=stream,
            min_time_s=RUN_S,
            max_time_s=RUN_MOST_S,
        )
        if run.clock == "cpu":  # it gives the GPU nothing
            break
        if run.clock == "cuda" and run.median_ms > 0.0:
            timed = sorted([*timed, run], key=lambda each: each.median_ms)
    if not timed:
        message = f"no time on the GPU was measured for {name}"
        raise GpuprofError(message)
    best = timed[0]
    notes = []
    if max(_spread(timed), best.rel_precision) > STEADY:
        notes.append(
            f"{name}: its time was not steady, as where others use the GPU, and the peak may be "
            "too low; measure again on a GPU that is idle"
        )
    if slowed := ", ".join(best.throttle_reasons):
        notes.append(f"{name}: the GPU lowered its clocks: {slowed}")
    found.notes += [note for note in notes if note not in found.notes]
    return best.median_ms / 1e3


def _spread(timed: list[BenchResult]) -> float:
    """Return how far the second best run is from the best one, as a fraction."""
    return timed[1].median_ms / timed[0].median_ms - 1.0 if len(timed) > 1 else math.inf


def _torch(notes: list[str]) -> Any:
    """Return torch where it multiplies on the GPU; else None, and a note says why."""
    if _core.driver_info()["override"]:  # torch would use the system's driver
        notes.append("no FLOP/s: GPUPROF_CUDA_DRIVER names a driver that torch does not use")
    elif importlib.util.find_spec("torch") is None:
        notes.append("no FLOP/s: they take torch, which is not installed")
    else:
        try:
            torch = importlib.import_module("torch")
            if torch.cuda.is_available():
                return torch
            notes.append("no FLOP/s: torch sees no CUDA device")
        except Exception as error:  # a broken library must not end the command
            notes.append(f"no FLOP/s: torch does not work here: {first_line(error)}")
    return None
