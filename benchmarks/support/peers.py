"""Event pairs of torch, CuPy and cuda.core, as contenders; a missing library is not fatal."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import repeat
from typing import Any

from support.loops import called, timed
from support.measure import Contender

_BURST = 400  # 800 records, below the 1,020 entries that a stream's queue takes
_COUNT = 4_000


class Peers:
    """The libraries that are installed, and why the others are not measured."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.torch = self._use("torch", _torch)
        self.cupy = self._use("CuPy", lambda: importlib.import_module("cupy"))
        self.core = self._use("cuda.core", _core_device)

    def explicit_stream(self) -> list[Contender]:
        """Return the pairs recorded on an explicit stream."""
        made = []
        if self.torch is not None:
            made += self._made("torch pair, record(stream)", self._torch_explicit)
            made += self._made("torch pair, new each time", self._torch_fresh)
        if self.cupy is not None:
            made += self._made("CuPy pair", self._cupy_pair)
        if self.core is not None:
            made += self._made("cuda.core pair", self._core_pair)
        return made

    def torch_current(self, name: str, count: int = _COUNT) -> Contender:
        """Return torch's pair with `record()`, on the stream that is current when it runs."""
        begin, end = self._torch_events()
        loop = called(begin.record, end.record)
        run = timed(loop, wait=self.torch.cuda.synchronize, burst=_BURST)
        return Contender(name, run, count)

    def _torch_events(self) -> tuple[Any, Any]:
        event = self.torch.cuda.Event
        return event(enable_timing=True), event(enable_timing=True)

    def _torch_explicit(self, name: str) -> Contender:
        stream = self.torch.cuda.Stream()
        begin, end = self._torch_events()
        loop = called(begin.record, end.record, stream)
        return Contender(name, timed(loop, wait=stream.synchronize, burst=_BURST), _COUNT)

    def _torch_fresh(self, name: str) -> Contender:
        stream = self.torch.cuda.Stream()
        event = self.torch.cuda.Event

        def record() -> None:
            event(enable_timing=True).record(stream)

        run = timed(called(record, record), wait=stream.synchronize, burst=_BURST)
        return Contender(name, run, _COUNT)

    def _cupy_pair(self, name: str) -> Contender:
        stream = self.cupy.cuda.Stream(non_blocking=True)
        begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        loop = called(begin.record, end.record, stream)
        return Contender(name, timed(loop, wait=stream.synchronize, burst=_BURST), _COUNT)

    def _core_pair(self, name: str) -> Contender:
        stream = self.core.create_stream()
        begin, end = self._core_event(), self._core_event()

        def loop(count: int) -> None:
            record = stream.record
            for _ in repeat(None, count):
                record(begin)
                record(end)

        return Contender(name, timed(loop, wait=stream.sync, burst=_BURST), _COUNT)

    def _core_event(self) -> Any:
        try:
            return self.core.create_event({"timing_enabled": True})
        except (TypeError, AttributeError):  # the option's name before cuda.core 1.2
            return self.core.create_event({"enable_timing": True})

    def _made(self, name: str, make: Callable[[str], Contender]) -> list[Contender]:
        contender = self._use(name, lambda: make(name))
        return [] if contender is None else [contender]

    def _use(self, name: str, make: Callable[[], Any]) -> Any:
        # A peer may fail in ways of its own; the others are still worth measuring.
        try:
            return make()
        except Exception as error:
            self.missing.append(f"{name} is missing: {type(error).__name__}: {error}")
            return None


def _torch() -> Any:
    torch: Any = importlib.import_module("torch")
    torch.zeros(1, device="cuda")
    return torch


def _core_device() -> Any:
    device = importlib.import_module("cuda.core").Device(0)
    device.set_current()
    return device
