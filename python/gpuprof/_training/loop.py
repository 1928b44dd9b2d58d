"""What the integrations of training loops share: scopes, a trace, and the table at the end.

The parts of a step begin and end in callbacks, so an exception may leave some open: each is closed
with the one around it, and at the end of the training at the latest.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._distributed.gather import gather_stats
from gpuprof._distributed.trace import RankTrace
from gpuprof._distributed.trace import trace as rank_trace
from gpuprof._distributed.world import distributed
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._run import batches
from gpuprof._run.session import gpu_gets_done
from gpuprof._run.torch_scopes import Parts, in_whole_program
from gpuprof._timing import scope as timing
from gpuprof._trace import path as trace_path
from gpuprof._trace import registry
from gpuprof._trace.checks import checked_schedule
from gpuprof._trace.window import TraceWindows, trace_windows
from gpuprof._trace.writer import TraceWriter
from gpuprof.errors import GpuprofError

if TYPE_CHECKING:
    from gpuprof._distributed.ranks import RankStats
    from gpuprof._timing.stats import Stats

Schedule = tuple[int, int, int, int]

# The scopes that `gpuprof run` makes for all of torch, at places that would cross those of a loop.
_PARTS = {"forward", "backward", "optimizer.step"}
# Those that are being measured. Kept here, because a scope that nobody closes stays open.
_running: list[TrainingLoop] = []


class TrainingLoop:
    """One training after another, measured for a callback.

    Between `begin` and `end` the scopes are those of the thread that began; calls from others, as
    from the replicas of a model, are ignored. `what` is the integration's name, for warnings; the
    other parameters are as the integrations document them.
    """

    def __init__(
        self,
        what: str,
        *,
        trace: str | os.PathLike[str] | None,
        schedule: Schedule | None,
        table: bool,
    ) -> None:
        self.what = what
        self.stats: Stats | RankStats | None = None
        self._path = None if trace is None else checks.path("trace", trace)
        self._schedule = None if schedule is None else checked_schedule(schedule)
        self._table = table
        self._open: dict[str, Any] = {}
        self._optimizers: dict[int, Any] = {}
        self._undo = contextlib.ExitStack()
        self._trace: RankTrace | TraceWindows | TraceWriter | None = None
        self._thread: int | None = None
        self._process = 0  # a forked worker has the same thread
        self._model: Callable[[], Any]
        self._training: Callable[[], Any]
        self._has_parts = False
        if self._path is not None:
            has_windows = self._schedule is not None
            trace_path.expand(trace_path.with_number(self._path, 1) if has_windows else self._path)
        elif schedule is not None:
            message = "schedule: expected it with trace=, which says where the windows are written"
            raise TypeError(message)

    @property
    def is_on(self) -> bool:
        """Whether this thread's training is being measured."""
        return self._thread == threading.get_ident() and self._process == os.getpid()

    def begin(self, model: Any, training: Any, *, tells_little: bool = False) -> None:
        """Begin to measure the training of a model, and the waits for its batches.

        Of a framework that `tells_little`, backward passes and the steps of optimizers are scopes
        by torch's hooks, and this thread's other loops of the same integration are over: it tells
        of no exception, which leaves them open.

        A second loop for the same `training` stays off, with a warning. What an earlier one for the
        model has left open, because nobody told of its end, is closed.
        """
        earlier = [each for each in _running if each._model() is model]
        if any(each._training() is training for each in earlier):
            if self not in earlier:
                self._warn(f"{self.what} is there twice, and one of them measures this training")
            return
        if tells_little:
            earlier += [each for each in _running if each.is_on and each.what == self.what]
        for each in {self, *earlier}:
            each.end(RuntimeError("the training before it was not ended"), table=False)
        if _core._is_set("GPUPROF_DISABLE"):
            return
        self.stats = None
        try:  # so that a training that failed does not keep its model
            self._model = weakref.ref(model)
        except TypeError:
            self._model = lambda: model
        self._training = weakref.ref(training)
        self._thread, self._process = threading.get_ident(), os.getpid()
        _running.append(self)
        self._has_parts = in_whole_program()
        try:
            self._undo.enter_context(Parts() if tells_little else batches.Hold())
        except AttributeError as error:
            self._warn(f"{self.what} measures no waits for batches of this torch: {error}")
        if self._path is not None:
            self._trace = self._begun_trace(self._path)

    def _begun_trace(self, path: str) -> RankTrace | TraceWindows | TraceWriter | None:
        group = distributed()
        ranks = 1 if group is None else group.get_world_size()
        try:
            if ranks > 1 and self._schedule is None:
                return rank_trace(path).start()
            if self._schedule is None:
                return TraceWriter(path, collect=True).start()
            if ranks > 1:
                trace_path.tell_rank(group.get_rank(), ranks)
                path = trace_path.of_ranks(path)[0]
            return trace_windows(path, self._schedule).start()
        except (GpuprofError, OSError) as error:
            self._warn(f"{self.what} writes no trace: {error}")
            return None

    def watch_forward(self, model: Any) -> None:
        """Make the calls of a model scopes, except where torch.compile traces them.

        A call in evaluation mode that no other scope is around is inside of ``evaluation``.
        """
        is_compiling = loaded.torch().compiler.is_compiling
        inner = 0  # calls inside of one: of the same model, or of another that is watched
        handled: BaseException | None = None  # an exception around the call, which is not its own

        def before(*_arguments: Any) -> None:
            nonlocal inner, handled
            if is_compiling() or not self.is_on:
                return
            if "forward" in self._open:
                inner += 1
                return
            inner, handled = 0, sys.exc_info()[1]
            is_alone = not self._open and not model.training
            self.enter(*(["evaluation"] if is_alone else []), "forward")

        def after(*_arguments: Any) -> None:
            nonlocal inner
            if is_compiling() or not self.is_on:
                return
            if inner:
                inner -= 1
                return
            error = sys.exc_info()[1]
            self.leave("forward", None if error is handled else error)

        hooks = torch_hooks.Hook(before), torch_hooks.Hook(after)
        self._undo.callback(torch_hooks.add(model, *hooks))

    def enter(self, *names: str) -> None:
        """Open scopes, each inside of the one before; those that are open stay as they are."""
        for name in names if self.is_on else ():
            if name not in self._open and not (self._has_parts and name in _PARTS):
                self._open[name] = scope = _core.timer(name)
                scope.__enter__()

    def enter_step_of(self, optimizer: Any) -> None:
        """Open ``optimizer.step``, which ends where the step of the optimizer ends.

        An optimizer without hooks, or whose step is left out, has it end with the scope around it.
        """
        if self.is_on and id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = optimizer  # kept, so that no other has its id
            undo = torch_hooks.after_steps_of(optimizer, lambda *_: self.leave("optimizer.step"))
            if undo is not None:
                self._undo.callback(undo)
        self.enter("optimizer.step")

    def leave(self, name: str, error: BaseException | None = None) -> None:
        """Close a scope, and those that were opened inside of it; nothing if it is not open."""
        if not self.is_on or name not in self._open:
            return
        told = _told(error)
        while self._open:
            last, scope = self._open.popitem()
            scope.__exit__(*told)
            if last == name:
                return

    def step(self) -> None:
        """Tell the trace's schedule that a step is over."""
        if self.is_on and isinstance(self._trace, TraceWindows):
            try:
                self._trace.step()
            except GpuprofError as error:
                self._warn(f"{self.what} writes no more of its trace: {error}")
                self._trace = None

    def end(self, error: BaseException | None = None, *, table: bool = True) -> None:
        """Close everything, and show the table; nothing if there is no training. Idempotent.

        After an error no other rank is waited for, and the GPU only a while.
        """
        if self._thread is None:
            return
        _running.remove(self)
        if self._process != os.getpid():  # all of it is the parent's
            self._thread, self._trace = None, None
            self._open.clear()
            self._undo.pop_all()
            return
        if not self.is_on:  # scopes are closed on their own thread only
            self._open.clear()
        if self._open:
            self.leave(next(iter(self._open)), error)
        self._undo.close()
        self._optimizers.clear()
        self._thread = None
        try:
            self._finish(error)
            if table and self._table and self.stats:
                self.stats.print()
        except Exception as failure:  # nobody's training ends by it
            self._warn(f"{self.what} has no table: {type(failure).__name__}: {failure}")

    def _finish(self, error: BaseException | None) -> None:
        trace, self._trace = self._trace, None
        is_done = error is None or gpu_gets_done()
        if trace is not None and is_done:
            trace.__exit__(*_told(error))
        elif isinstance(trace, TraceWriter):  # to close it would wait for the GPU
            trace.flush()
            registry.forget(trace)
        group = distributed()
        if error is None and group is not None and group.get_world_size() > 1:
            self.stats = gather_stats()
        elif group is None or group.get_rank() == 0:
            try:
                self.stats = timing.stats(wait=is_done)
            except GpuprofError:  # of a broken driver: what was read before it is good
                self.stats = timing.stats(wait=False)

    def _warn(self, text: str) -> None:
        checks.warn(f"gpuprof: {text}", checks.level_outside())


def _told(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def p50_metrics() -> dict[str, float]:
    """Return the median of each scope so far, in milliseconds, without waiting for the GPU."""
    found: dict[str, float] = {}
    for row in timing.stats(wait=False).values():
        summary = row.gpu if row.gpu.count else row.host
        if summary.count:
            found.setdefault(f"gpuprof/{row.path}/p50_ms", summary.p50_ms)
    return found
