"""A training step with DistributedDataParallel of which one rank can be slowed on purpose.

On a GPU the slow rank runs a kernel that spins for a given time; on the CPU it sleeps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gpuprof

_LAYERS = 8
_ON_GPU, _ON_CPU = (4096, 512), (128, 32)  # width and batch


class Step:
    """One rank's model and its step; make it in each process that torchrun has started."""

    def __init__(self) -> None:
        import torch
        from torch import distributed, nn
        from torch.nn.parallel import DistributedDataParallel

        self.torch = torch
        self.distributed = distributed
        self.on_gpu = torch.cuda.is_available()
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", local) if self.on_gpu else torch.device("cpu")
        options: dict[str, Any] = {}
        if self.on_gpu:
            torch.cuda.set_device(self.device)
            options["device_id"] = self.device
        if not distributed.is_initialized():
            distributed.init_process_group("nccl" if self.on_gpu else "gloo", **options)
        self.rank = distributed.get_rank()
        self.ranks = distributed.get_world_size()
        torch.manual_seed(0)
        width, batch = _ON_GPU if self.on_gpu else _ON_CPU
        blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(_LAYERS)]
        model = nn.Sequential(*blocks, nn.Linear(width, 1)).to(self.device)
        devices = [local] if self.on_gpu else None
        self.model = DistributedDataParallel(model, device_ids=devices)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.data = torch.randn(batch, width, device=self.device)
        self._cycles_per_ms = self._spin_rate() if self.on_gpu else 0.0

    def _spin_rate(self) -> float:
        """Measure how many cycles a spinning kernel needs for one millisecond."""
        cuda = self.torch.cuda
        cycles = 20_000_000
        best = 0.0
        for _ in range(3):
            begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            begin.record()
            cuda._sleep(cycles)
            end.record()
            end.synchronize()
            best = max(best, cycles / begin.elapsed_time(end))
        return best

    def delay(self, ms: float) -> None:
        """Take that many milliseconds, on the GPU where there is one."""
        if ms > 0.0 and self.on_gpu:
            self.torch.cuda._sleep(int(ms * self._cycles_per_ms))
        elif ms > 0.0:
            time.sleep(ms / 1e3)

    def run(self, delay_ms: float, scope: Callable[[str], AbstractContextManager[Any]]) -> None:
        """Do one step in scopes, with a delay in the forward pass."""
        with scope("step"):
            with scope("forward"):
                self.delay(delay_ms)
                loss = self.model(self.data).square().mean()
            with scope("backward"):
                loss.backward()
            with scope("optimizer"):
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)

    def synchronize(self) -> None:
        """Wait until all ranks and their GPUs are here."""
        if self.on_gpu:
            self.torch.cuda.synchronize()
        self.distributed.barrier()

    def close(self) -> None:
        """Leave the process group."""
        self.distributed.destroy_process_group()


def scoped(name: str) -> AbstractContextManager[Any]:
    """Return gpuprof's scope of that name."""
    return gpuprof.timer(name)


def bare(_name: str) -> AbstractContextManager[Any]:
    """Return a block that measures nothing."""
    return nullcontext()
