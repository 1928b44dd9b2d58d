"""What the tests of flight recorders share: a wait, and what a dump says."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.trace_events import metadata


def until(holds: Callable[[], object]) -> None:
    """Wait until `holds()` is true; the test's own time limit ends a wait for what never comes."""
    while not holds():
        time.sleep(0.005)


def told(file: Path) -> dict[str, Any]:
    """Return what a file says of the dump that it is."""
    found: dict[str, Any] = metadata(file, "gpuprof")[-1]["args"]["dump"]
    return found


def first(path: Path) -> Path:
    """Return the path of the first numbered dump of a recorder for ``run.json``."""
    return path.with_name("run.1.json")
