"""Programs that run in a process of their own, because they end it or leave it unusable."""

from __future__ import annotations

import textwrap

from tests.support.processes import check_python

_PREAMBLE = """\
import gpuprof
from tests.gpu.support import kernels
from tests.gpu.support.kernels import MILLISECOND, Spin, device
"""


def check_script(body: str) -> None:
    """Run `body` after these imports; it must end with status 0 and print nothing to stderr."""
    check_python(_PREAMBLE + textwrap.dedent(body), timeout=120)
