"""Programs that do scopes, in a process of their own."""

from __future__ import annotations

import subprocess

from tests.support.processes import check_python, run_python
from tests.support.trace_events import SCOPES


def run_program(body: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `body` with `work(name, count=1)`, which does scopes on the CPU's clock."""
    return run_python(SCOPES + body, **variables)


def check_program(body: str, **variables: str) -> str:
    """Run `body` as `run_program` does; it must end well and print nothing to stderr."""
    return check_python(SCOPES + body, **variables)
