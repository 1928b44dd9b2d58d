"""Progress of what takes long, on standard error: a bar of rich's if it is installed, else lines.

Nothing is shown in the first two seconds, and no thread is started: it is drawn where the caller
reports progress, so never while something is being timed. A failure to draw ends the display only.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from contextlib import AbstractContextManager, suppress
from time import monotonic
from typing import Any, TextIO

from gpuprof._common.text import shown_text, write_text

SHOWN_AFTER_S = 2.0
DRAWN_EVERY_S = 0.1
WRITTEN_EVERY_S = 5.0


class Progress(AbstractContextManager["Progress"]):
    """A context manager that shows how far its body is, below a label. One thread uses it.

    `enabled` None shows it on a terminal and in a notebook, True everywhere.
    """

    def __init__(self, label: str, enabled: bool | None) -> None:
        self._label = shown_text(label)
        self._out: TextIO | None = None if enabled is False else sys.stderr
        self._live = self._out is not None and _is_terminal(self._out)
        if enabled is None and not self._live and not _in_notebook():
            self._out = None
        self._bar: Any = None  # of rich
        self._next = monotonic() + SHOWN_AFTER_S

    def update(self, fraction: float, text: str = "") -> None:
        """Say how much is done, from 0 to 1, and in a few words what is being done."""
        if self._out is None or monotonic() < self._next:
            return
        done = min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else 0.0
        text = shown_text(text)
        try:
            if self._live and self._bar is None:
                self._bar = _rich_bar(self._label, self._out)
                self._live = self._bar is not None
            if self._live:
                self._bar.update(self._bar.task_ids[0], completed=done, text=text, refresh=True)
            else:
                line = f"{self._label}: {100 * done:.0f} % {text}".rstrip()
                write_text(self._out, line + "\n")
                self._out.flush()
        except Exception:  # a closed stream, another live display of rich's
            self.__exit__()
        self._next = monotonic() + (DRAWN_EVERY_S if self._live else WRITTEN_EVERY_S)

    def __exit__(self, *_exc: object) -> None:
        bar, self._bar, self._out = self._bar, None, None
        if bar is not None:
            with suppress(Exception):
                bar.stop()


def _is_terminal(out: TextIO) -> bool:
    with suppress(Exception):  # standard error may be replaced by any object
        return out.isatty() and os.environ.get("TERM") != "dumb"
    return False


def _in_notebook() -> bool:
    # IPython is asked only where it is imported already; only a kernel's shell has a kernel.
    ipython: Any = sys.modules.get("IPython")
    with suppress(Exception):
        return getattr(ipython.get_ipython(), "kernel", None) is not None
    return False


def _rich_bar(label: str, out: TextIO) -> Any:
    """Start a bar of rich's, without its refresh thread and redirections; None without rich."""
    try:
        rich = importlib.import_module("rich.progress")
    except ModuleNotFoundError:
        return None
    bar = rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TextColumn("{task.fields[text]}", markup=False),
        console=importlib.import_module("rich.console").Console(file=out),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task(label, total=1.0, text="")
    bar.start()
    return bar
