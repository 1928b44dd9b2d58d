"""Arrays on a GPU that are none: what a graphed callable asks of arrays, without any memory."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprof import _core
from gpuprof._frameworks.arrays import arrays_of

FLOAT32 = (2, 32, 1)
FLOAT16 = (2, 16, 1)
CUDA, PINNED, MANAGED = 2, 3, 13


class Array:
    """An array with DLPack's facts. Each is equal to itself alone."""

    __cuda_array_interface__: Any = None

    def __init__(
        self,
        *shape: int,
        dtype: tuple[int, int, int] = FLOAT32,
        device: int = 0,
        kind: int = CUDA,
        address: int = 4096,
    ) -> None:
        self.shape = shape
        made: Any = _core.ArrayDesc
        self.facts = made((address, kind, device, dtype, shape, tuple(_dense(shape))))

    def __repr__(self) -> str:
        return f"Array{self.shape}"


class OtherArray(Array):
    """An array of another library."""


def _dense(shape: tuple[int, ...]) -> list[int]:
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return strides[::-1]


def array_facts(value: object) -> tuple[Any, ...] | None:
    facts: tuple[Any, ...] | None = getattr(value, "facts", None)
    return facts


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make gpuprof see the facts of these arrays, and of no others."""
    monkeypatch.setattr(_core, "_array_facts", array_facts, raising=False)
    monkeypatch.setattr(type(arrays_of(Array)), "in_place", False)
