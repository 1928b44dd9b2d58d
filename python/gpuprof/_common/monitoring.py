"""Tools of `sys.monitoring`, which tells of functions and lines from Python 3.12 on.

A process has six ids for tools, which others use, too. An event that a tool has disabled in a code
stays disabled for the id, also for its next owner, until someone restarts all events.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, cast

from gpuprof.errors import InvalidStateError

# 0 to 2 and 5 are for debuggers, coverage, profilers and optimizers, which a program may use.
_TOOLS = (3, 4, 5, 2, 1, 0)
monitoring: Any = getattr(sys, "monitoring", None)


def is_supported() -> bool:
    """Whether ``sys.monitoring`` exists, as from Python 3.12 on."""
    return monitoring is not None


def take_tool(name: str, what: str, calls: Mapping[str, Any]) -> int:
    """Return a tool that has these calls by event; no event is on.

    InvalidStateError, which begins with `what`, if all ids are taken.
    """
    tool = next((each for each in _TOOLS if monitoring.get_tool(each) is None), None)
    if tool is None:
        tools = ", ".join(str(monitoring.get_tool(each)) for each in sorted(_TOOLS))
        message = f"{what}: all tool ids of sys.monitoring are taken, by {tools}: switch one off"
        raise InvalidStateError(message)
    monitoring.use_tool_id(tool, name)
    monitoring.restart_events()  # those that an earlier owner of the id has disabled
    for event, call in calls.items():
        monitoring.register_callback(tool, getattr(monitoring.events, event), call)
    return tool


def free_tool(tool: int, codes: Iterable[CodeType], events: Iterable[str]) -> None:
    """End the events of a tool, those of single codes and all others."""
    monitoring.set_events(tool, 0)
    for code in codes:
        monitoring.set_local_events(tool, code, 0)
    for event in events:
        monitoring.register_callback(tool, getattr(monitoring.events, event), None)
    monitoring.free_tool_id(tool)
    monitoring.restart_events()  # the next owner may not do so, as cProfile


def running() -> Iterator[tuple[int, CodeType, int]]:
    """Yield the thread, the code and the line of all calls that run, each after its caller.

    A tool is not told of their starts.
    """
    for thread, innermost in sys._current_frames().items():
        calls = []
        frame = cast("FrameType | None", innermost)
        while frame is not None:
            calls.append((thread, frame.f_code, frame.f_lineno or 0))
            frame = frame.f_back
        yield from reversed(calls)
