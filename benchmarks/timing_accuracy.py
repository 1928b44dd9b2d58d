"""How far scopes and torch's events are from the kernel's own time.

Kernels stamp their start and stop with the GPU's `%globaltimer`. A row is the distance, without
sign, between that and the reading: median over the repetitions, in microseconds. On an idle stream
the launch gap is inside the reading; queued behind other work it is not. Needs a GPU.
"""

from __future__ import annotations

import importlib
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpuprof
from support import measure
from support.peers import Peers
from support.results import Row

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "gpu"))
kernels: Any = importlib.import_module("kernels")

_MILLISECONDS = (0.1, 1.0, 10.0, 100.0)
_LIMIT_US = {"queued": 4.0, "idle": 12.0}

# Launches the kernel inside an interval; returns a function that waits and returns milliseconds.
Interval = Callable[[], Callable[[], float]]


def _scope(stream: int, spin: Any) -> Interval:
    scope = gpuprof.timer(stream=stream)

    def measure() -> Callable[[], float]:
        with scope as sample:
            spin.launch()
        return lambda: sample.ms

    return measure


def _torch_events(torch: Any, stream: int, spin: Any) -> Interval:
    on = torch.cuda.ExternalStream(stream)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def elapsed() -> float:
        end.synchronize()
        return float(begin.elapsed_time(end))

    def measure() -> Callable[[], float]:
        begin.record(on)
        spin.launch()
        end.record(on)
        return elapsed

    return measure


def _error_us(measure: Interval, spin: Any, ahead: Any, repetitions: int, *, wait: bool) -> float:
    errors: list[float] = []
    for _ in range(repetitions):
        ahead.launch()
        if wait:
            kernels.device().synchronize()
        reading = measure()
        errors.append((reading() - spin.milliseconds()) * 1000.0)
    return statistics.median(errors)


def _rows(torch: Any, quick: bool) -> list[Row]:
    device = kernels.device()
    rows = []
    for nominal in _MILLISECONDS:
        stream = device.stream()
        spin = kernels.Spin(device, stream, int(nominal * kernels.MILLISECOND))
        before = kernels.Spin(device, stream, 2 * kernels.MILLISECOND)
        repetitions = max(5, int((10 if quick else 40) / max(nominal, 1.0)))
        for state, wait in (("queued", False), ("idle", True)):
            name = f"{nominal:g} ms kernel, {state}"
            own = abs(_error_us(_scope(stream, spin), spin, before, repetitions, wait=wait))
            limit = _LIMIT_US[state] + nominal  # 0.1 % of the kernel's time, in microseconds
            rows.append(Row(f"{name}: scope", own, "us", target=limit))
            if torch is not None:
                pair = _torch_events(torch, stream, spin)
                theirs = abs(_error_us(pair, spin, before, repetitions, wait=wait))
                rows.append(Row(f"{name}: torch events", theirs, "us"))
    return rows


def _calibration_rows() -> list[Row]:
    found = gpuprof.calibrate()
    readings = {
        "calibrate(): tick": found.tick_ns,
        "calibrate(): empty interval, idle": found.idle_ns,
        "calibrate(): empty interval, queued": found.queued_ns,
    }
    return [Row(name, value, "ns") for name, value in readings.items() if value is not None]


def main() -> None:
    """Measure and report."""
    options = measure.arguments(__doc__)
    try:
        kernels.device()
    except (OSError, kernels.DriverCallError) as error:
        sys.exit(f"timing_accuracy needs a GPU: {error}")
    peers = Peers()
    rows = [*_rows(peers.torch, options.quick), *_calibration_rows()]
    notes = ["distance from the kernel's own %globaltimer stamps, median", *peers.missing]
    measure.report("timing_accuracy", rows, notes, options.json)


if __name__ == "__main__":
    main()
