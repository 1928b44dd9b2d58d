"""Where threads are: the line of the program's own code, and what it waits in."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from types import FrameType
from typing import NamedTuple

NO_FRAME = "(no Python frame)"
_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")


class Place(NamedTuple):
    """A line that runs, of a function, and the function at the bottom of its calls."""

    file: str
    line: int
    function: str
    inner: str = ""  # as "queue.py:171 get"; empty where it is the line itself


NOWHERE = Place(NO_FRAME, 0, "")


@cache
def _library_folders() -> tuple[str, ...]:
    folders = {os.path.dirname(os.path.dirname(__file__)), site.getusersitepackages()}  # noqa: PTH120
    folders.update(map(sysconfig.get_path, _PATHS), site.getsitepackages())
    folders.update(each for each in sys.path if each.endswith(("site-packages", "dist-packages")))
    return tuple(os.path.join(each, "") for each in folders)  # noqa: PTH118


@cache
def is_of_library(file: str) -> bool:
    """Whether a file of code is Python's own or an installed package's; no script or notebook."""
    if file.startswith("<"):  # made by a program, as by `dataclasses`, unless it was typed
        typed = ("<stdin>", "<python-input", "<ipython-input", "<timed ", "<gputime>")
        return not (file.startswith(typed) or (file == "<string>" and sys.argv[:1] == ["-c"]))
    return file.startswith(_library_folders())


def short(file: str) -> str:
    """Return a file as tables show it: with the folder that it is in."""
    return "/".join(file.replace(os.sep, "/").split("/")[-2:])


def places_of(threads: Sequence[int]) -> list[Place]:
    """Return where these threads are now, by `threading.get_ident`; the main one for none.

    Threads that Python does not know, as those of a backward pass, are nowhere: they count where
    all are such.
    """
    # By its frame: the own number may be that of a thread that has ended, or one of gevent's.
    own = sys._getframe()
    frames = {each: frame for each, frame in sys._current_frames().items() if frame is not own}
    # Under a name that `threading` has, which a program may not have imported.
    main = getattr(sys.modules.get("threading"), "main_thread", None)
    wanted = dict.fromkeys(threads or ([main().ident] if main is not None else frames))
    found = [place_of(frame) for each in wanted if (frame := frames.get(each)) is not None]
    return found or [NOWHERE]


def place_of(innermost: FrameType) -> Place:
    """Return the innermost line that is of no library; the innermost of all where all are."""
    frame: FrameType | None = innermost
    while frame is not None and is_of_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or frame is innermost:
        code = innermost.f_code
        return Place(code.co_filename, innermost.f_lineno or 0, code.co_name)
    code, inner = frame.f_code, innermost.f_code
    text = f"{short(inner.co_filename)}:{innermost.f_lineno} {inner.co_name}"
    return Place(code.co_filename, frame.f_lineno or 0, code.co_name, text)
