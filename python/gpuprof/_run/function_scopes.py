"""Functions that match a pattern as scopes, through `sys.monitoring`.

The start of each function is looked at once. One that matches has events of its own from then on;
all others have none, and run at full speed. Only exceptions that leave a function are told of all
functions or of none.

A coroutine is open from its start to its end, with its awaits. A generator is open while it runs:
from each resume to the next yield.
"""

from __future__ import annotations

import fnmatch
import inspect
import sys
import threading
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.monitoring import free_tool, monitoring, take_tool

_NAME = "gpuprof"
_NO_FUNCTIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
_ASYNC_YIELD = "async_generator_wrapped_value"  # the class of what such a generator yields
_NO_ERROR = (None, None, None)
_METHODS = {
    "PY_START": "_on_start",
    "PY_RESUME": "_on_resume",
    "PY_THROW": "_on_resume",
    "PY_YIELD": "_on_yield",
    "PY_RETURN": "_on_return",
    "PY_UNWIND": "_on_unwind",
}


class FunctionScopes:
    """The scopes of functions whose ``module.qualname`` matches one of some patterns."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._matched: set[str] = set()
        self._scopes: dict[CodeType, Any] = {}
        self._open: dict[FrameType, Any] = {}
        self._tool: int | None = None
        self._stopping = threading.Lock()

    def start(self) -> None:
        """Look at functions from here on, in all threads; RuntimeError without a free tool id."""
        calls = {event: getattr(self, method) for event, method in _METHODS.items()}
        self._tool = take_tool(_NAME, "--scopes", calls)
        monitoring.set_events(self._tool, monitoring.events.PY_START)

    def stop(self) -> None:
        """Look at functions no more. Idempotent."""
        with self._stopping:
            tool, self._tool = self._tool, None
        if tool is not None:
            free_tool(tool, tuple(self._scopes), _METHODS)
            self._open.clear()

    def unmatched(self) -> tuple[str, ...]:
        return tuple(each for each in self._patterns if each not in self._matched)

    def _find(self, code: CodeType, module: object) -> Any:
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # and no body of a module or a class
        if not is_function or code.co_name in _NO_FUNCTIONS or not isinstance(module, str):
            return None
        name = f"{module}.{code.co_qualname}"  # type: ignore[attr-defined, unused-ignore]
        found = [each for each in self._patterns if fnmatch.fnmatchcase(name, each)]
        if not found or module.partition(".")[0] == _NAME:
            return None
        self._matched.update(found)
        return _core.timer(name.removeprefix("__main__."))

    # Events. What they raise would come out in the program. A tool's events are off in its own.

    def _on_start(self, code: CodeType, _offset: int) -> Any:
        try:
            scope = self._scopes.get(code)
            frame = sys._getframe(1)
            if scope is None:
                scope = self._find(code, frame.f_globals.get("__name__"))
                if scope is None:
                    return monitoring.DISABLE
                self._scopes[code] = scope
                self._watch(code)
            self._enter(frame, scope)
        except Exception as error:
            self._fail(error)
        return None

    def _watch(self, code: CodeType) -> None:
        """Have a function's own events from now on, and those that it cannot have for itself."""
        events, tool = monitoring.events, self._tool
        if tool is None:
            return
        local = events.PY_START | events.PY_RETURN
        if code.co_flags & (
            inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_COROUTINE
        ):
            local |= events.PY_YIELD | events.PY_RESUME
        monitoring.set_local_events(tool, code, local)
        wanted = events.PY_START | events.PY_UNWIND | events.PY_THROW
        if monitoring.get_events(tool) != wanted:
            monitoring.set_events(tool, wanted)

    def _on_resume(self, code: CodeType, _offset: int, _thrown: object = None) -> None:
        try:
            scope = self._scopes.get(code)
            if scope is not None:
                frame = sys._getframe(1)
                if frame not in self._open and not code.co_flags & inspect.CO_COROUTINE:
                    self._enter(frame, scope)
        except Exception as error:
            self._fail(error)

    def _on_yield(self, code: CodeType, _offset: int, value: object) -> None:
        flags = code.co_flags
        if flags & inspect.CO_COROUTINE:
            return  # it waits
        if flags & inspect.CO_ASYNC_GENERATOR and type(value).__name__ != _ASYNC_YIELD:
            return
        self._leave(sys._getframe(1), _NO_ERROR)

    def _on_return(self, _code: CodeType, _offset: int, _value: object) -> None:
        self._leave(sys._getframe(1), _NO_ERROR)

    def _on_unwind(self, code: CodeType, _offset: int, error: BaseException) -> None:
        if code not in self._scopes:
            return
        is_end = isinstance(error, GeneratorExit)  # closed, which is no failure
        self._leave(
            sys._getframe(1), _NO_ERROR if is_end else (type(error), error, error.__traceback__)
        )

    def _enter(self, frame: FrameType, scope: Any) -> None:
        scope.__enter__()
        self._open[frame] = scope

    def _leave(self, frame: FrameType, error: tuple[Any, Any, Any]) -> None:
        scope = self._open.pop(frame, None)
        if scope is None:
            return
        try:
            scope.__exit__(*error)
        except Exception as failure:
            self._fail(failure)

    def _fail(self, error: Exception) -> None:
        self.stop()
        checks.warn(f"gpuprof run: --scopes has stopped: {type(error).__name__}: {error}")
