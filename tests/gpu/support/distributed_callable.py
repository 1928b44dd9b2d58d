"""Graphed training in two processes: DistributedDataParallel, and modules of FSDP.

Each has a GPU of its own, or both share the only one.

Run it from the repository's root: ``python -m tests.gpu.support.distributed_callable NAME FILE``
with the name of a check and a file that does not exist yet, by which the processes meet.
"""

from __future__ import annotations

import copy
import os
import sys
from typing import Any

import pytest
import torch
from torch import distributed, nn

import gpuprof
from gpuprof.errors import GpuprofError, InvalidStateError
from tests.gpu.support import training
from tests.gpu.support.callables import assert_replays
from tests.gpu.support.frameworks import gpu_of_rank

PROCESSES = 2


def _graphed(module: nn.Module, **options: Any) -> Any:
    return gpuprof.make_graphed_callable(module, (training.batch(0),), **options)


def _rows(rank: int, step: int) -> int:
    return step * PROCESSES + rank


def _assert_same_on_all(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        others = [torch.empty_like(parameter.grad) for _ in range(PROCESSES)]
        distributed.all_gather(others, parameter.grad)
        assert all(torch.equal(parameter.grad, other) for other in others), name


def ddp(rank: int) -> None:
    """Compare the gradients and parameters of steps with those of eager DDP."""
    module, eager = training.pair()
    fast = training.data_parallel(_graphed(module))
    plain = training.data_parallel(eager)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (module, eager)]
    for step in range(3):
        for run, optimizer in zip((fast, plain), optimizers, strict=True):
            optimizer.zero_grad()
            training.loss_of(run, _rows(rank, step)).backward()
        training.assert_same_gradients(module, eager)
        _assert_same_on_all(module)
        alone = copy.deepcopy(eager)
        alone.zero_grad()
        training.loss_of(alone, _rows(rank, step)).backward()
        mine, own = module[0].weight.grad, alone[0].weight.grad
        assert mine is not None
        assert own is not None
        assert not torch.allclose(mine, own)  # what the other process computed is in it
        for optimizer in optimizers:
            optimizer.step()
    training.assert_same_state(module, eager)
    assert_replays(fast.module, 3)


def ddp_without_synchronization(rank: int) -> None:
    """Add up gradients over two calls, of which the last alone synchronizes them."""
    module, eager = training.pair()
    fast = training.data_parallel(_graphed(module))
    plain = training.data_parallel(eager)
    for step in range(2):
        for run in (fast, plain):
            run.zero_grad()
            with run.no_sync():
                training.loss_of(run, _rows(rank, 10 * step)).backward()
            training.loss_of(run, _rows(rank, 10 * step + 1)).backward()
        training.assert_same_gradients(module, eager)
        _assert_same_on_all(module)


def ddp_itself(rank: int) -> None:
    """Graph a module of DDP itself, whose buckets a replay would not prepare."""
    module = training.data_parallel(training.mlp())
    with pytest.raises(GpuprofError, match="DistributedDataParallel"):
        gpuprof.make_graphed_callable(module, (training.batch(0),))


def ddp_and_accumulation(rank: int) -> None:
    """Let a graph of a module that DDP has add up gradients, which DDP would not see."""
    module = training.mlp()
    accumulating = _graphed(module, param_grads="accumulate")
    fast = training.data_parallel(accumulating)
    refused = pytest.raises(InvalidStateError, match=r"DistributedDataParallel.*'autograd'")
    with refused:
        fast(training.batch(0))
    with refused:
        _graphed(module, param_grads="accumulate")


def fsdp(_rank: int) -> None:
    """Graph a sharded module: refused by a text that names what it has and what to do."""
    from torch.distributed.fsdp import fully_shard

    module = fully_shard(training.mlp())
    with pytest.raises((TypeError, InvalidStateError), match="DTensor") as caught:
        gpuprof.make_graphed_callable(module, (training.batch(0),))
    assert "FSDP" in str(caught.value)


CHECKS = {
    each.__name__: each
    for each in (ddp, ddp_without_synchronization, ddp_itself, ddp_and_accumulation, fsdp)
}


def _run(rank: int, name: str, file: str) -> None:
    device = gpu_of_rank(rank)
    torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl",
        init_method=f"file://{file}",
        rank=rank,
        world_size=PROCESSES,
        device_id=torch.device("cuda", device),
    )
    try:
        CHECKS[name](rank)
        torch.cuda.synchronize()
    finally:
        distributed.destroy_process_group()


def main(name: str, file: str) -> None:
    """Run a check in all processes; an error of one is that of all."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.multiprocessing.spawn(  # type: ignore[no-untyped-call]
        _run, args=(name, file), nprocs=PROCESSES, join=True
    )
    print("all gradients are right")


if __name__ == "__main__":
    main(*sys.argv[1:])
