"""What a token costs by batch size: a decode step run eagerly and behind graphs of fixed sizes.

A decoder of four layers with a static cache. Beside `gpuprof.make_graphed_callable` runs
the same with `torch.cuda.graph` by hand. A step is one token of each sequence of a batch; batches
between two sizes are padded. Needs a GPU and torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from support import measure
from support.calls import LATENCY, Bench, Counts, Table, torch_with_gpu
from support.loops import BenchmarkError
from support.results import Row

_BATCHES = (1, 2, 3, 4, 8, 16, 24, 32, 64)
# An eager call takes an entry of the queue for each kernel, a graphed one a few.
_EAGER = Counts(loop=100, host=60, latency=100, burst=6)
_GRAPHED = Counts(loop=200, host=200, latency=100, burst=100)
_THAN_EAGER = 1 / 2
_THAN_BY_HAND = 1.02  # two runs of the same code differ by this much


def by_batch(bench: Bench, calls: dict[str, Callable[..., Any]], batch: int) -> list[Row]:
    """Return a step's time in a loop, its latency, its host time and its GPU time."""
    from support.decode_models import BY_HAND, EAGER, OWN, arguments, check

    sets = arguments(batch)
    check(calls, sets)
    before = calls[OWN].stats()  # type: ignore[attr-defined]
    table = Table(bench, f"batch {batch}", calls, lambda way: _EAGER if way == EAGER else _GRAPHED)
    table.measure(sets)
    rows = []
    for way in calls:
        rows += table.rows(way, sets[0])
    for kind in (LATENCY, ""):
        rows += table.compared(OWN, EAGER, _THAN_EAGER, kind)
        rows += table.compared(OWN, BY_HAND, _THAN_BY_HAND, kind)
    now = calls[OWN].stats()  # type: ignore[attr-defined]
    if (now.captures, now.eager_calls) != (before.captures, before.eager_calls):
        raise BenchmarkError(f"batch {batch}: not every call was a replay: {now}")
    return rows


def main() -> int:
    """Measure and report; return 1 if a batch could not be measured."""
    options = measure.arguments(__doc__)
    torch = torch_with_gpu("graphs_decode")
    bench = Bench(torch, quick=options.quick)
    from support.decode_models import SIZES, ways

    bench.notes += [
        f"the graphs are of the sizes {', '.join(map(str, SIZES))}; other batches are padded",
        "latency is that of one step and the wait for it, a step in a loop waits for the last only",
        "by hand: a torch.cuda.graph for each size on one pool, static inputs that are filled in "
        "each call, and a clone of the result",
    ]
    batches = _BATCHES[:4] if options.quick else _BATCHES
    rows: list[Row] = []
    with torch.no_grad():
        calls = ways()
        found = [bench.section(by_batch, calls, batch) for batch in batches]
    for each in found:
        rows += each
    measure.report("graphs_decode", rows, bench.notes, options.json)
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
