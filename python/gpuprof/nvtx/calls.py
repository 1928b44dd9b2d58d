"""`Profile`: every call of a Python function is a range, without a change to the program.

Python 3.12 and later tell of calls through `sys.monitoring`, on all threads; earlier ones through
`sys.setprofile`, on the thread that enables it and on those that start later.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

DOMAIN = "gpuprof.calls"
_OWN_FOLDER = __file__.rpartition("nvtx")[0]
# gpuprof itself, and the machinery of imports.
_HIDDEN = (_OWN_FOLDER, "<frozen ")
_BUILTIN = (
    types.BuiltinFunctionType,
    types.ClassMethodDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
)
_MAX_NAMES = 10_000  # of functions; further ones are not shown


class _Open(threading.local):
    """The ranges that this thread has open, the newest last."""

    def __init__(self) -> None:
        self.ranges: list[_core.Annotation] = []


class Profile:
    """Show each call of a function as a range, to NVTX tools and in open traces.

    A generator or coroutine is a range each time that it runs on. Functions of gpuprof itself are
    left out, and so is the machinery of imports. Nothing is installed where neither a tool listens
    nor a trace is open.

    Parameters
    ----------
    linenos : bool
        Name ranges ``file.py:12(function)``, else by the function alone.
    annotate_cfuncs : bool
        Show calls of functions that are not written in Python, too.

    Examples
    --------
    >>> profile = Profile()
    >>> profile.enable()
    >>> profile.disable()
    """

    __module__ = "gpuprof.nvtx"

    def __init__(self, linenos: bool = True, annotate_cfuncs: bool = True) -> None:
        self.linenos = bool(linenos)
        self.annotate_cfuncs = bool(annotate_cfuncs)
        self._domain: str = DOMAIN
        self._of_code: dict[CodeType, _core.Annotation | None] = {}
        self._of_builtin: dict[str, _core.Annotation | None] = {}
        self._open = _Open()
        self._stop: Callable[[], None] | None = None

    def enable(self) -> None:
        """Show calls from now on. Idempotent.

        Raises
        ------
        InvalidStateError
            Other profilers hold every free number of `sys.monitoring` (Python 3.12 and later).
        """
        if self._stop is not None or not self._anyone_listens():
            return
        if sys.version_info >= (3, 12):
            self._stop = _monitor(self)
        else:
            self._stop = _set_profile(self)

    def disable(self) -> None:
        """Show no more calls; ranges that this thread has open are closed. Idempotent."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
        while self._open.ranges:
            self._open.ranges.pop().__exit__(None, None, None)

    def _anyone_listens(self) -> bool:
        in_tool = _core.nvtx_is_enabled() and _core.nvtx_tool_listens()
        return in_tool or _core._trace_records()

    def _enter(self, annotation: _core.Annotation) -> None:
        annotation.__enter__()
        self._open.ranges.append(annotation)

    def _leave(self) -> None:
        # Calls that were under way at enable() return without a range.
        if self._open.ranges:
            self._open.ranges.pop().__exit__(None, None, None)

    def _range_of(self, code: CodeType) -> _core.Annotation | None:
        """Return the range of a function; None for one that is not shown."""
        try:
            return self._of_code[code]
        except KeyError:
            pass
        made = None
        if not code.co_filename.startswith(_HIDDEN) and len(self._of_code) < _MAX_NAMES:
            name = code.co_name
            if self.linenos:
                name = f"{code.co_filename.rpartition(os.sep)[2]}:{code.co_firstlineno}({name})"
            made = _core.annotate(name, domain=self._domain)
        self._of_code[code] = made
        return made

    def _range_of_builtin(self, function: Any) -> _core.Annotation | None:
        if not isinstance(function, _BUILTIN):
            return None
        # What ends the profile would leave its own range open.
        name = getattr(function, "__name__", "") or "?"
        known = self._of_builtin.get(name)
        if known is None and len(self._of_builtin) < _MAX_NAMES:
            known = self._of_builtin[name] = _core.annotate(name, domain=self._domain)
        return known


def _set_profile(profile: Profile) -> Callable[[], None]:
    """Install the profile function of Python up to 3.11; return what removes it."""
    cfuncs = profile.annotate_cfuncs

    def profile_function(frame: FrameType, event: str, arg: Any) -> None:
        if event in {"call", "return"}:
            shown = profile._range_of(frame.f_code)
        elif cfuncs:
            # Those that a hidden function calls are hidden, too.
            is_hidden = frame.f_code.co_filename.startswith(_HIDDEN)
            shown = None if is_hidden else profile._range_of_builtin(arg)
        else:
            return
        if shown is None:
            return
        if event in {"call", "c_call"}:
            profile._enter(shown)
        else:
            profile._leave()

    threading.setprofile(profile_function)
    sys.setprofile(profile_function)

    def remove() -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    return remove


def _monitor(profile: Profile) -> Callable[[], None]:
    """Register with `sys.monitoring`; return what takes it out again."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool = _free_tool(monitoring)
    events = monitoring.events
    skip = monitoring.DISABLE

    def enter(code: CodeType, *_: Any) -> Any:
        shown = profile._range_of(code)
        if shown is None:
            return skip
        profile._enter(shown)
        return None

    def leave(code: CodeType, *_: Any) -> Any:
        if profile._range_of(code) is None:
            return skip
        profile._leave()
        return None

    def resume(code: CodeType, *_: Any) -> None:  # of events that cannot be switched off
        shown = profile._range_of(code)
        if shown is not None:
            profile._enter(shown)

    def unwind(code: CodeType, *_: Any) -> None:
        if profile._range_of(code) is not None:
            profile._leave()

    def enter_builtin(code: CodeType, _offset: int, function: Any, *_: Any) -> None:
        shown = profile._range_of_builtin(function)
        if shown is not None and profile._range_of(code) is not None:
            profile._enter(shown)

    def leave_builtin(code: CodeType, _offset: int, function: Any, *_: Any) -> None:
        shown = profile._range_of_builtin(function)
        if shown is not None and profile._range_of(code) is not None:
            profile._leave()

    callbacks = {
        events.PY_START: enter,
        events.PY_RESUME: enter,
        events.PY_THROW: resume,
        events.PY_RETURN: leave,
        events.PY_YIELD: leave,
        events.PY_UNWIND: unwind,
    }
    wanted = 0
    for event in callbacks:
        wanted |= event
    if profile.annotate_cfuncs:
        callbacks |= {
            events.CALL: enter_builtin,
            events.C_RETURN: leave_builtin,
            events.C_RAISE: leave_builtin,
        }
        wanted |= events.CALL  # the other two come with it
    for event, callback in callbacks.items():
        monitoring.register_callback(tool, event, callback)
    monitoring.set_events(tool, wanted)
    monitoring.restart_events()

    def remove() -> None:
        monitoring.set_events(tool, 0)
        for event in callbacks:
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)

    return remove


def _free_tool(monitoring: Any) -> int:
    """Take a number of a tool that nobody uses."""
    for tool in (monitoring.PROFILER_ID, 3, 4):
        try:
            monitoring.use_tool_id(tool, "gpuprof.nvtx")
        except ValueError:
            continue
        return int(tool)
    from gpuprof.errors import InvalidStateError

    message = (
        "other profilers hold the numbers 2, 3 and 4 of sys.monitoring; stop one of them first"
    )
    raise InvalidStateError(message)
