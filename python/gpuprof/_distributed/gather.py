"""`gather_stats`: the statistics of all ranks in one table on rank 0."""

from __future__ import annotations

import time
from typing import Any

from gpuprof._common.checks import MOST_S, number, type_error, warn_outside
from gpuprof._distributed import wire
from gpuprof._distributed.exchange import Exchange, polls
from gpuprof._distributed.ranks import RankStats
from gpuprof._distributed.world import StoreError, World, find
from gpuprof._kernels.api import Kernels
from gpuprof._timing.scope import stats as own_stats
from gpuprof._timing.stats import Stats

CALL = "gpuprof.distributed.gather_stats"


def gather_stats(
    timeout_s: float = 60.0,
    *,
    store: Any = None,
    group: Any = None,
    kernels: Kernels | None = None,
) -> RankStats | None:
    """Return the statistics of all ranks as one table on rank 0, and None on the others.

    Each rank calls it. The others leave their statistics in torch.distributed's store and go on at
    once; rank 0 reads what is there until the deadline, and names the ranks that are missing. No
    collective is used, so that a rank that hangs or is dead cannot block it.

    Parameters
    ----------
    timeout_s : float
        How many seconds rank 0 waits for the others, from 0 to 86,400. Samples that are still
        waiting for the GPU are waited for at most half as long.
    store : torch.distributed.Store, optional
        Where to meet. None is the store of the default process group.
    group : torch.distributed.ProcessGroup, optional
        The ranks to gather from, on the first of which the table is. None is all of them.
    kernels : gpuprof.Kernels, optional
        What a `gpuprof.kernels` block has collected on this rank. Rows get `communication_ms` and
        `exposed_ms` by it, for one entry of the scope in that block; ranks without are in neither.

    Returns
    -------
    RankStats or None
        Rank 0's table. Without a process group, and without a launcher, it is of this process.

    Raises
    ------
    InvalidStateError
        There is no process group yet in a program that a launcher has started on several ranks,
        this rank is not in `group`, or the block of `kernels` has not ended.
    TypeError, ValueError
        `timeout_s` is no number, or out of range; `kernels` is no `gpuprof.Kernels`.

    Notes
    -----
    The n-th call on one rank meets the n-th call on the others. A rank that has called it less
    often than rank 0 is missing in the table; what a rank leaves after rank 0 has gone on is
    removed.

    Examples
    --------
    >>> import gpuprof.distributed
    >>> with gpuprof.timer("step", backend="cpu"):
    ...     pass
    >>> gpuprof.distributed.gather_stats()["step"].slowest_rank
    0
    """
    number("timeout_s", timeout_s, 0.0, MOST_S)
    if kernels is not None and not isinstance(kernels, Kernels):
        raise type_error(kernels, "kernels", "a gpuprof.Kernels")
    on_gpu = [] if kernels is None else kernels.rows
    begun = time.monotonic()
    world = find(CALL, store, group)
    packed = wire.pack(_measured(begun + timeout_s / 2), on_gpu)
    if world.size == 1:
        return _table(world, {0: packed})
    exchange = Exchange(world, "stats")
    if world.rank != 0:
        try:
            exchange.post(packed)
        except StoreError as error:  # its host, mostly rank 0, is gone: no reason to end this one
            warn_outside(
                f"gpuprof: rank {world.own} cannot leave its statistics for rank "
                f"{world.members[0]}: {error}"
            )
        return None
    others = exchange.collect(begun + timeout_s)
    result = _table(world, {0: packed, **others})
    for rank in exchange.ahead.keys() - others.keys():
        result.left_out[world.members[rank]] = (
            f"it is at its call {exchange.ahead[rank]:,}, this is call {exchange.number:,}, and it "
            "has deleted what it left for this one; call gather_stats equally often on all ranks"
        )
    result.store_error = exchange.failure
    try:
        exchange.close()
    except StoreError as error:
        result.store_error = str(error)
    return result


def _measured(deadline: float) -> Stats:
    """Return the statistics once no sample waits for the GPU, or at the deadline."""
    for _ in polls(deadline, shortest_s=0.02):
        found = own_stats(wait=False)
        if not any(row.pending for row in found.values()):
            break
    return found


def _table(world: World, values: dict[int, bytes]) -> RankStats:
    result = RankStats(world.members)
    for rank, raw in sorted(values.items()):
        result.add(world.members[rank], raw)
    return result
