"""Where each nanosecond of a scope and of a graph launch goes.

Host nanoseconds in bursts, best and median of several rounds in one process. A scope is compared
with the raw event pair on the same stream, a launch with the raw `cuGraphLaunch`. Each part is
measured alone, in a loop of its own. The rest is the whole less its parts: driver calls take longer
between Python's instructions, which leave colder caches than a loop of their own, and gpuprof's
code around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpuprof
from raw_driver.build import RawDriver, RawDriverError
from support import measure
from support.loops import counted, entered, repeated, timed
from support.measure import Contender, Rounds
from support.peers import Peers
from support.results import Row

_COUNT = 15_000
_BURST = 300  # 600 records, below the 1,020 entries that a stream's queue takes
_POOL = 320
_SCOPE_TARGET = 1.25
_LAUNCH_TARGET = 1.15
_KERNELS = (1, 10, 100)


class Bench:
    """The driver, torch, and how both tables are made."""

    def __init__(self, rounds: int) -> None:
        self._raw = RawDriver()
        self._raw.open()
        self._parts = self._raw.parts()
        self._graphs = self._raw.graphs()
        self._rounds = rounds
        self.peers = Peers()

    def stream(self) -> int:
        """Return a new stream's handle."""
        return self._raw.stream()

    def _in_bursts(self, loop: Callable[[int], None], stream: int) -> Callable[[int], int]:
        return timed(
            loop, finish=gpuprof.flush, wait=lambda: self._raw.synchronize(stream), burst=_BURST
        )

    def scope(
        self, kind: str, stream: int, options: dict[str, Any], current: Callable[[], object] | None
    ) -> list[Row]:
        """Return a scope beside the raw pair on its stream, and its parts.

        `current` is how the stream is found where the scope is given none.
        """
        pair, name = f"raw pair, {kind}", f"scope, {kind}"
        asked, read = f"its questions to the driver, {kind}", f"reading the pair, {kind}"
        cpu = f"the same scope on the CPU's clock, {kind}"
        found = f"finding torch's stream, {kind}"
        contenders = [
            Contender(pair, lambda n: self._pairs(stream, n), _COUNT),
            Contender(
                name,
                counted(self._in_bursts(entered(gpuprof.timer(name, **options)), stream), name),
                _COUNT,
            ),
            Contender(asked, lambda n: self._parts.scope_queries(stream, n), _COUNT),
            Contender(read, lambda n: self._parts.pair_reads(stream, n, pool=_POOL), _COUNT),
            Contender(
                cpu,
                timed(entered(gpuprof.timer(cpu, backend="cpu")), finish=gpuprof.flush),
                _COUNT,
            ),
        ]
        if current is not None:
            contenders.append(Contender(found, timed(repeated(current)), _COUNT))
        return self._table(contenders, pair, name, _SCOPE_TARGET)

    def _pairs(self, stream: int, count: int) -> int:
        return self._raw.pairs(stream, count, burst=_BURST, pool=_POOL, read=False)

    def launch(self, kernels: int) -> list[Row]:
        """Return a launch beside the raw one, and its parts."""
        stream = self.stream()
        kind = f"{kernels} kernel" + "s" * (kernels > 1)
        plain, name = f"raw cuGraphLaunch, {kind}", f"launch(stream), {kind}"
        asked, call = f"its questions to the driver, {kind}", f"a Python call, {kind}"
        with gpuprof.capture(stream) as captured:
            self._graphs.kernels(stream, kernels)
        launch = repeated(captured.graph.launch, stream)
        exec_ = self._graphs.graph(stream, kernels)
        contenders = [
            Contender(
                plain, lambda n: self._graphs.launches(exec_, stream, n, burst=_BURST), _COUNT
            ),
            Contender(name, self._in_bursts(launch, stream), _COUNT),
            Contender(asked, lambda n: self._parts.launch_queries(stream, n), _COUNT),
            Contender(call, timed(repeated({}.get, stream)), _COUNT),
        ]
        return self._table(contenders, plain, name, _LAUNCH_TARGET)

    def keeping(self) -> list[Row]:
        """Return what a launch costs more where its graph keeps objects alive."""
        stream = self.stream()
        plain, name = "launch(stream)", "launch(stream), the graph keeps objects"
        event = "an event without timing after each launch"
        runs = {}
        for label, kept in ((plain, []), (name, [object()])):
            with gpuprof.capture(stream, keep_alive=kept) as captured:
                self._graphs.kernels(stream, 1)
            runs[label] = self._in_bursts(repeated(captured.graph.launch, stream), stream)
        contenders = [Contender(label, run, _COUNT) for label, run in runs.items()]
        contenders.append(
            Contender(event, lambda n: self._parts.completions(stream, n, burst=_BURST), _COUNT)
        )
        rounds = Rounds()
        rounds.measure(contenders, self._rounds)
        return [rounds.row(plain), rounds.row(name, to=plain), rounds.row(event)]

    def _table(
        self, contenders: list[Contender], floor: str, name: str, target: float
    ) -> list[Row]:
        """Measure; the whole comes first, then its parts, then what they leave."""
        rounds = Rounds()
        rounds.measure(contenders, self._rounds)
        parts = [each.name for each in contenders if each.name != name]
        return [
            rounds.row(name, to=floor, target=target),
            *(rounds.row(part) for part in parts),
            rounds.rest(f"the rest, {name}", of=name, without=parts),
        ]


def _scopes(bench: Bench) -> list[Row]:
    rows = bench.scope("stream=0", 0, {"stream": 0}, None)
    side = bench.stream()
    rows += bench.scope("stream=side", side, {"stream": side}, None)
    torch = bench.peers.torch
    if torch is None:
        return rows
    device = torch.cuda.current_device()
    raw_stream = torch._C._cuda_getCurrentRawStream

    def current() -> object:
        return raw_stream(device)

    rows += bench.scope("torch's default stream", 0, {}, current)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        rows += bench.scope("torch's side stream", stream.cuda_stream, {}, current)
    return rows


def main() -> None:
    """Measure both tables, and report."""
    options = measure.arguments(__doc__)
    notes = [
        "ratio is best over best; in brackets the median of the rounds' ratios",
        "torch's stream is found by its C table of functions, which is cheaper than the Python "
        "call that stands for it here",
    ]
    try:
        bench = Bench(3 if options.quick else 11)
    except RawDriverError as error:
        raise SystemExit(f"timing_scope_parts needs a GPU: {error}") from None
    notes += bench.peers.missing
    rows = _scopes(bench)
    for kernels in _KERNELS:
        rows += bench.launch(kernels)
    rows += bench.keeping()
    measure.report("timing_scope_parts", rows, notes, options.json)


if __name__ == "__main__":
    main()
