"""What a timed scope costs the host, compared with raw driver calls, torch, CuPy and cuda.core.

Host nanoseconds per scope or event pair, best and median of several rounds in one process. A pair
is the two records that any event timer cannot do without, never read; a scope is read and counted
too. In bursts, with an untimed wait between, the host is what takes the time; without a pause the
GPU is, because it needs more than a microsecond for each record. Loops cost the same on all sides
and are not subtracted. The parts that need no GPU also run without one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import gpuprof
from raw_driver.build import RawDriver, RawDriverError
from support import measure
from support.loops import (
    BenchmarkError,
    busy_thread,
    counted,
    entered,
    made,
    null_contexts,
    on_threads,
    timed,
)
from support.measure import Contender, Rounds
from support.peers import Peers
from support.results import Row

_COUNT = 20_000
_BURST = 400  # 800 records, below the 1,020 entries that a stream's queue takes
_POOL = 256
_THREADS = 16
_LEGACY_STREAM = 0

_RAW = "raw pair, pooled"
_RAW_BURSTS = "raw pair, pooled, in bursts"
_RAW_READ = "raw pair, pooled and read"
_RAW_LEGACY = "raw pair, legacy stream"
_RAW_THREADS = f"raw pairs, {_THREADS} threads"
_TORCH_SIDE = "torch pair, record(), side stream"
_TORCH_DEFAULT = "torch pair, record(), default stream"
_TORCH_BUSY = "torch pair, beside a busy thread"
_NULL = "with nullcontext()"
_DISABLED = "disabled scope"
_CLOCK = "two reads of the clock"
_CLOCK_AND_DISABLED = "two reads of the clock + disabled scope"
_CPU = "CPU-clock scope"


@dataclass
class Bench:
    """What the sections share; `raw` has the driver open wherever a section needs a GPU."""

    raw: RawDriver
    peers: Peers
    rounds: int
    notes: list[str] = field(default_factory=list)

    def section(self, measure: Callable[[Bench], list[Row]]) -> list[Row]:
        """Return a section's rows, or none and a note if what it measured cannot be reported."""
        try:
            return measure(self)
        except (BenchmarkError, RawDriverError) as error:
            self.notes.append(f"{measure.__name__.replace('_', ' ')} is left out: {error}")
            return []
        finally:
            gpuprof.reset()


def explicit_stream(bench: Bench) -> list[Row]:
    """Scopes on an explicit stream, with statistics on and everything read."""
    raw = bench.raw
    stream = raw.stream()

    def raw_run(burst: int | None, read: bool, on: int = stream) -> Callable[[int], int]:
        return lambda count: raw.pairs(on, count, burst=burst or count, pool=_POOL, read=read)

    def scope_run(name: str, burst: int | None, on: int = stream) -> Contender:
        loop = entered(gpuprof.timer(name, stream=on))
        run = timed(loop, finish=gpuprof.flush, wait=lambda: raw.synchronize(on), burst=burst)
        return Contender(name, counted(run, name), _COUNT)

    scope, bursts, legacy = "scope", "scope, in bursts", "scope, legacy stream"
    by_name = "with gpuprof.timer(name, stream=...)"
    named = timed(
        made(lambda: gpuprof.timer(by_name, stream=stream)),
        finish=gpuprof.flush,
        wait=lambda: raw.synchronize(stream),
    )
    with gpuprof.timer(stream=stream) as probe:
        pass
    if probe.clock != "cuda":
        raise BenchmarkError(f"a scope on a CUDA stream used the {probe.clock} clock")
    peers = bench.peers.explicit_stream()
    rounds = Rounds()
    rounds.measure(
        [
            Contender(_RAW_BURSTS, raw_run(_BURST, False), _COUNT),
            scope_run(bursts, _BURST),
            Contender(_RAW, raw_run(None, False), _COUNT),
            scope_run(scope, None),
            Contender(_RAW_READ, raw_run(None, True), _COUNT),
            Contender(_RAW_LEGACY, raw_run(None, False, _LEGACY_STREAM), _COUNT),
            scope_run(legacy, None, _LEGACY_STREAM),
            Contender(by_name, counted(named, by_name), _COUNT),
            *peers,
        ],
        bench.rounds,
    )
    return [
        rounds.row(_RAW_BURSTS),
        rounds.row(bursts, to=_RAW_BURSTS),
        rounds.row(_RAW),
        rounds.row(scope, to=_RAW, target=1.4),
        rounds.row(_RAW_READ, to=_RAW),
        rounds.row(_RAW_LEGACY),
        rounds.row(legacy, to=_RAW_LEGACY),
        rounds.row(by_name, to=_RAW),
        *(rounds.row(peer.name, to=_RAW) for peer in peers),
    ]


def current_stream(bench: Bench) -> list[Row]:
    """Scopes that find torch's current stream, compared with torch's `record()`."""
    torch = bench.peers.torch
    if torch is None:
        return []
    side, default = "scope, torch's side stream", "scope, torch's default stream"

    def scope(name: str) -> Contender:
        loop = entered(gpuprof.timer(name))
        run = timed(loop, finish=gpuprof.flush, wait=torch.cuda.synchronize, burst=_BURST)
        return Contender(name, counted(run, name), _COUNT)

    rounds = Rounds()
    with torch.cuda.stream(torch.cuda.Stream()):
        rounds.measure([bench.peers.torch_current(_TORCH_SIDE), scope(side)], bench.rounds)
    rounds.measure([bench.peers.torch_current(_TORCH_DEFAULT), scope(default)], bench.rounds)
    return [
        rounds.row(_TORCH_SIDE),
        rounds.row(side, to=_TORCH_SIDE, target=1 / 4),
        rounds.row(_TORCH_DEFAULT),
        rounds.row(default, to=_TORCH_DEFAULT, target=1 / 3),
    ]


def busy_python_thread(bench: Bench) -> list[Row]:
    """Scopes while another thread computes in Python and competes for the GIL."""
    torch = bench.peers.torch
    if torch is None:
        return []
    name = "scope, beside a busy thread"
    loop = entered(gpuprof.timer(name))
    run = timed(loop, finish=gpuprof.flush, wait=torch.cuda.synchronize)
    rounds = Rounds(disturbed=True)
    with torch.cuda.stream(torch.cuda.Stream()), busy_thread():
        rounds.measure(
            [
                bench.peers.torch_current(_TORCH_BUSY, count=100),
                Contender(name, counted(run, name), _COUNT),
            ],
            bench.rounds,
        )
    return [rounds.row(_TORCH_BUSY), rounds.row(name, to=_TORCH_BUSY, target=1 / 10)]


def many_threads(bench: Bench) -> list[Row]:
    """Scopes of 16 threads on streams of their own, compared with as many C++ threads."""
    raw = bench.raw
    streams = [raw.stream() for _ in range(_THREADS)]
    name = f"scopes, {_THREADS} threads"
    run = on_threads(
        [entered(gpuprof.timer(name, stream=stream)) for stream in streams], raw.make_current
    )
    count = _THREADS * 2000
    rounds = Rounds()
    rounds.measure(
        [
            Contender(
                _RAW_THREADS,
                lambda total: raw.threads(streams, total // _THREADS, pool=_POOL),
                count,
            ),
            Contender(name, counted(run, name), count),
        ],
        bench.rounds,
    )
    return [rounds.row(_RAW_THREADS), rounds.row(name, to=_RAW_THREADS, target=1.3)]


def without_a_gpu(bench: Bench) -> list[Row]:
    """Scopes that are switched off, and scopes on the CPU's clock."""
    switched = entered(gpuprof.timer(_DISABLED))
    off_by_option = "scope made with enabled=False"

    def disabled(count: int) -> int:
        gpuprof.disable()
        try:
            return timed(switched)(count)
        finally:
            gpuprof.enable()

    on_cpu = timed(entered(gpuprof.timer(_CPU, backend="cpu")), finish=gpuprof.flush)
    rounds = Rounds()
    rounds.measure(
        [
            Contender(_NULL, timed(null_contexts), 10 * _COUNT),
            Contender(_DISABLED, disabled, 10 * _COUNT),
            Contender(off_by_option, timed(entered(gpuprof.timer(enabled=False))), 10 * _COUNT),
            Contender(_CLOCK, bench.raw.clock_reads, 10 * _COUNT),
            Contender(_CPU, counted(on_cpu, _CPU), 10 * _COUNT),
        ],
        bench.rounds,
    )
    rounds.add_sum(_CLOCK_AND_DISABLED, (_CLOCK, _DISABLED))
    most = 0.5 if sys.version_info < (3, 14) else 0.75
    return [
        rounds.row(_NULL),
        rounds.row(_DISABLED, to=_NULL, target=most),
        rounds.row(off_by_option, to=_NULL),
        rounds.row(_CLOCK),
        rounds.row(_CLOCK_AND_DISABLED),
        rounds.row(_CPU, to=_CLOCK_AND_DISABLED, target=3.0),
    ]


def main() -> None:
    """Measure every section that this machine can run, and report."""
    options = measure.arguments(__doc__)
    raw = RawDriver()
    bench = Bench(raw, Peers(), rounds=3 if options.quick else 9)
    bench.notes.append(
        "ratio is best over best, beside a busy thread mean over mean; in brackets the "
        "median of the rounds' ratios"
    )
    bench.notes += bench.peers.missing
    sections = [explicit_stream, current_stream, busy_python_thread, many_threads]
    try:
        raw.open()
    except RawDriverError as error:
        bench.notes.append(f"only what needs no GPU was measured: {error}")
        sections = []
    rows = [row for section in [*sections, without_a_gpu] for row in bench.section(section)]
    measure.report("timing_scope_overhead", rows, bench.notes, options.json)


if __name__ == "__main__":
    main()
