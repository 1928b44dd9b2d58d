"""A progress bar for what takes long, on standard error.

Nothing is shown in the first two seconds, nothing is left behind, and no thread is started: the bar
is drawn where the caller reports progress, so never while something is being timed. Drawing never
raises; where it fails, there is no bar.
"""

from __future__ import annotations

import importlib
import math
import os
import shutil
import sys
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from gpuprof._common.text import shown_text, width, write_text

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

SHOWN_AFTER_S = 2.0
DRAWN_EVERY_S = 0.1
WRITTEN_EVERY_S = 5.0
_CELLS = 24


def progress(label: str, enabled: bool | None) -> Progress:
    """Return a context manager that shows how far its body is.

    Parameters
    ----------
    label
        What is going on.
    enabled
        None shows the bar on a terminal and in a notebook. True shows it everywhere: where a line
        cannot be drawn again it is written anew, every five seconds.
    """
    out: TextIO | None = sys.stderr  # None without a console
    if enabled is False or out is None:
        return Progress(label, None, False)
    live = _can_redraw(out)
    return Progress(label, out if live or enabled else None, live)


def _can_redraw(out: TextIO) -> bool:
    if _in_notebook():
        return True
    with suppress(Exception):  # whatever stands in for standard error
        return out.isatty() and os.environ.get("TERM") != "dumb"
    return False


def _in_notebook() -> bool:
    # IPython is asked only where it runs already; only a kernel's shell has a kernel.
    ipython = sys.modules.get("IPython")
    with suppress(Exception):
        return getattr(ipython.get_ipython(), "kernel", None) is not None  # type: ignore[union-attr]
    return False


class _Display(Protocol):
    every_s: float

    def draw(self, fraction: float, text: str) -> None: ...

    def close(self) -> None: ...


class Progress:
    """What `progress` returns. One thread uses it."""

    def __init__(self, label: str, out: TextIO | None, live: bool) -> None:
        self._label = shown_text(label)
        self._out = out
        self._live = live
        self._display: _Display | None = None
        self._next = monotonic() + SHOWN_AFTER_S

    def update(self, fraction: float, text: str = "") -> None:
        """Say how much is done, from 0 to 1, and in a few words what is being done."""
        if self._out is None:
            return
        now = monotonic()
        if now < self._next:
            return
        try:
            if self._display is None:
                self._display = _display(self._label, self._out, self._live)
            done = min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else 0.0
            self._display.draw(done, shown_text(text))
            self._next = now + self._display.every_s
        except Exception:  # a closed stream, another live display of rich's: no bar then
            self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        display, self._display, self._out = self._display, None, None
        if display is not None:
            with suppress(Exception):
                display.close()


def _display(label: str, out: TextIO, live: bool) -> _Display:
    if not live:
        return _Lines(label, out)
    if _in_notebook():  # where rich needs ipywidgets, and warns without them
        return _Line(label, out)
    try:
        return _RichBar(label, out)
    except ModuleNotFoundError:
        return _Line(label, out)


class _Line:
    """One line that is drawn over and over, and wiped in the end."""

    every_s = DRAWN_EVERY_S

    def __init__(self, label: str, out: TextIO) -> None:
        self._label = label
        self._out = out
        self._width = 0

    def draw(self, fraction: float, text: str) -> None:
        filled = round(_CELLS * fraction)
        bar = "#" * filled + "." * (_CELLS - filled)
        whole = f"{self._label} [{bar}] {100 * fraction:3.0f} % {text}".rstrip()
        room = max(shutil.get_terminal_size().columns - 1, 1)
        while width(whole) > room:
            whole = whole[:-1]
        write_text(self._out, "\r" + whole + " " * (self._width - width(whole)))
        self._out.flush()
        self._width = width(whole)

    def close(self) -> None:
        self._out.write("\r" + " " * self._width + "\r")
        self._out.flush()


class _Lines:
    """Lines one below the other, for a file or a pipe."""

    every_s = WRITTEN_EVERY_S

    def __init__(self, label: str, out: TextIO) -> None:
        self._label = label
        self._out = out

    def draw(self, fraction: float, text: str) -> None:
        line = f"{self._label}: {100 * fraction:.0f} % {text}".rstrip()
        write_text(self._out, line + "\n")
        self._out.flush()

    def close(self) -> None:
        pass


class _RichBar:
    """rich's bar. Its own refreshing would be a thread, and its redirections would see prints."""

    every_s = DRAWN_EVERY_S

    def __init__(self, label: str, out: TextIO) -> None:
        rich = importlib.import_module("rich.progress")
        console = importlib.import_module("rich.console").Console(file=out)
        self._bar: Any = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            rich.TaskProgressColumn(),
            rich.TextColumn("{task.fields[text]}", markup=False),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(label, total=1.0, text="")
        self._bar.start()

    def draw(self, fraction: float, text: str) -> None:
        self._bar.update(self._task, completed=fraction, text=text, refresh=True)

    def close(self) -> None:
        self._bar.stop()
