"""Taking samples until they are enough: warm-up, stop rule, GPU clocks, warnings of the result."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from time import perf_counter
from typing import Any

from gpuprof._benchmark.device import peaks_for
from gpuprof._benchmark.energy import check_energy, energy_of_call
from gpuprof._benchmark.harness import Harness
from gpuprof._common import machine, nvml
from gpuprof._common.quantiles import quantile
from gpuprof._common.records import now
from gpuprof._common.units import duration, percent
from gpuprof._display.progress import Progress
from gpuprof._frameworks import loaded
from gpuprof._results import statistics
from gpuprof._results.eligible import WORTH_SAYING, waited
from gpuprof._results.result import BenchResult, merged

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

STABLE = 0.02  # the largest difference between the medians of the last warm-up batches
STABLE_BATCHES = 3
BATCH_S = 0.02
WARMUP_FACTOR = 5  # an unstable function is warmed up for at most this many times as long
MAX_SAMPLES = 5_000  # with which the interval of the median is a fiftieth of the IQR
CHUNK_S = 0.02  # between two checks of the clocks and the framework's memory
NOISY = 0.1  # IQR over median
DEPENDENT = 0.5  # of the samples
MIN_INDEPENDENT = 20
EXTENDED = 0.1  # of max_time_s, in which that many independent samples are waited for
FEW_TICKS = 50
CLOCK_VARIES = 0.02
_ALLOCATIONS = "num_device_alloc"  # of torch's statistics; older ones count segments only
_SEGMENTS = "segment.all.allocated"
_NO_THROTTLING = {nvml.IDLE, nvml.APPLICATION_CLOCKS}
_WHOLE_GPU = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"  # of a MIG slice


class Samples:
    """The samples so far, with the SM clock at each where it is known."""

    def __init__(self, samples: Sequence[float] = ()) -> None:
        self.samples = list(samples)
        self.mhz: list[float] = []
        self.reasons: set[str] = set()
        self.too_long = 0  # perhaps
        self.energy: dict[str, float] = {}

    def add_chunk(self, harness: Harness, clocks: Clocks, deadline: float) -> None:
        """Take samples for `CHUNK_S`; count them if the framework's memory grew meanwhile."""
        on_gpu = harness.mode != "cpu"
        before = device_allocations() if on_gpu else None
        chunk = harness.samples_until(min(perf_counter() + CHUNK_S, deadline), MAX_SAMPLES)
        now = clocks.sm_mhz()
        self.reasons.update(clocks.throttle_reasons())
        if on_gpu and harness.ranks.decide("memory", device_allocations() != before):
            self.too_long += len(chunk)
        self.samples += chunk
        if now is not None:
            self.mhz += [now] * len(chunk)


class Clocks:
    """Reads the GPU's clocks from NVML, which does not make the GPU wait. Never raises.

    Without nvidia-ml-py, or for a device that NVML does not know, every answer is "not known". For
    a MIG slice the clocks are those of the GPU that it is on.
    """

    def __init__(self, device_uuid: str | None) -> None:
        self._handle: Any = None
        self._session = ExitStack()
        if not device_uuid:
            return
        # The bindings call a foreign library; whatever goes wrong there, the benchmark runs.
        with suppress(Exception):
            self._nvml = self._session.enter_context(nvml.session())
            found = nvml.handle_of(self._nvml, device_uuid)
            whole = None if found is None else nvml.ask(self._nvml, found, _WHOLE_GPU)
            self._handle = found if whole is None else whole
        if self._handle is None:
            self.close()

    def sm_mhz(self) -> float | None:
        """Return the SM clock now, in MHz; None if it is not known."""
        mhz = self._ask(nvml.sm_mhz)
        return float(mhz) if mhz else None

    def throttle_reasons(self) -> tuple[str, ...]:
        """Return what slows the clocks down now; not idling, nor clocks that a user has set."""
        reasons = self._ask(nvml.clock_reasons) or ()
        return tuple(each for each in reasons if each not in _NO_THROTTLING)

    def _ask(self, question: Callable[[Any, Any], Any]) -> Any:
        with suppress(Exception):
            return None if self._handle is None else question(self._nvml, self._handle)
        return None

    def close(self) -> None:
        self._handle = None
        with suppress(Exception):
            self._session.close()


def device_allocations() -> tuple[int, ...]:
    """Return figures that change when a framework's allocator asks the driver for memory."""
    found = []
    cuda = loaded.torch_cuda()
    if cuda is not None:
        with suppress(RuntimeError):  # a custom allocator keeps no statistics
            figures = cuda.memory_stats()
            found.append(int(figures.get(_ALLOCATIONS, figures.get(_SEGMENTS, 0))))
    cupy = loaded.cupy()
    if hasattr(cupy, "get_default_memory_pool"):
        found.append(int(cupy.get_default_memory_pool().total_bytes()))
    return tuple(found)


def are_enough(samples: list[float], rel_precision: float, *, extended: bool = False) -> bool:
    """Return whether the median is known well enough to stop.

    Samples that are alike also need to be so many that `MIN_INDEPENDENT` independent ones would say
    as much, unless that has `extended` the run for long enough: of fewer, the time for which they
    stay alike comes out too short, and their interval too narrow (A. Sokal, "Monte Carlo methods in
    statistical mechanics", 1996, section 3, asks for hundreds of such times).
    """
    if _precision(samples) > rel_precision:
        return False
    independent = statistics.independent_count(samples)
    alike = independent < DEPENDENT * len(samples)
    return extended or not alike or independent >= MIN_INDEPENDENT


def next_check(count: int) -> int:
    return count + max(10, count // 5)


def _precision(samples: list[float]) -> float:
    # Without the clock's tick, which more samples do not reduce.
    low, high = statistics.median_interval(
        samples, independent=statistics.independent_count(samples)
    )
    middle = statistics.median(samples)
    return (high - low) / 2.0 / middle if middle > 0.0 else 0.0


class Measurer(Harness):
    """A function that is ready to be measured, at once or sample by sample."""

    def warm_up(self) -> None:
        least = self.options.warmup_s
        if least <= 0.0:
            return
        begun = perf_counter()
        medians: deque[float] = deque(maxlen=STABLE_BATCHES)
        while True:
            batch = self.samples_until(perf_counter() + min(BATCH_S, least), MAX_SAMPLES)
            medians.append(self.ranks.decide("the warm-up", statistics.median(batch)))
            spent = self.ranks.decide("the warm-up", perf_counter() - begun)
            if self.choose_calls_again(medians[-1]) and spent < WARMUP_FACTOR * least:
                medians.clear()
                continue
            stable = max(medians) - min(medians) <= STABLE * max(medians)
            if spent >= least and len(medians) == STABLE_BATCHES and stable:
                return
            if spent >= least and len(batch) == 1:  # a long call: a sample is a batch
                return
            if spent >= WARMUP_FACTOR * least:
                self.work.warn("its time was still changing after the warm-up")
                return

    def measure(self, least: int = 0) -> BenchResult:
        """Measure as `benchmark` does; take `least` samples even beyond `max_time_s`."""
        return self.paused(self._measure, least)

    def result(self, samples_ms: Sequence[float]) -> BenchResult:
        """Make the result of samples that were taken, after a call whose memory is measured."""
        return self.paused(self._report, Samples(samples_ms))

    def _measure(self, least: int) -> BenchResult:
        options = self.options
        begun = perf_counter()
        uuid = None if self.mode == "cpu" else machine.describe(self.device)["gpu_uuid"]
        if options.energy:
            check_energy(self, uuid)
        self.warm_up()
        self.sampler.restart()
        taken = Samples()
        with closing(Clocks(uuid)) as clocks, Progress(self.name, options.progress) as bar:
            started = perf_counter()
            check_at = max(options.min_samples, least)
            most = max(MAX_SAMPLES, check_at)
            while True:
                taken.add_chunk(self, clocks, started + options.max_time_s)
                count = len(taken.samples)
                spent = self.ranks.decide("the time", perf_counter() - started)
                bar.update(spent / options.max_time_s, f"{count} samples")
                if count >= max(least, 1) and (spent >= options.max_time_s or count >= most):
                    break
                if count >= check_at and spent >= options.min_time_s:
                    extended = spent >= EXTENDED * options.max_time_s
                    enough = are_enough(taken.samples, options.rel_precision, extended=extended)
                    if self.ranks.decide("the end", enough):
                        break
                    check_at = next_check(count)
        if statistics.MIN_FOR_INTERVAL <= count < options.min_samples:
            self.work.warn(
                f"{count:,} of the {options.min_samples:,} samples of min_samples were taken in "
                f"the {options.max_time_s:g} s of max_time_s"
            )
        if taken.too_long:
            self.work.warn(
                f"{taken.too_long} samples may be too long, because the framework took memory from "
                "the driver meanwhile"
            )
        if options.energy:
            taken.energy = energy_of_call(self, uuid, statistics.median(taken.samples))
        return self._report(taken, perf_counter() - begun)

    def _report(self, taken: Samples, duration_s: float = 0.0) -> BenchResult:
        options, sampler, samples = self.options, self.sampler, taken.samples
        on_gpu, noise = sampler.mode != "cpu", sampler.noise()
        self._warn_of_quality(taken)
        if (share := waited(noise)) > WORTH_SAYING:
            self.work.warn(
                f"the thread waited for a CPU for {percent(share)} of a sample, which is in the "
                f"median; the CPU time of a call is {duration(noise['cpu_ms'])}"
            )
        result = BenchResult(
            name=self.name,
            mode=sampler.mode,
            requested_mode=options.mode,
            clock=sampler.clock,
            l2=sampler.l2,
            samples_ms=tuple(samples),
            host_ms=self.host_ms if on_gpu else statistics.median(samples),
            tick_ms=self.tick_ms,
            calls_per_sample=sampler.calls,
            gate=sampler.gate,
            clock_mhz=tuple(taken.mhz) if len(taken.mhz) == len(samples) else (),
            throttle_reasons=tuple(sorted(taken.reasons)),
            noise=noise,
            nbytes=options.nbytes,
            flops=options.flops,
            launches=self.launches() if on_gpu else None,
            memory=self.memory() if on_gpu else {},
            energy=taken.energy,
            peaks=peaks_for(self.work, options, self.device) if on_gpu else {},
            warnings=tuple(self.work.warnings),
            params=dict(options.params or {}),
            machine=machine.describe(self.device),
            created=now(),
            duration_s=duration_s,
        )
        return result if self.ranks.is_alone else merged(self.ranks.gather(result.to_dict()))

    def _warn_of_quality(self, taken: Samples) -> None:
        warn, options, samples, mhz = self.work.warn, self.options, taken.samples, taken.mhz
        middle = statistics.median(samples)
        if middle <= 0.0:
            warn("it takes less than the clock can tell")
            return
        precision = _precision(samples)
        if len(samples) < statistics.MIN_FOR_INTERVAL:
            warn(
                f"only {len(samples)} of the {statistics.MIN_FOR_INTERVAL} samples that an "
                "interval of the median needs were taken; give it more rounds, max_time_s or "
                "min_samples"
            )
        elif precision > options.rel_precision:
            cause = "because max_time_s was over"
            if len(samples) >= MAX_SAMPLES:
                cause = f"after {len(samples):,} samples, which is as many as are taken"
            warn(
                f"the median is known to {percent(precision, 2)} only, where "
                f"{percent(options.rel_precision, 2)} was wanted, {cause}"
            )
        independent = statistics.independent_count(samples)
        if independent < DEPENDENT * len(samples):
            warn(
                f"samples that follow each other are alike: {len(samples):,} of them tell as much "
                f"as {independent:,.0f} independent ones, and the interval is as wide as that of "
                "those"
            )
        spread = (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle
        if spread > NOISY:
            warn(f"the samples vary: half of them spread over {100 * spread:.0f} % of the median")
        if self.tick_ms * FEW_TICKS > middle:
            warn(
                f"it takes less than {FEW_TICKS} steps of the clock, {duration(self.tick_ms)} each"
            )
        if mhz and max(mhz) - min(mhz) > CLOCK_VARIES * max(mhz):
            warn(f"the SM clock went from {min(mhz):.0f} to {max(mhz):.0f} MHz meanwhile")
        if taken.reasons:
            warn(f"the GPU lowered its clocks: {', '.join(sorted(taken.reasons))}")
