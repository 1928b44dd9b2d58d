"""Scopes that measure the same whatever other tests have done to CUDA, and a clock for tests."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import gpuprof

Opened = TypeVar("Opened")


def cpu(name: str | None = None, **options: Any) -> gpuprof.Scope:
    """Return a scope on the CPU's clock."""
    return gpuprof.timer(name, backend="cpu", **options)


def spanning(block: AbstractContextManager[Opened]) -> Generator[Opened, None, None]:
    """Hold a scope or a capture open between the first resume and the second."""
    with block as opened:
        yield opened


def path_here() -> str:
    """Return where a scope entered now would be, without its own name."""
    with cpu() as sample:
        pass
    return sample.path


class Device:
    """Something to synchronise with, and a log of what happened in which order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.error: BaseException | None = None
        self.backend = gpuprof.SyncBackend("device", self.synchronize)

    def synchronize(self) -> None:
        self.log.append("wait")
        if self.error is not None:
            raise self.error
