"""What tests of graphed callables share: functions that count their runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

US = 1_000


class Counted:
    """How often a function ran: no plain value, which a graphed callable would watch."""

    def __init__(self) -> None:
        self._runs: list[None] = []

    def note(self) -> None:
        self._runs.append(None)

    def __call__(self) -> int:
        return len(self._runs)


def twice(cupy: Any, runs: Counted | None = None, ns: int = US) -> Callable[[Any], Any]:
    """Return a function of an array that gives it twice, one after the other."""

    def body(x: Any) -> Any:
        if runs is not None:
            runs.note()
        size = x.shape[0]
        out = cupy.empty((2 * size, *x.shape[1:]), x.dtype)
        out[:size] = x
        cupy.launch("twice", ns)
        out[size:] = x
        return out

    return body
