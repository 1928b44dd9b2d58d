"""Records of GPU work without a GPU, for the tests of `gpuprof.kernels`."""

from __future__ import annotations

import pytest

from tests.support.gpu_records import Recording


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Let CUPTI be a list of records that the test fills."""
    return Recording().install(monkeypatch)
