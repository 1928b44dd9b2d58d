"""Compiled code as it is for a GPU, without one: inductor writes real Triton kernels.

They do not run. What would launch them, or a kernel of a library, notes that in a `Recording`. It
is for a process of its own: torch is changed and not changed back.
"""

from __future__ import annotations

import sys
import types
from typing import Any
from unittest import mock

import pytest
import torch
import torch._inductor.compile_fx
import torch.utils._triton
from torch._inductor import async_compile, codecache, config, select_algorithm

from tests.support.gpu_records import Recording

LIBRARY = "sm90_xmma_gemm"  # the name of all kernels of libraries
_LIBRARIES = ("mm", "addmm", "bmm", "convolution")


class _Kernel:
    def __init__(self, gpu: Recording, name: str) -> None:
        self._gpu, self._name = gpu, name

    def run(self, *_arguments: Any, **_options: Any) -> None:
        self._gpu.run(self._name, 100, delay=0)


def install() -> Recording:
    """Have `torch.compile` write Triton kernels for the CPU; return what notes their launches."""
    gpu = Recording().install(pytest.MonkeyPatch())
    config.cpu_backend = "triton"
    torch.utils._triton.triton_hash_with_backend = lambda: "none"
    make: Any = async_compile.AsyncCompile
    make.triton = lambda _self, name, _source, *_arguments, **_options: _Kernel(gpu, name)
    libraries: Any = select_algorithm.extern_kernels
    for name in _LIBRARIES:
        setattr(libraries, name, _noting(gpu, getattr(libraries, name)))
    cache: Any = codecache.PyCodeCache
    load = cache.load_by_key_path.__func__
    triton, language = types.ModuleType("triton"), types.ModuleType("triton.language")
    triton.language = language  # type: ignore[attr-defined]

    def load_by_key_path(cls: Any, *arguments: Any, **options: Any) -> Any:
        with mock.patch.dict(sys.modules, {"triton": triton, "triton.language": language}):
            return load(cls, *arguments, **options)

    cache.load_by_key_path = classmethod(load_by_key_path)
    return gpu


def _noting(gpu: Recording, function: Any) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        gpu.run(LIBRARY, 100, delay=0)
        return function(*arguments, **options)

    return call


class Block(torch.nn.Module):
    """A layer with names to find again: two products, an activation, a norm."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.up = torch.nn.Linear(size, 4 * size)
        self.act = torch.nn.GELU()
        self.down = torch.nn.Linear(4 * size, size)
        self.norm = torch.nn.LayerNorm(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.down(self.act(self.up(x))))  # type: ignore[no-any-return]


class Net(torch.nn.Module):
    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.encoder = torch.nn.ModuleList([Block(size) for _ in range(2)])
        self.head = torch.nn.Linear(size, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.encoder:
            x = block(x)
        return torch.softmax(self.head(x), -1)
