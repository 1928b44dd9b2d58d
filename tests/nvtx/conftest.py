"""What the tests of NVTX share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nvtx_injection.build import build


@pytest.fixture(scope="module")
def tool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tool that notes the NVTX calls of the process into which it is loaded.

    A module's `TOOL` is the variant of it.
    """
    return build(tmp_path_factory.mktemp("nvtx"), getattr(request.module, "TOOL", "plain"))
