"""What the tests of traces share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.perfetto.engine import TraceProcessor


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a trace is to be written."""
    return tmp_path / "run.json"


@pytest.fixture(scope="package")
def engine() -> Iterator[TraceProcessor]:
    """Perfetto's engine, which takes seconds to start."""
    from tests.perfetto.check import engine_or_skip

    with engine_or_skip() as started:
        yield started
