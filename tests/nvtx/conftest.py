"""What the tests of NVTX share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nvtx_injection.build import build


@pytest.fixture(scope="session")
def tool_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which each variant of the tool is built once."""
    return tmp_path_factory.mktemp("nvtx")


@pytest.fixture(scope="module")
def tool(request: pytest.FixtureRequest, tool_folder: Path) -> Path:
    """Return a tool that notes the NVTX calls of the process into which it is loaded.

    A module's `TOOL` is the variant of it.
    """
    return build(tool_folder, getattr(request.module, "TOOL", "plain"))
