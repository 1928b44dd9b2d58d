"""Counting the instructions of samples on the CPU's clock.

The hardware counts while a sample is taken; the counter is read before the clock is, and after it,
so that nothing is added to the time. Garbage collection is put off meanwhile, as for the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpuprof._core as _core
from gpuprof._common.instructions import Instructions, reason_of

MAX_READINGS = 64  # the count hardly varies: more would only fill the files
_SHARED = "the counter took turns with others, as where perf counts as well, or this core has none"


open_counter: Callable[[], Any] = _core._InstructionCounter


class InstructionReadings:
    """The readings of one thread from `restart` on; it opens the counter, on that thread."""

    def __init__(self) -> None:
        self._counter = open_counter()
        self._reason = ""
        self._before: tuple[int, int, int] | None = None
        if self._counter.error:
            self._give_up(reason_of(self._counter.error))
        self.restart()

    def restart(self) -> None:
        self._per_call: list[float] = []
        self._lost = 0

    def begin(self) -> None:
        """Read the counter before a sample."""
        if self._counter is not None and len(self._per_call) < MAX_READINGS:
            self._before = self._read()

    def end(self, calls: int) -> None:
        """Read it after a sample of so many calls."""
        before, self._before = self._before, None
        now = None if before is None else self._read()
        if before is None or now is None:
            return
        count, enabled_ns, running_ns = (b - a for a, b in zip(before, now, strict=True))
        if running_ns < enabled_ns:  # an estimate would not be steady
            self._lost += 1
        else:
            self._per_call.append(count / calls)

    def found(self) -> Instructions:
        reason = self._reason or (_SHARED if self._lost else "no sample was taken")
        return Instructions(tuple(self._per_call), "" if self._per_call else reason)

    def close(self) -> None:
        counter, self._counter = self._counter, None
        if counter is not None:
            counter.close()

    def _read(self) -> Any:
        try:
            return self._counter.read()
        except OSError as error:  # as after a fork into a sandbox
            self._give_up(reason_of(error.errno or 0))
            return None

    def _give_up(self, reason: str) -> None:
        self._reason = reason
        self.close()
