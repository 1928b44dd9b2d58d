"""``debug=True``: finds the line that breaks a capture, by asking for its status again and again.

A dispatch mode raises at the operator of torch's that broke the capture. A trace function, unless a
debugger traces already, remembers the line of what is no operator, such as a `synchronize()`, at
which the next operator or the end of the body raises. Torch is never imported from here.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, TypeAlias

import gpuprof._core as _core
from gpuprof._common.text import plural
from gpuprof._frameworks import loaded
from gpuprof._graphs.diagnosis import CaptureFacts, explain, note_for_body
from gpuprof._graphs.types import CaptureStatus
from gpuprof.errors import CaptureError, refused

TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]

_MAX_OUTSIDE = 100

# Torch, CuPy, gpuprof, and what only waits for or calls the program's own code.
_PASSED_OVER = {"torch", "cupy", "gpuprof", "contextlib", "functools", "threading", "concurrent"}

# They give memory or another view of it and put nothing on a stream.
_NO_WORK = (
    "aten::empty",
    "aten::new_empty",
    "aten::detach",
    "aten::alias",
    "aten::lift_fresh",
    "aten::_unsafe_view",
    "aten::resize_",
)


@dataclass(eq=False)
class CaptureWatch:
    """What was seen of one capture."""

    _stream: int
    _facts: Callable[[], CaptureFacts]
    _note_progress: Callable[[], object]
    _last: tuple[CodeType, int] | None = None
    _broken_at: str | None = None
    _raised: bool = False
    # Operators that ran on a stream that was not being captured, each with its line.
    outside: list[tuple[str, str]] = field(default_factory=list)

    def is_broken(self) -> bool:
        return _core._capture_status(self._stream) == CaptureStatus.INVALIDATED

    def error(self, op: str | None, where: str) -> CaptureError:
        self._raised = True
        return explain(refused(901, "cuStreamIsCapturing"), self._facts().at(op, where))

    def trace_calls(self, frame: FrameType, _event: str, _argument: Any) -> TraceFunction | None:
        """Have the lines of a function followed, unless it is torch's. For `sys.settrace`."""
        return None if _is_passed_over(frame) else self.trace_lines

    def trace_lines(self, frame: FrameType, event: str, _argument: Any) -> TraceFunction:
        """Look, before each line, whether the one before it broke the capture."""
        if self._broken_at is None:
            if self.is_broken():
                self._broken_at = self._last_line()
            else:
                self._note_progress()
        shown: FrameType | None = frame
        if event == "return":
            shown = _nearest(frame.f_back)  # which goes on with the rest of its line
        if shown is not None:
            self._last = (shown.f_code, shown.f_lineno)
        return self.trace_lines

    def before(self) -> None:
        """Raise if something that is no operator has broken the capture."""
        if not self._raised and (self._broken_at is not None or self.is_broken()):
            raise self.error(None, self._broken_at or self._last_line())

    def after(self, op: str) -> None:
        """Raise if the operator that has just run broke the capture."""
        if not self._raised and self.is_broken():
            raise self.error(op, line_of(sys._getframe(1)))
        self._note_progress()

    def note(self, error: BaseException) -> None:
        """Tell the body's own exception at which line the capture broke, if it did."""
        if not self._raised and (self._broken_at is not None or self.is_broken()):
            where = self._broken_at or self._last_line()
            note_for_body(error, self._facts().at(None, where))

    def _last_line(self) -> str:
        if self._last is None:
            return f"a line before {line_of(sys._getframe(1))}"
        code, line = self._last
        return f"{code.co_filename}:{line} in {code.co_name}"

    def note_outside(self, op: str, stream: int) -> None:
        """Note an operator that ran on `stream`, if that one is not being captured."""
        if stream == self._stream or len(self.outside) >= _MAX_OUTSIDE:
            return
        # The legacy default stream is never captured, and asking it could break the capture.
        if stream in {0, 1} or _core._capture_status(stream) == CaptureStatus.NONE:
            self.outside.append((op, line_of(sys._getframe(1))))

    def report_outside(self) -> str | None:
        """Return a sentence on the work that is missing from the graph; None if none is."""
        if not self.outside:
            return None
        shown = "; ".join(f"{op} at {where}" for op, where in self.outside[:3])
        more = len(self.outside) - 3
        return (
            f"{plural(len(self.outside), 'operator')} ran on a stream that was not being captured, "
            f"so the graph does not do that work: {shown}{f'; and {more} more' if more > 0 else ''}"
            ". Run it on the capture's stream, or on one that waits for it first and that it waits "
            "for again before the end"
        )


@contextlib.contextmanager
def watch(
    stream: int,
    facts: Callable[[], CaptureFacts],
    note_progress: Callable[[], object],
) -> Iterator[CaptureWatch]:
    """Watch the capture of a stream by this thread, and raise a CaptureError where it breaks.

    `facts` gives what is known of the broken capture; `note_progress` is called after each operator
    and line that did not break it.
    """
    seen = CaptureWatch(stream, facts, note_progress)
    with contextlib.ExitStack() as undo:
        if sys.gettrace() is None:
            _trace(seen, undo)
        undo.enter_context(_dispatch_mode(seen) or contextlib.nullcontext())
        try:
            yield seen
        except BaseException as error:
            seen.note(error)
            raise
        seen.before()


def _trace(seen: CaptureWatch, undo: contextlib.ExitStack) -> None:
    """Follow the lines of this thread, also those of the function that is captured in."""
    frame = _nearest(sys._getframe(1))
    if frame is not None:
        seen.trace_lines(frame, "line", None)
        undo.callback(setattr, frame, "f_trace", frame.f_trace)
        frame.f_trace = seen.trace_lines
    sys.settrace(seen.trace_calls)
    undo.callback(_untrace, seen)


def _untrace(seen: CaptureWatch) -> None:
    if sys.gettrace() == seen.trace_calls:
        sys.settrace(None)


def _dispatch_mode(seen: CaptureWatch) -> Any:
    """Return a mode that hands torch's operators to `seen`, or None without torch."""
    base: Any = getattr(loaded.torch_part("utils._python_dispatch"), "TorchDispatchMode", None)
    if base is None:
        return None
    torch = loaded.torch()

    class WatchMode(base):  # type: ignore[misc]  # torch is not there when this is checked
        def __torch_dispatch__(
            self,
            function: Any,
            types: Any,
            args: tuple[object, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> object:
            op = str(function.name())
            seen.before()
            try:
                result = function(*args, **(kwargs or {}))
            except Exception as error:
                if seen.is_broken():
                    raise seen.error(op, line_of(sys._getframe(1))) from error
                raise
            seen.after(op)
            device = _device_of((result, *args))
            works = not op.startswith(_NO_WORK) and not getattr(function, "is_view", False)
            if device is not None and works:
                seen.note_outside(op, torch._C._cuda_getCurrentRawStream(device))
            return result

    return WatchMode()


def _device_of(values: tuple[object, ...]) -> int | None:
    """Return the index of the first CUDA tensor's device, in values or lists of values."""
    for value in values:
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if getattr(each, "is_cuda", False) is True:
                return int(each.device.index or 0)
    return None


def _is_passed_over(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in _PASSED_OVER


def _nearest(frame: FrameType | None) -> FrameType | None:
    """Return the nearest frame that is neither torch's nor gpuprof's."""
    while frame is not None and _is_passed_over(frame):
        frame = frame.f_back
    return frame


def line_of(frame: FrameType) -> str:
    """Return where the program's own code is that leads to a frame."""
    shown = _nearest(frame)
    if shown is None:  # autograd's threads run nothing else of Python's
        return "backward()"
    return f"{shown.f_code.co_filename}:{shown.f_lineno} in {shown.f_code.co_name}"


def line_raised(error: BaseException) -> str | None:
    """Return the last line of the program's own that an exception came through."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not _is_passed_over(frame):
            found = f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
    return found
