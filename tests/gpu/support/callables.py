"""What the tests of graphed callables share: the counts they look at, and scripts with torch."""

from __future__ import annotations

import textwrap
from typing import Any

from tests.support.processes import run_python

_PREAMBLE = """\
warnings.simplefilter("ignore")  # what torch warns of is not this project's business
import torch
import gpuprof
"""


def assert_counts(fast: Any, **wanted: int) -> None:
    """Fail unless these counts of a callable are so."""
    seen = fast.stats()
    assert {name: getattr(seen, name) for name in wanted} == wanted, seen


def assert_replays(fast: Any, calls: int, *, captures: int = 1) -> None:
    """Fail unless all of so many calls were replays, of so many captures, and none failed."""
    assert_counts(fast, replays=calls, eager_calls=0, captures=captures, failures=0)


def run_torch_script(body: str, **variables: str) -> str:
    """Run `body` after an import of torch, in a process with these variables; return its output.

    It must end with status 0 and say nothing, but for torch's allocator on cudaMallocAsync, which
    tells of each array of a graph that is let go.
    """
    done = run_python(_PREAMBLE + textwrap.dedent(body), timeout=240, **variables)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    said = [line for line in done.stderr.splitlines() if "(function freeAsync)" not in line]
    said = [line for line in said if "uncaptured free of a captured allocation" not in line]
    assert not said, done.stderr
    return done.stdout
