"""What the tests on a GPU share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.support.frameworks import torch_or_skip


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test of this folder, but those for torch's CPU build.

    What other libraries warn of is not this project's business.
    """
    if item.get_closest_marker("torch") is None:
        item.add_marker("gpu")
        libraries = "cupy|numba|torch|transformers|triton"
        item.add_marker(pytest.mark.filterwarnings(f"ignore:::({libraries})"))


@pytest.fixture
def torch() -> Any:
    """Return torch with CUDA in use."""
    return torch_or_skip()


@pytest.fixture
def training(torch: Any) -> Any:
    """Return the models, batches and comparisons of graphed training, which need torch."""
    from tests.gpu.support import training

    return training
