"""Warp's `ScopedTimer`, which also feeds `gpuprof.stats` with the GPU's time."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core

if TYPE_CHECKING:
    from collections.abc import Callable
    from cProfile import Profile as CProfile
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["ScopedTimer"]


class _Indent(threading.local):
    """How many printing timers are open on this thread, less one."""

    depth = -1


class ScopedTimer:
    """Time a ``with`` block, and print the time: ``warp.ScopedTimer``.

    `elapsed` is the host's time in milliseconds, as in Warp. The block is also a scope of
    `gpuprof.timer` of that name: `gpuprof.stats` has the GPU's time, without a synchronisation, and
    `sample` is this entry.

    Parameters
    ----------
    name : str
        What is printed before the time, the key in `dict`, and the name of the scope.
    active : bool
        False does nothing.
    print : bool
        Print the time to standard output when the block is left.
    detailed : bool
        Profile the block with `cProfile`, and print its statistics.
    dict : dict of list, optional
        The time is appended to the list under `name`.
    use_nvtx : bool
        Show an NVTX range, too.
    color : int or str
        The colour of that range.
    synchronize : bool
        Wait for the GPU before each of both readings of the clock.
    cuda_filter : int
        Only 0: see Raises.
    report_func : callable, optional
        Taken and not called, because it reports what `cuda_filter` asks for.
    skip_tape : bool
        Taken and ignored: gpuprof has no tape.

    Raises
    ------
    ValueError
        `cuda_filter` is not 0; `gpuprof.kernels` shows the kernels of a block.
    """

    enabled = True
    _indent = _Indent()

    def __init__(
        self,
        name: str,
        active: bool = True,
        print: bool = True,
        detailed: bool = False,
        dict: dict[str, list[float]] | None = None,
        use_nvtx: bool = False,
        color: int | str = "rapids",
        synchronize: bool = False,
        cuda_filter: int = 0,
        report_func: Callable[[list[Any], str], None] | None = None,
        skip_tape: bool = False,
    ) -> None:
        if cuda_filter:
            message = (
                f"cuda_filter: expected 0, got {cuda_filter}: activities are not collected here; "
                "open `with gpuprof.kernels():` around the block for the times of its kernels"
            )
            raise ValueError(message)
        self.name = name
        self.active = active and self.enabled
        self.print = print
        self.detailed = detailed
        self.dict = dict
        self.use_nvtx = use_nvtx
        self.color = color
        self.synchronize = synchronize
        self.skip_tape = skip_tape
        self.elapsed = 0.0
        self.cuda_filter = cuda_filter
        self.report_func = report_func
        self.extra_msg = ""
        self.timing_results: list[Any] = []
        self.sample: _core.Sample | None = None
        # Of each entry that is open: one timer may be entered again before it is left.
        self._scopes: list[_core.Scope] = []
        self._ranges: list[tuple[int, int]] = []
        if dict is not None:
            dict.setdefault(name, [])

    def __enter__(self) -> Self:
        if not self.active:
            return self
        if self.synchronize:
            _wait_for_gpu()
        if self.use_nvtx:
            from gpuprof.compat import nvtx

            self._ranges.append(nvtx.start_range(self.name, color=self.color))
        if self.detailed:
            from cProfile import Profile

            self.cp: CProfile = Profile()
            self.cp.enable()
        if self.print:
            self._indent.depth += 1
        if self.name:
            self._scopes.append(_core.timer(self.name))
            self.sample = self._scopes[-1].__enter__()
        self.start = time.perf_counter_ns()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.active:
            return
        failure: Exception | None = None
        if self._scopes:
            self._scopes.pop().__exit__(exc_type, exc_value, traceback)
        if self.synchronize:
            try:
                _wait_for_gpu()
            except Exception as error:  # raised below, unless the block raised
                failure = error
        self.elapsed = (time.perf_counter_ns() - self.start) / 1e6
        if self._ranges:
            from gpuprof.compat import nvtx

            nvtx.end_range(self._ranges.pop())
        if self.detailed:
            self.cp.disable()
            self.cp.print_stats(sort="tottime")
        if self.dict is not None:
            self.dict[self.name].append(self.elapsed)
        if self.print:
            indent = "    " * self._indent.depth
            extra = f" {self.extra_msg}" if self.extra_msg else ""
            sys.stdout.write(f"{indent}{self.name} took {self.elapsed:.2f} ms{extra}\n")
            self._indent.depth -= 1
        if failure is not None and exc_type is None:
            raise failure


def _wait_for_gpu() -> None:
    """Wait for all work of the current device, where the process uses CUDA."""
    if _core.cuda_in_use():
        handle, device, _ = _core._current_stream()
        _core._synchronize(handle, device)
