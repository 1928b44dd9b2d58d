"""For tests that read what the whole GPU does: its free memory, its peaks, how long a kernel takes.

Beside other workers they are skipped; ``pytest -m "gpu and alone"`` runs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

_Test = TypeVar("_Test", bound=Callable[..., Any])

# For one parameter of a test; `needs_the_gpu_alone` is for all of it.
ALONE = (
    pytest.mark.alone,
    pytest.mark.skipif(
        int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1,
        reason='it needs the GPU alone: pytest -m "gpu and alone", without -n',
    ),
)


def needs_the_gpu_alone(test: _Test) -> _Test:
    """Mark a test: no other process may use the GPU while it runs."""
    for mark in ALONE:
        test = mark(test)
    return test
