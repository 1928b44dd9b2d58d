"""Why a capture broke, as an error of Python: the core reads the driver's log and has the words.

Ending a broken capture only reports that something failed earlier. The cause is in the driver's log
(CUDA 12.9 and later), which has lines of all threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gpuprof._core as _core
from gpuprof.errors import CaptureError, refused

_NOTE = "gpuprof: "


@dataclass(frozen=True)
class CaptureFacts:
    """What is known of a capture when it broke."""

    name: str | None = None
    mode: str | None = None
    num_nodes: int | None = None  # when last seen: of a broken capture the driver does not tell
    last_kernel: str | None = None
    # The lines of the driver's log since the capture began, oldest first, each with whether this
    # thread wrote it; None where the driver keeps no log.
    log: Sequence[tuple[bool, str]] | None = ()
    op: str | None = None  # what broke it, and the line, where that was seen
    where: str | None = None
    stream: int | None = None

    def at(self, op: str | None, where: str | None) -> CaptureFacts:
        """Return these facts with what broke the capture, as far as it was seen."""
        return replace(self, op=op, where=where)

    def _for_core(self) -> tuple[Any, ...]:
        return (
            "" if self.name is None else repr(self.name),
            *(self.mode or "", self.num_nodes, _with_utf8(self.last_kernel)),
            None if self.log is None else [*self.log],
            *(_with_utf8(self.op), _with_utf8(self.where), self.stream),
        )


def explain(error: CaptureError, facts: CaptureFacts) -> CaptureError:
    """Fill an error of a capture with what is known, and make its text of it.

    It is changed in place, unless it is only an echo (901) and the log names a rule for streams
    (902, 903, 905, 906): then the result is an error of that code.
    """
    code, call, hint, text = _core._diagnose(
        error.code, error.call, error.detail, facts._for_core()
    )
    if code != error.code:
        error = refused(code, error.call)
    error.capture = facts.name
    error.mode = facts.mode
    error.num_nodes = facts.num_nodes
    error.last_kernel = facts.last_kernel
    error.first_refused = call or None
    error.log = tuple(line if own else f"another thread: {line}" for own, line in facts.log or ())
    error.op = facts.op
    error.where = facts.where
    error.hint = hint or None
    error.detail = text
    error.args = (error.code, error.name, error.call, error.detail)
    return error


def note_for_body(error: BaseException, facts: CaptureFacts) -> None:
    """Add a note to the body's exception on what broke the capture, unless it says so already."""
    add_note = getattr(error, "add_note", None)  # not in Python 3.10
    explained = isinstance(error, CaptureError) and error.first_refused is not None
    noted = any(str(note).startswith(_NOTE) for note in getattr(error, "__notes__", ()))
    if add_note is None or explained or noted:
        return
    text = _core._diagnosis_note(facts._for_core())
    if text:
        add_note(f"{_NOTE}{text}")


def _with_utf8(text: str | None) -> str:
    """Return `text` with a UTF-8 form: the name of a file may have none."""
    return (text or "").encode(errors="backslashreplace").decode()
