"""Programs that do scopes, in a process of their own."""

from __future__ import annotations

import subprocess

from tests.support.processes import check_python, run_python
from tests.support.trace_events import SCOPES


def run_program(body: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `body` with `work(name, count=1)`, which does scopes on the CPU's clock."""
    return run_python(SCOPES + body, **variables)  # type: ignore[arg-type]


def run_with_limits(body: str) -> subprocess.CompletedProcess[str]:
    """Run `body`, which sets limits by `resource`; it must end well, whatever it prints."""
    # A limit would cut what Python caches.
    done = run_program(f"import resource\nsys.dont_write_bytecode = True\n{body}")
    assert done.returncode == 0, done.stderr
    return done


def check_program(body: str, **variables: str) -> str:
    """Run `body` as `run_program` does; it must end well and print nothing to stderr."""
    return check_python(SCOPES + body, **variables)
