"""The array libraries that some tests compare with, or a skip where one is missing."""

from __future__ import annotations

import gc
import os
import warnings
from typing import Any

import pytest


def torch_or_skip() -> Any:
    """Return torch with CUDA in use, or skip."""
    torch = _import("torch", "torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    torch.zeros(1, device="cuda")
    return torch


def free_bytes(torch: Any) -> int:
    """Return what is free on the GPU once nothing runs, and nobody has memory to be used again."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info()[0])


def cupy_or_skip() -> Any:
    """Return CuPy, or skip."""
    return _import("cupy", "CuPy")


def numba_cuda_or_skip(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return ``numba.cuda``, or skip."""
    numpy = _import("numpy", "NumPy")
    if not hasattr(numpy, "row_stack"):  # newer ones have it no more, but Numba names it
        monkeypatch.setattr(numpy, "row_stack", numpy.vstack, raising=False)
    _import("numba", "Numba")
    return _import("numba.cuda", "Numba for CUDA")


def _import(module: str, name: str) -> Any:
    # What a library warns of while it is imported is not this project's business.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(module, reason=f"{name} is not installed")


def nccl_or_skip() -> Any:
    """Return torch, if it has a GPU and NCCL."""
    torch = torch_or_skip()
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    return torch


def gpu_of_rank(rank: int) -> int:
    """Return the number of the GPU of one of this host's ranks, which may have to share it."""
    gpus: int = _import("torch", "torch").cuda.device_count()
    if rank >= gpus:
        # NCCL refuses two ranks of one host on one GPU. By this name they are on different hosts.
        os.environ["NCCL_HOSTID"] = f"host of rank {rank}"
    return rank % gpus
