"""Programs that run in a process of their own, because they end it or leave it unusable."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.processes import check_python, run_command

_PREAMBLE = """\
import gpuprof
from tests.gpu.support import kernels
from tests.gpu.support.kernels import MILLISECOND, Spin, device
"""


def check_script(body: str) -> None:
    """Run `body` after these imports; it must end with status 0 and print nothing to stderr."""
    check_python(_PREAMBLE + textwrap.dedent(body), timeout=120)


def run_pytest(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in a folder with gpuprof's plugin."""
    plugin = ("-W", "ignore", "-p", "no:cacheprovider", "-p", "gpuprof._pytest.plugin")
    command = (sys.executable, "-m", "pytest", "-q", *plugin, *options)
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}  # or it is loaded twice
    return run_command(*command, cwd=folder, timeout=300, **variables)
