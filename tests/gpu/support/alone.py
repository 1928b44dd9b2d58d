"""For tests that read what the whole GPU does: its free memory, its peaks."""

from __future__ import annotations

import os

import pytest

needs_the_gpu_alone = pytest.mark.skipif(
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1,
    reason="it needs the GPU alone; run this file without -n",
)
