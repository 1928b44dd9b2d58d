"""What the tests of graphed training share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.support.frameworks import torch_or_skip


@pytest.fixture
def training() -> Any:
    """Return the models, batches and comparisons, which need torch."""
    torch_or_skip()
    from tests.gpu.support import training

    return training
