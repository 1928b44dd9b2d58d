"""What a training step costs: eager, with graphs of torch, and with gpuprof's graphed callables.

First the host's time of a forward pass whose gradients are wanted. Then two models in one table:
a whole step (zero_grad, forward, loss, backward, fused Adam) in a loop, its latency, its host time,
its GPU time, and the loss after a number of steps from the same weights and batches. Needs a GPU
and torch.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from support import measure
from support.calls import HOST_TIME, LATENCY, Bench, Counts, Table, torch_with_gpu
from support.measure import Rounds
from support.results import Row

if TYPE_CHECKING:
    from support.training_peers import TrainingWays

_STEPS = 200  # after which losses are compared
# An eager step queues up to 350 kernels, one with graphs up to 20 entries. So many kernels go
# behind the gate for one step only.
_EAGER = Counts(loop=60, host=40, latency=40, burst=2, gpu_mode="isolated")
_GRAPHED = Counts(loop=150, host=120, latency=80, burst=20, gpu_mode="isolated")
_FORWARDS = 600
_FORWARD_BURST = 100

# Two runs of the same code differ by this much.
_NOT_SLOWER = 1.02
_LOSS_PERCENT = 0.1


def forward_cost(bench: Bench, ways: TrainingWays) -> list[Row]:
    """The host's time of a forward pass whose gradients are wanted."""
    from support.training_peers import ACCUMULATE, OWN_COMPILED, PLAIN, TORCH

    rounds = Rounds()
    calls = {
        f"forward, {ways.task.name}: {way}": trainer.forward
        for way in (TORCH, PLAIN, ACCUMULATE, OWN_COMPILED)
        if (trainer := ways.trainers.get(way)) is not None and trainer.forward is not None
    }
    given = tuple((batch[0],) for batch in ways.task.batches)
    rounds.measure(
        [bench.host(name, call, given, _FORWARDS, _FORWARD_BURST) for name, call in calls.items()],
        bench.rounds,
    )
    ways.check()
    targets = {PLAIN: _NOT_SLOWER, ACCUMULATE: 1 / 2}
    theirs = f"forward, {ways.task.name}: {TORCH}"
    rows = []
    for name in calls:
        target = targets.get(name.partition(": ")[2]) if theirs in calls else None
        rows.append(rounds.row(name, to=None if name == theirs else theirs, target=target))
    return rows


def whole_steps(
    bench: Bench, ways: TrainingWays, than_eager: float | None, than_torch: float
) -> list[Row]:
    """The time of a whole step, and the loss that it arrives at."""
    from support.training_peers import (
        ACCUMULATE,
        EAGER,
        OWN_COMPILED,
        PLAIN,
        REDUCE_OVERHEAD,
        TORCH,
        WHOLE,
        WHOLE_COMPILED,
    )

    name, batches = ways.task.name, ways.task.batches
    table = Table(
        bench,
        name,
        {way: trainer.step for way, trainer in ways.trainers.items()},
        lambda way: _EAGER if way == EAGER else _GRAPHED,
    )
    table.measure(batches)
    fast = (ACCUMULATE, WHOLE, WHOLE_COMPILED)
    rows = []
    for way in ways.trainers:
        rows += table.rows(way, batches[0])
        rows += _losses(ways, way, exact=way in (PLAIN, ACCUMULATE, WHOLE))
        if way != EAGER:
            rows += table.compared(way, EAGER, than_eager if way in fast else None)
        if way in (PLAIN, OWN_COMPILED, *fast):
            rows += table.compared(way, TORCH, than_torch if way in fast else _NOT_SLOWER)
        if way in (OWN_COMPILED, WHOLE_COMPILED):
            for kind in ("", LATENCY, HOST_TIME):
                rows += table.compared(way, REDUCE_OVERHEAD, None, kind)
    ways.check()
    return rows


def _losses(ways: TrainingWays, way: str, *, exact: bool) -> list[Row]:
    from support.training_peers import EAGER

    name, loss = f"{ways.task.name}: {way}", ways.losses[way]
    row = Row(f"{name}, loss after {_STEPS} steps", loss, "")
    if way == EAGER:
        other, target = ways.repeated_loss, None
    else:
        other, target = ways.losses[EAGER], _LOSS_PERCENT if exact else None
    off = 100 * abs(loss - other) / abs(other)
    return [row, Row(f"{name}, loss apart from eager's", off, "%", target=target)]


def _measured(bench: Bench) -> tuple[list[Row], bool]:
    from support import training_models as models
    from support.training_peers import TrainingWays

    rows: list[Row] = []
    complete = True
    # Targets: the allowed share of an eager step's time, and of a step with torch's callable.
    for make, than_eager, than_torch in (
        (models.deep_mlp, 1 / 3, 1 / 1.3),
        (models.transformer, None, _NOT_SLOWER),
    ):
        compiled = make is models.deep_mlp or not bench.quick
        ways = TrainingWays(make(), _STEPS, compiled=compiled)
        bench.notes += ways.missing
        complete = complete and ways.complete
        if make is models.deep_mlp:
            rows += bench.section(forward_cost, ways)
        rows += bench.section(whole_steps, ways, than_eager, than_torch)
        del ways  # its graphs have to go before the next model's are captured
    return rows, complete


def main() -> int:
    """Measure and report; return 1 if a way of gpuprof's could not be measured."""
    options = measure.arguments(__doc__)
    torch = torch_with_gpu("graphs_training")
    warnings.filterwarnings("ignore", message=".*capturable=True.*")  # it is meant so in all ways
    bench = Bench(torch, quick=options.quick)
    bench.notes += [
        "ratio is best over best",
        "a step is zero_grad, forward, loss, backward and a fused, capturable Adam; a forward is "
        "the forward pass alone, with the gradients of all parameters wanted",
        "eager, torch's graphed callable, reduce-overhead, gpuprof, param_grads='accumulate' and "
        "compile=True: the model alone is compiled or in graphs, forward and backward; the loss "
        "and the optimizer run eagerly",
        "param_grads='accumulate' trains with zero_grad(set_to_none=False), all others with "
        "gradients set to None",
        "whole step: one callable of the whole step, whose first calls train eagerly; model "
        "compiled: with torch.compile(model) inside of it",
        "callables of gpuprof are made with verify='off', and with the strict guards that are the "
        "default",
        "GPU time is that of one step queued behind a gate",
        f"loss after {_STEPS} steps: of the last step, from the same weights, batches and order in "
        "each way; apart from eager's: the relative difference from eager training, for eager that "
        "of a second run",
        "compiled kernels add up in another order, so their loss has no target",
    ]
    rows, complete = _measured(bench)
    measure.report("graphs_training", rows, bench.notes, options.json)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
