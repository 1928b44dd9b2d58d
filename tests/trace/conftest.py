"""What the tests of traces share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a trace is to be written."""
    return tmp_path / "run.json"
