"""Running a piece of Python under the NVTX tool of the tests."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.support.processes import check_python

PREFIX = """
import gpuprof
from tests.nvtx_injection.tool import Tool
tool = Tool()
"""


def check_under_tool(tool: Path, code: str, *, nvtx: str = "1", **variables: str) -> str:
    """Run `code` with NVTX on and a `tool` to read back; as `check_python`."""
    return check_python(
        PREFIX + textwrap.dedent(code),
        NVTX_INJECTION64_PATH=str(tool),
        GPUPROF_NVTX=nvtx,
        **variables,
    )


def calls_under_tool(tool: Path, code: str) -> str:
    """Run `code` and return the calls that the tool got, on one line."""
    return check_under_tool(tool, code + '\nprint(*tool.calls(), sep=", ")').strip()
