"""What a call of a graphed model costs, beside eager calls and the graphs of torch.

First the host's time alone: one tensor in, another one in each call, one out, in bursts that the
GPU's queue can hold. Then three models in one table, each called over and over: the time of a call
with the wait for the last one, the host's time, and the GPU's, which `gpuprof.benchmark` measures
with the calls queued behind a gate. Inference throughout. Needs a GPU and torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import gpuprof
from support import measure
from support.loops import BenchmarkError, Loop, timed
from support.measure import Contender, Rounds
from support.results import Row

if TYPE_CHECKING:
    from support.callable_models import Model
    from support.callable_peers import Ways

# Calls between two waits where only host time is measured. They fit into the 1,020 entries of a
# stream's queue: an eager call takes one for each kernel, a graphed one up to three.
_EAGER_BURST = 8
_BURST = 200
_EAGER_CALLS = 200
_CALLS = 2_000
_THROUGHPUT_CALLS = 1_000
_GPU_TIME_S = 0.5

# Two runs of the same code differ by this much.
_NOT_SLOWER = 1.02


@dataclass
class Bench:
    """What the sections share."""

    torch: Any
    rounds: int
    notes: list[str] = field(default_factory=list)

    def section(self, measure: Callable[..., list[Row]], *given: object) -> list[Row]:
        """Return a section's rows, or none and a note if what it measured cannot be reported."""
        try:
            return measure(self, *given)
        except BenchmarkError as error:
            self.notes.append(f"{measure.__name__.replace('_', ' ')} is left out: {error}")
            return []

    def host(
        self, name: str, call: Callable[..., object], model: Model, *, eager: bool
    ) -> Contender:
        """Return calls of which only the host time is measured."""
        burst, count = (_EAGER_BURST, _EAGER_CALLS) if eager else (_BURST, _CALLS)
        wait = self.torch.cuda.synchronize
        return Contender(name, timed(_called(call, model), wait=wait, burst=burst), count)

    def throughput(self, name: str, call: Callable[..., object], model: Model) -> Contender:
        """Return calls whose time ends when the last one is done."""
        finish = self.torch.cuda.synchronize
        return Contender(name, timed(_called(call, model), finish=finish), _THROUGHPUT_CALLS)


def _called(call: Callable[..., object], model: Model) -> Loop:
    # As in a program's loop, a result lives until the next one exists.
    def loop(count: int) -> None:
        result = None
        for given in islice(cycle(model.arguments), count):
            result = call(*given)
        del result

    return loop


def host_cost(bench: Bench, ways: Ways) -> list[Row]:
    """The host's time of a call with one tensor in and one out."""
    from support.callable_peers import DEFAULT, STATIC, TORCH, TORCH_FUNCTION

    names = {
        way: f"host, {ways.model.name}: {way}"
        for way in (TORCH, TORCH_FUNCTION, DEFAULT, STATIC)
        if way in ways.calls
    }
    rounds = Rounds()
    rounds.measure(
        [bench.host(name, ways.calls[way], ways.model, eager=False) for way, name in names.items()],
        bench.rounds,
    )
    ways.check()
    if TORCH not in names:
        return [rounds.row(name) for name in names.values()]
    theirs = names[TORCH]
    rows = [
        rounds.row(theirs),
        rounds.row(names[STATIC], to=theirs, target=1 / 8),
        rounds.row(names[DEFAULT], to=theirs, target=1 / 4),
    ]
    if TORCH_FUNCTION in names:
        function = names[TORCH_FUNCTION]
        rows.append(rounds.row(function, to=theirs))
        for own in (names[STATIC], names[DEFAULT]):
            rows.append(rounds.row(own, to=function, shown=f"{own}, beside it of a function"))
    return rows


def whole_calls(bench: Bench, ways: Ways, than_eager: float | None, than_torch: float) -> list[Row]:
    """The time of a call in a loop, its host time, and its GPU time."""
    from support.callable_peers import DEFAULT, EAGER, STATIC, TORCH

    model = ways.model
    calls = {way: f"{model.name}: {way}" for way in ways.calls}
    throughput, host = Rounds(), Rounds()
    throughput.measure(
        [bench.throughput(name, ways.calls[way], model) for way, name in calls.items()],
        bench.rounds,
    )
    host.measure(
        [
            bench.host(name, ways.calls[way], model, eager=way == EAGER)
            for way, name in calls.items()
        ],
        bench.rounds,
    )
    ways.check()
    rows = []
    for way, name in calls.items():
        own = way in (DEFAULT, STATIC)
        row = throughput.row(
            name,
            to=None if way == EAGER else calls[EAGER],
            target=than_eager if own else None,
        )
        rows.append(row)
        if own and TORCH in calls:
            shown = f"{name}, beside {TORCH}"
            rows.append(throughput.row(name, to=calls[TORCH], target=than_torch, shown=shown))
        rows.append(replace(host.row(name), name=f"{name}, host time"))
        rows += _gpu_time(bench, ways, way, f"{name}, GPU time")
    return [_microseconds(row) for row in rows]


def _gpu_time(bench: Bench, ways: Ways, way: str, name: str) -> list[Row]:
    given = ways.model.arguments[0]
    try:
        found = gpuprof.benchmark(
            ways.calls[way], given, mode="batched", max_time_s=_GPU_TIME_S, progress=False
        )
    except Exception as error:  # a peer may fail in ways of its own
        bench.notes.append(f"{name} is left out: {type(error).__name__}: {error}")
        return []
    if (found.mode, found.gate) != ("batched", "gated"):
        bench.notes.append(f"{name} is left out: measured {found.mode}, {found.gate}")
        return []
    return [Row(name, min(found.samples_ms) * 1e6, "ns", found.median_ms * 1e6)]


def _microseconds(row: Row) -> Row:
    median = None if row.median is None else row.median / 1e3
    return replace(row, value=row.value / 1e3, unit="us", median=median)


def _measured(bench: Bench) -> list[Row]:
    from support import callable_models as models
    from support.callable_peers import COMPILED, Ways, skipped_graphs

    rows: list[Row] = []
    # Targets: the allowed share of an eager call's time, and of a call of torch's.
    for make, than_eager, than_torch in (
        (models.deep_mlp, 1 / 2, _NOT_SLOWER),
        (models.small_mlp, None, 1 / 2),
        (models.decoder, 1 / 3, _NOT_SLOWER),
    ):
        ways = Ways(make())
        bench.notes += ways.missing
        if make is models.deep_mlp:
            rows += bench.section(host_cost, ways)
        rows += bench.section(whole_calls, ways, than_eager, than_torch)
        if COMPILED in ways.calls:
            bench.notes.append(
                f"{ways.model.name}: {COMPILED} was asked for graphs, and so far it left out "
                f"{skipped_graphs()} of them"
            )
    return rows


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        sys.exit(f"graphs_callable needs torch: {error}")
    if not torch.cuda.is_available():
        sys.exit("graphs_callable needs a GPU: torch finds none")
    return torch


def main() -> None:
    """Measure and report."""
    options = measure.arguments(__doc__)
    torch = _torch()
    bench = Bench(torch, rounds=3 if options.quick else 9)
    bench.notes += [
        "ratio is best over best",
        "torch's graphed callable of a module takes all parameters as arguments; of a function "
        "that calls the module, its own arguments alone",
        "GPU time is that of calls queued behind a gate, with the copies of arguments and results",
    ]
    with torch.no_grad():
        rows = _measured(bench)
    measure.report("graphs_callable", rows, bench.notes, options.json)


if __name__ == "__main__":
    main()
