"""Taking samples until they are enough: warm-up, stop rule, clocks, and what is said at the end."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timezone
from time import perf_counter
from typing import TYPE_CHECKING

from gpuprof._benchmark.clocks import Clocks
from gpuprof._benchmark.probe import device_allocations
from gpuprof._common import machine
from gpuprof._common.units import duration
from gpuprof._display.progress import progress
from gpuprof._results import statistics
from gpuprof._results.result import BenchResult

if TYPE_CHECKING:
    from gpuprof._benchmark.harness import Prepared

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

STABLE = 0.02  # by how much the medians of warm-up batches may still differ
STABLE_BATCHES = 3
BATCH_S = 0.02
WARMUP_FACTOR = 5  # an unstable function is warmed up this many times as long, and no longer
MAX_SAMPLES = 5_000  # the interval of the median is a fiftieth of the IQR then
CHUNK_S = 0.02  # between two looks at the clocks and the framework's memory
MAX_DISCARDED = 0.5  # of the samples, for growing memory
MIN_DISCARDED = 1000
NOISY = 0.1  # IQR over median
DEPENDENT = 0.5  # of the samples
FEW_TICKS = 50
CLOCK_VARIES = 0.02


def warm_up(prepared: Prepared) -> None:
    """Take samples for `warmup_s`, and longer while their medians go on changing."""
    least = prepared.options.warmup_s
    if least <= 0.0:
        return
    begun = perf_counter()
    medians: deque[float] = deque(maxlen=STABLE_BATCHES)
    while True:
        batch: list[float] = []
        until = perf_counter() + min(BATCH_S, least)
        while not batch or perf_counter() < until:
            batch.append(prepared.sample())
        medians.append(statistics.median(batch))
        spent = perf_counter() - begun
        stable = max(medians) - min(medians) <= STABLE * max(medians)
        if spent >= least and len(medians) == STABLE_BATCHES and stable:
            return
        if spent >= least and len(batch) == 1:  # a long call: a sample is a batch
            return
        if spent >= WARMUP_FACTOR * least:
            prepared.work.warn("its time was still changing after the warm-up")
            return


def measure(prepared: Prepared) -> BenchResult:
    """Warm up, take samples until they are precise enough or the time is over, and report."""
    options = prepared.options
    begun = perf_counter()
    warm_up(prepared)
    if prepared.noise:
        prepared.noise.restart()
    taken = _Taken()
    with Clocks(_uuid(prepared)) as clocks, progress(_label(prepared), options.progress) as bar:
        started = perf_counter()
        check_at, most = options.min_samples, max(MAX_SAMPLES, options.min_samples)
        while True:
            taken.add_chunk(prepared, clocks, started + options.max_time_s)
            count, spent = len(taken.samples), perf_counter() - started
            bar.update(spent / options.max_time_s, f"{count} samples")
            if count and (spent >= options.max_time_s or count >= most):
                break
            if count >= check_at and spent >= options.min_time_s:
                if _precision(taken.samples) <= options.rel_precision:
                    break
                check_at = count + max(10, count // 5)
    if statistics.MIN_FOR_INTERVAL <= len(taken.samples) < options.min_samples:
        prepared.work.warn(
            f"{len(taken.samples):,} of the {options.min_samples:,} samples of min_samples were "
            f"taken in the {options.max_time_s:g} s of max_time_s"
        )
    for count, fate in ((taken.discarded, "were discarded"), (taken.kept, "may be too long")):
        if count:
            prepared.work.warn(
                f"{count} samples {fate}, because the framework took memory from the driver "
                "meanwhile"
            )
    return report(prepared, taken.samples, taken.mhz, taken.reasons, perf_counter() - begun)


class _Taken:
    """The samples so far, with the SM clock at each where it is known."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self.mhz: list[float] = []
        self.reasons: set[str] = set()
        self.discarded = 0
        self.kept = 0  # although memory grew

    def add_chunk(self, prepared: Prepared, clocks: Clocks, deadline: float) -> None:
        """Take samples for a moment; discard them if the framework's memory grew meanwhile."""
        on_gpu = prepared.clock != "cpu"
        before = device_allocations() if on_gpu else None
        until = min(perf_counter() + CHUNK_S, deadline)
        chunk = [prepared.sample()]
        while perf_counter() < until and len(chunk) < MAX_SAMPLES:
            chunk.append(prepared.sample())
        now = clocks.sm_mhz()
        self.reasons.update(clocks.throttle_reasons())
        if on_gpu and device_allocations() != before:
            most = MAX_DISCARDED * (len(self.samples) + self.discarded + MIN_DISCARDED)
            if self.discarded + len(chunk) <= most and perf_counter() < deadline:
                self.discarded += len(chunk)
                return
            self.kept += len(chunk)
        self.samples += chunk
        if now is not None:
            self.mhz += [now] * len(chunk)


def report(
    prepared: Prepared,
    samples: list[float],
    clock_mhz: list[float] | tuple[()] = (),
    reasons: set[str] | tuple[()] = (),
    duration_s: float = 0.0,
) -> BenchResult:
    """Make the result of samples that were taken."""
    options, sampler = prepared.options, prepared.sampler
    _warn_of_quality(prepared, samples, clock_mhz, reasons)
    host_ms = statistics.median(samples) if sampler.mode == "cpu" else prepared.host_ms
    return BenchResult(
        name=options.name or _name_of(prepared.work.fn),
        mode=sampler.mode,
        requested_mode=options.mode,
        clock=sampler.clock,
        l2=sampler.l2,
        samples_ms=tuple(samples),
        host_ms=host_ms,
        tick_ms=prepared.tick_ms,
        calls_per_sample=sampler.calls,
        gate=sampler.gate,
        clock_mhz=tuple(clock_mhz) if len(clock_mhz) == len(samples) else (),
        throttle_reasons=tuple(sorted(reasons)),
        noise=prepared.noise.found() if prepared.noise else {},
        nbytes=options.nbytes,
        flops=options.flops,
        warnings=tuple(prepared.work.warnings),
        params=dict(options.params),
        machine=machine.describe(prepared.device),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        duration_s=duration_s,
    )


def _limit(samples: list[float]) -> str:
    if len(samples) >= MAX_SAMPLES:
        return f"after {len(samples):,} samples, which is as many as are taken"
    return "because max_time_s was over"


def _precision(samples: list[float]) -> float:
    # Without the tick, which more samples do not make finer.
    low, high = statistics.median_interval(
        samples, independent=statistics.independent_count(samples)
    )
    middle = statistics.median(samples)
    return (high - low) / 2.0 / middle if middle > 0.0 else 0.0


def _warn_of_quality(
    prepared: Prepared,
    samples: list[float],
    clock_mhz: list[float] | tuple[()],
    reasons: set[str] | tuple[()],
) -> None:
    warn, options = prepared.work.warn, prepared.options
    middle = statistics.median(samples)
    if middle <= 0.0:
        warn("it takes less than the clock can tell")
        return
    precision = _precision(samples)
    if len(samples) < statistics.MIN_FOR_INTERVAL:
        warn(
            f"only {len(samples)} of the {statistics.MIN_FOR_INTERVAL} samples that an interval of "
            "the median needs were taken; give it more max_time_s or min_samples"
        )
    elif precision > options.rel_precision:
        warn(
            f"the median is known to {100 * precision:.2g} % only, where "
            f"{100 * options.rel_precision:.2g} % was wanted, {_limit(samples)}"
        )
    independent = statistics.independent_count(samples)
    if independent < DEPENDENT * len(samples):
        warn(
            f"samples that follow each other are alike: {len(samples):,} of them tell as much as "
            f"{independent:,.0f} independent ones, and the interval is as wide as that of those"
        )
    spread = (statistics.quantile(samples, 0.75) - statistics.quantile(samples, 0.25)) / middle
    if spread > NOISY:
        warn(f"the samples vary: half of them spread over {100 * spread:.0f} % of the median")
    if prepared.tick_ms * FEW_TICKS > middle:
        warn(
            f"it takes less than {FEW_TICKS} steps of the clock, {duration(prepared.tick_ms)} each"
        )
    if clock_mhz and max(clock_mhz) - min(clock_mhz) > CLOCK_VARIES * max(clock_mhz):
        warn(f"the SM clock went from {min(clock_mhz):.0f} to {max(clock_mhz):.0f} MHz meanwhile")
    if reasons:
        warn(f"the GPU lowered its clocks: {', '.join(sorted(reasons))}")


def _uuid(prepared: Prepared) -> str | None:
    if prepared.device is None or prepared.clock == "cpu":
        return None
    return machine.describe(prepared.device).get("gpu_uuid")


def _label(prepared: Prepared) -> str:
    return prepared.options.name or _name_of(prepared.work.fn)


def _name_of(fn: object) -> str:
    return str(getattr(fn, "__qualname__", None) or type(fn).__name__)
