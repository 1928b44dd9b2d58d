"""What a call of a graphed model costs, beside eager calls and the graphs of torch.

First the host's time alone: one tensor in, another one in each call, one out, in bursts that the
GPU's queue can hold; then what the guards of a module of 64 parameters add to it. Then four models
in one table, each called over and over: the time of a call in a loop, of a call that is waited for,
the host's time, and the GPU's; and what making it callable took once, without compilers' caches.
Inference throughout. Needs a GPU and torch.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from support import measure
from support.calls import HOST_TIME, LATENCY, Bench, Counts, Table, torch_with_gpu
from support.measure import Rounds
from support.results import Row

if TYPE_CHECKING:
    from support.callable_peers import Ways

_BURST = 200
_HOST_CALLS = 1_000
# An eager call takes an entry of the queue for each kernel, a graphed one up to three.
_EAGER = Counts(loop=200, host=80, latency=100, burst=8)
_GRAPHED = Counts(loop=200, host=400, latency=100, burst=_BURST)

# Two runs of the same code differ by this much.
_NOT_SLOWER = 1.02
_GUARDS_COST = 1.3
_LATENCY_OF_COMPILED = 1 / 1.25
_HOST_OF_COMPILED = 1 / 8


def host_cost(bench: Bench, ways: Ways) -> list[Row]:
    """The host's time of a call with one tensor in and one out."""
    from support.callable_peers import DEFAULT, STATIC, TORCH, TORCH_FUNCTION

    rounds, names = _host_rounds(bench, ways, (TORCH, TORCH_FUNCTION, DEFAULT, STATIC))
    torch, function = names.get(TORCH), names.get(TORCH_FUNCTION)
    rows = []
    if torch is not None:
        rows.append(rounds.row(torch))
    for way, target in ((STATIC, 1 / 8), (DEFAULT, 1 / 4)):
        if way in names:
            rows.append(rounds.row(names[way], to=torch, target=target if torch else None))
    if function is not None:
        rows.append(rounds.row(function, to=torch))
        rows += [
            rounds.row(names[way], to=function, shown=f"{names[way]}, beside it of a function")
            for way in (STATIC, DEFAULT)
            if way in names
        ]
    return rows


def guard_cost(bench: Bench, ways: Ways) -> list[Row]:
    """The host's time of a call of a guarded module, beside the same work without guards."""
    from support.callable_peers import GUARDED, GUARDED_STATIC, NO_GUARDS, NO_GUARDS_STATIC

    rounds, names = _host_rounds(bench, ways, tuple(ways.calls))
    rows = []
    for guarded, bare in ((GUARDED, NO_GUARDS), (GUARDED_STATIC, NO_GUARDS_STATIC)):
        if bare in names:
            rows.append(rounds.row(names[bare]))
        if guarded in names:
            target = _GUARDS_COST if bare in names else None
            rows.append(rounds.row(names[guarded], to=names.get(bare), target=target))
    return rows


def _host_rounds(
    bench: Bench, ways: Ways, wanted: tuple[str, ...]
) -> tuple[Rounds, dict[str, str]]:
    names = {way: f"host, {ways.model.name}: {way}" for way in wanted if way in ways.calls}
    rounds = Rounds()
    rounds.measure(
        [
            bench.host(name, ways.calls[way], ways.model.arguments, _HOST_CALLS, _BURST)
            for way, name in names.items()
        ],
        bench.rounds,
    )
    ways.check()
    return rounds, names


def whole_calls(bench: Bench, ways: Ways, than_eager: float | None, than_torch: float) -> list[Row]:
    """The time of a call in a loop, its latency, its host time and its GPU time."""
    from support.callable_peers import (
        DEFAULT,
        EAGER,
        OWN_COMPILED,
        OWN_COMPILED_STATIC,
        REDUCE_OVERHEAD,
        STATIC,
        TORCH,
    )

    model = ways.model
    table = Table(bench, model.name, ways.calls, lambda way: _EAGER if way == EAGER else _GRAPHED)
    table.measure(model.arguments)
    rows = []
    for way in ways.calls:
        rows += table.rows(way, model.arguments[0])
        if way != EAGER:
            set_up = Row(f"{model.name}: {way}, set-up", ways.set_up_s[way] * 1e3, "ms")
            rows.append(set_up)
        own = way in (DEFAULT, STATIC)
        if way != EAGER:
            rows += table.compared(way, EAGER, than_eager if own else None)
        if own:
            rows += table.compared(way, TORCH, than_torch)
        if way in (OWN_COMPILED, OWN_COMPILED_STATIC) and model.judged_compiled:
            rows += table.compared(way, REDUCE_OVERHEAD, _LATENCY_OF_COMPILED, LATENCY)
            rows += table.compared(way, REDUCE_OVERHEAD, _HOST_OF_COMPILED, HOST_TIME)
    ways.check()
    return rows


def _measured(bench: Bench) -> tuple[list[Row], bool]:
    from support import callable_models as models
    from support.callable_peers import REDUCE_OVERHEAD, guard_ways, skipped_graphs, whole_ways

    guarded = guard_ways(models.guarded_mlp())
    bench.notes += guarded.missing
    rows = bench.section(guard_cost, guarded)
    complete = guarded.complete
    del guarded
    # Targets: the allowed share of an eager call's time, and of a call of torch's.
    for make, than_eager, than_torch in (
        (models.deep_mlp, 1 / 2, _NOT_SLOWER),
        (models.small_mlp, None, 1 / 2),
        (models.decoder, 1 / 3, _NOT_SLOWER),
        (models.conv_net, None, _NOT_SLOWER),
    ):
        skipped = skipped_graphs()
        compiled = make is models.deep_mlp or not bench.quick
        ways = whole_ways(make(), compiled=compiled)
        bench.notes += ways.missing
        complete = complete and ways.complete
        if make is models.deep_mlp:
            rows = bench.section(host_cost, ways) + rows
        rows += bench.section(whole_calls, ways, than_eager, than_torch)
        if REDUCE_OVERHEAD in ways.calls:
            bench.notes.append(
                f"{ways.model.name}: {REDUCE_OVERHEAD} was asked for graphs, and it left out "
                f"{skipped_graphs() - skipped} of them"
            )
        del ways  # its graphs have to go before the next model's are captured
    return rows, complete


def main() -> int:
    """Measure and report; return 1 if a way of gpuprof's could not be measured."""
    options = measure.arguments(__doc__)
    torch = torch_with_gpu("graphs_callable")
    bench = Bench(torch, quick=options.quick)
    bench.notes += [
        "ratio is best over best",
        "latency is that of one call and the wait for it, a call in a loop waits for the last only",
        "torch's graphed callable of a module takes all parameters as arguments; of a function "
        "that calls the module, its own arguments alone",
        "GPU time is that of calls queued behind a gate, with the copies of arguments and results",
        "callables of gpuprof are made with verify='off', and with the strict guards that are the "
        "default",
        "no guards: a function of the same 32 layers over plain tensors in a list instead of a "
        "module, so that there is nothing to guard, made with check='sweep'",
        "what reduce-overhead returns is overwritten by a later call, as with outputs='static'",
    ]
    with torch.no_grad():
        rows, complete = _measured(bench)
    measure.report("graphs_callable", rows, bench.notes, options.json)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
