"""How the commands end: their exit codes, and a reader that went away."""

from __future__ import annotations

import os
import sys

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def leave_the_reader() -> None:
    """Write to nobody from here on: the reader of standard output is gone."""
    # Python flushes standard output once more at exit; that must not fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
