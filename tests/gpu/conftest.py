"""What the tests on a GPU share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.support.frameworks import torch_or_skip


@pytest.fixture
def torch() -> Any:
    """Return torch with CUDA in use."""
    return torch_or_skip()
