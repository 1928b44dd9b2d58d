"""Choosing how a function is measured, and getting ready for it.

The function is called a few times first, which loads and compiles it, and probed: whether it gives
the GPU work, waits for it, or uses other streams. Where the mode asked for does not work, another
one is taken, and a warning says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import gpuprof._core as _core
from gpuprof._benchmark import device as beside
from gpuprof._benchmark import samplers
from gpuprof._benchmark.gate import MAX_ENTRIES, WAITS, HeldStream
from gpuprof._benchmark.options import Options
from gpuprof._benchmark.probe import LEAST_GPU_NS, ProbeResult, probe, reading_ns
from gpuprof._benchmark.work import Work, first_line
from gpuprof._common.launches import Launches
from gpuprof._distributed.lockstep import Alone, join
from gpuprof._frameworks import loaded
from gpuprof._frameworks.streams import StreamRef, as_current, resolve
from gpuprof._frameworks.torch import random_state_kept
from gpuprof._results.eligible import waited
from gpuprof.errors import EmptyGraphError, InvalidStateError

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpuprof._graphs.graph import CapturedGraph

_Returned = TypeVar("_Returned")
__tracebackhide__ = True  # pytest shows the frames of the test and of its function

SLOPE_MS = 0.4  # that the calls of a slope take together, if they are short
LONG_MS = 5.0  # of a call: a slope over one such call is precise enough
MAX_SLOPE = 400  # calls
CPU_SAMPLE_MS = 0.2
_MAX_NODES = 50_000
_CAPTURE_MS = 2000.0  # of the host's time for capturing
_ENTRIES_A_CALL = 8  # queue entries, assumed until the watchdog shows that it takes more
_LEAST_CALLS = 3  # of a slope: 1 and 2
_TRIES = 3
_SURE_MS = 10.0  # longer than another process has the GPU at a time
_CPU_TRIES = 2
_LEGACY = {0, 1}  # the handles of the legacy default stream


class Harness:
    """A function that is ready to be measured, in the mode of its `sampler`.

    It owns events and graphs, and restores the random generators when it is closed.
    """

    def __init__(
        self, work: Work, options: Options, calls: int | None = None, ranks: Alone | None = None
    ) -> None:
        self.options = options
        self.name = options.name or str(
            getattr(work.fn, "__qualname__", None) or type(work.fn).__name__
        )
        self._calls = calls
        self.work = work
        self.ranks = work.ranks = ranks or join(options.ranks)
        self._sample_s = math.inf  # how long one takes, on several ranks
        self.host_ms = math.nan
        self.device: int | None = None
        self._launches: Launches | None = None  # where the captured graphs have told them
        self._held: HeldStream | None = None  # of a function with GPU work
        self._capturable: StreamRef | None = None  # the stream, if its calls can be captured
        self._backend: Literal["auto", "driver"] = "auto"
        self._undo = ExitStack()
        try:
            # Before the generators are asked: torch may refuse that while a stream is captured.
            where = self._enter_stream() if _core.cuda_in_use() else None
            self._undo.enter_context(random_state_kept())
            self.sampler = self.paused(self._prepare, where)
            self._undo.callback(self.sampler.close)
            self.ranks.decide(f"{self.mode} mode", None)
        except BaseException as error:
            self._undo.close()
            self.ranks.fail(error)
            raise

    @property
    def mode(self) -> str:
        return self.sampler.mode

    @property
    def tick_ms(self) -> float:
        return self.sampler.tick_ms / self.sampler.calls

    def waited(self) -> float:
        """Return the share of a median sample so far in which the thread waited for a CPU."""
        return waited(self.sampler.noise())

    def paused(self, work: Callable[..., _Returned], *args: Any) -> _Returned:
        """Call `work` with this thread's scopes off, unless the options ask for them."""
        result: _Returned = work(*args) if self.options.scopes else _core._paused(work, *args)
        return result

    def sample(self) -> float:
        """Return the time of one call, in milliseconds, with the scopes paused."""
        return self.paused(self.sampler.sample)

    def choose_calls_again(self, median_ms: float) -> bool:
        """Choose another number of calls if this median is far from the aim; return whether it did.

        Only on the CPU's clock, and unless the caller has chosen: the loops of a slope cannot grow.
        The next step up or down is near enough; choosing it would go to and fro.
        """
        if self.mode != "cpu" or self._calls or self.work.setup is not None:
            return False
        calls = self.sampler.calls
        nearest = _nearest_calls(calls, max(median_ms * calls, self.sampler.tick_ms))
        if max(nearest, calls) <= 2 * min(nearest, calls):
            return False
        self.sampler.calls = nearest
        return True

    def samples_until(self, until: float, most: int) -> list[float]:
        """Take samples until then, at least one; on several ranks, as many as rank 0 has time for.

        Ranks do not begin at one moment after a decision. A sample that is left out aligns them.
        """
        begun = perf_counter()
        if self.ranks.is_alone:
            samples = [self.sample()]
            while perf_counter() < until and len(samples) < most:
                samples.append(self.sample())
            return samples
        fitting = (until - begun) / self._sample_s - 1.0
        count = self.ranks.decide("samples", round(min(max(fitting, 1.0), most)))
        if count > 1:
            self.sample()
        samples = [self.sample() for _ in range(count)]
        self._sample_s = (perf_counter() - begun) / (count + 1)
        return samples

    def launches(self) -> Launches | None:
        """Return `BenchResult.launches`; to be asked after the samples, for it may count now."""
        if self._launches is None and self.options.launches and self._held is not None:
            where = self._capturable
            capture = None if where is None else lambda: self._captured(where, 1)[0]
            try:
                self._launches = beside.of_calls(self.work, capture, self._held.synchronize)
            except Exception as error:  # of the function, of a profiler: the times are there
                self.work.warn(f"{beside.NOT_COUNTED}: {first_line(error)}")
        return beside.completed(self._launches, self.device)

    def memory(self) -> dict[str, int]:
        """Return `BenchResult.memory`; to be asked after the samples, for it calls the function."""
        return beside.memory_of_call(self.work, self.options)

    def close(self) -> None:
        self._held = None
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: Any) -> None:  # noqa: PYI036
        self.ranks.__exit__(*exc)
        self.close()

    def _prepare(self, where: StreamRef | None) -> samplers.Sampler:
        self.work.first_call()
        if where is None and _core.cuda_in_use():
            where = self._enter_stream()
        if where is None:
            return self._on_cpu("")
        self.device = where.device
        held = HeldStream(where.handle, where.device)
        probed = probe(self.work, held)
        self.host_ms = probed.host_ms
        if not probed.uses_gpu:
            return self._on_cpu(NO_GPU_WORK)
        self._held = held
        if probed.elsewhere:
            self.work.warn(_ELSEWHERE)
            if self.options.cold_l2:
                self.work.warn("cold_l2 was left out: the function uses several streams")
            one = self.work.setup is not None
            sizes = (0, 1) if one else self._sizes(probed.wall_ms, MAX_SLOPE)
            return samplers.SynchronizedSampler(self.work, held, sizes)
        self._capturable = where
        return self._on_gpu_clock(where, held, probed)

    def _enter_stream(self) -> StreamRef:
        where = resolve(self.options.stream)
        if _core._capture_status(where.handle):
            message = (
                "stream: it is being captured, and a benchmark waits for the GPU; "
                "end the capture first"
            )
            raise InvalidStateError(message)
        self._undo.enter_context(as_current(where))
        return resolve(where.given)  # its device is the current one only now

    def _on_cpu(self, why: str) -> samplers.Sampler:
        self.work.warn(why)
        if self.options.mode != "auto":
            self.work.warn(f"mode {self.options.mode!r} is of the GPU; the CPU's clock was used")
        if self.options.cold_l2:
            self.work.warn("cold_l2 is of the GPU and was left out")
        calls = 1
        if self.work.setup is None:
            calls = self._calls or _cpu_calls(self.work)
        return samplers.CpuSampler(self.work, calls)

    def _sizes(self, call_ms: float, most: int) -> tuple[int, int]:
        """Return how many calls the two sides of a slope have, for calls of about `call_ms`."""
        least = 1 if call_ms >= LONG_MS else 3
        more = self._calls or min(max(math.ceil(SLOPE_MS / call_ms), least), MAX_SLOPE)
        few = max(1, more // 3)
        if few + few + more > most:
            few, more = 1, max(1, min(more, most - 2))
        return few, few + more

    def _on_gpu_clock(
        self, where: StreamRef, held: HeldStream, probed: ProbeResult
    ) -> samplers.Sampler:
        mode = self._mode_for_arguments(where)
        if mode == "isolated":
            self._check_gate(held, probed)
            flush = 2 * l2_bytes(held.device) if self.options.cold_l2 else 0
            return samplers.IsolatedSampler(self.work, held, flush)
        if mode in {"auto", "graph"}:
            try:
                return self._graph(where, held, probed)
            except EmptyGraphError:
                self._capturable = None
                if held.state == "ungated":  # then no other sign of GPU work has been seen
                    return self._on_cpu(NO_GPU_WORK)
                self.work.warn(_NOT_CAPTURED + "its work is not on the stream that was captured")
            except Exception as error:  # whatever the function raises where it is captured
                self._capturable = None
                self.work.warn(_NOT_CAPTURED + first_line(error))
        return self._batched(held, probed)

    def _mode_for_arguments(self, where: StreamRef) -> str:
        """Return the mode asked for, or the one that `setup` or a cold cache needs."""
        mode = self.options.mode
        if self.work.setup is not None:
            return "isolated"
        if not self.options.cold_l2 or mode == "isolated":
            return mode
        why_not = self.work.rotate(l2_bytes(where.device))
        if why_not is None:
            return mode
        self.work.warn(
            f"clones of the arguments cannot take turns: {why_not}; the calls were isolated, with "
            "the L2 flushed before each"
        )
        return "isolated"

    def _graph(self, where: StreamRef, held: HeldStream, probed: ProbeResult) -> samplers.Sampler:
        with ExitStack() as graphs:
            once, on = self._first_captured(where)
            graphs.callback(once.close)
            calibration, held = held.calibration, HeldStream(on.handle, on.device)
            held.calibration = calibration
            once.launch(on.handle)  # the first one uploads it
            held.synchronize()
            launch = partial(once.launch, on.handle)
            once_ns = reading_ns(self.work, held, launch, _TRIES)
            in_time = max(_LEAST_CALLS, int(_CAPTURE_MS / max(probed.host_ms, 1e-3)))
            most = min(_MAX_NODES // max(once.num_nodes, 1), in_time)
            sizes = _whole_rounds(self._sizes(max(once_ns * 1e-6, 1e-4), most), self.work.clones)
            sizes = self.ranks.decide("calls", sizes)
            if (clones := self.work.clones) > 1 and (calls := sum(sizes)) > most:
                message = f"{clones} clones of the arguments take {calls:,} calls, too many for it"
                raise InvalidStateError(message)
            few = self._captured(where, sizes[0])[0]
            graphs.callback(few.close)
            if self.options.launches is not False:
                self._launches = beside.of_graphs(once, few, sizes[0])
            many = self._captured(where, sizes[1])[0]
            graphs.callback(many.close)
            sampler = samplers.GraphSampler(self.work, held, sizes, few, many)
            self.work.warn(held.warning)
            graphs.pop_all()
            once.close()
            return sampler

    def _first_captured(self, where: StreamRef) -> tuple[CapturedGraph, StreamRef]:
        try:
            return self._captured(where, 1)
        except EmptyGraphError:
            if loaded.torch() is None or loaded.cupy() is None:
                raise
            # Torch is there, but the work is CuPy's.
            self._backend = "driver"
            return self._captured(where, 1)

    def _captured(self, where: StreamRef, calls: int) -> tuple[CapturedGraph, StreamRef]:
        from gpuprof._graphs.capture import capture

        given: object = where.handle if where.given is None else where.given
        if where.handle in _LEGACY:  # it cannot be captured; None captures another in its place
            given = None
        name = self.options.name or "benchmark"
        timers: Literal["last", "strip"] = "last" if self.options.scopes else "strip"
        with capture(given, backend=self._backend, timers=timers, name=name) as cap:
            self.work.call_times(calls)
        return cap.graph, StreamRef(where.given, cap.stream, where.device)

    def _batched(self, held: HeldStream, probed: ProbeResult) -> samplers.Sampler:
        most = MAX_ENTRIES // _ENTRIES_A_CALL
        self._check_gate(held, probed)
        if held.state == "gated":
            held.allow(_LEAST_CALLS * probed.host_ms)
            in_time = held.limit_s * 1e3 / 1.5 / max(probed.host_ms, 1e-3)
            sizes = self._sizes(probed.gpu_ms, min(most, int(in_time)))
        else:
            sizes = self._sizes(probed.wall_ms, most)
        sizes = self.ranks.decide("calls", sizes)
        sampler = samplers.BatchedSampler(self.work, held, sizes)
        # The probe sees work of other processes, too, and of first calls that fill a cache.
        tries = range(_TRIES) if probed.gpu_ms < _SURE_MS else ()
        seen = (self.ranks.decide("GPU work", sampler.sample() * 1e6 > LEAST_GPU_NS) for _ in tries)
        if tries and not any(seen):
            sampler.close()
            return self._on_cpu(NO_GPU_WORK)
        return sampler

    def _check_gate(self, held: HeldStream, probed: ProbeResult) -> None:
        if math.isinf(probed.gpu_ms):
            held.give_up(WAITS)
        self.work.warn(held.warning)


NO_GPU_WORK = "no GPU work was seen; the CPU's clock was used"
_ELSEWHERE = (
    "work of it goes on on other streams after its own stream is done; it was timed on the host's "
    "clock, until the whole device is done"
)
_NOT_CAPTURED = "it cannot be captured into a graph, so its calls were queued one by one: "


def l2_bytes(device: int) -> int:
    found = {entry["index"]: entry["l2_bytes"] for entry in _core.devices()}
    return int(found.get(device) or 64 << 20)


def _cpu_calls(work: Work) -> int:
    calls = 1
    while True:
        spent_ms = min(_spent_ms(work, calls) for _ in range(_CPU_TRIES))
        if spent_ms >= CPU_SAMPLE_MS / 8:
            return _nearest_calls(calls, spent_ms)
        calls *= 8


def _spent_ms(work: Work, calls: int) -> float:
    begin = perf_counter_ns()
    work.call_times(calls)
    return work.ranks.decide("calls", (perf_counter_ns() - begin) * 1e-6)


def _nearest_calls(calls: int, spent_ms: float) -> int:
    # A coarse step makes two runs choose the same number, with the same cost of loop and clock.
    steps = round(math.log2(CPU_SAMPLE_MS / spent_ms))
    return max(1, round(calls * 2.0**steps))


def _whole_rounds(sizes: tuple[int, int], clones: int) -> tuple[int, int]:
    """Make both multiples of the number of clones, so that no clone is used before its turn."""
    if clones == 1:
        return sizes
    return clones, clones + clones * math.ceil((sizes[1] - sizes[0]) / clones)
