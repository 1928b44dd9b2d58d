"""What graphed callables work on where there is no GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import stand_in_arrays
from tests.support.structures import Register, registry


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays on a GPU that are none."""
    stand_in_arrays.install(monkeypatch)


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """A stand-in for torch's registry of classes, in which more can be registered."""
    return registry(monkeypatch)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of torch's operators on the CPU."""
    from tests.support import cpu_graphs

    cpu_graphs.install(monkeypatch)
