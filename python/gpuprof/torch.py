"""gpuprof in programs that compile with `torch.compile`.

`timer` and `annotate` are `gpuprof.timer` and `gpuprof.annotate`. Inside a region that is compiled,
also with ``fullgraph=True``, they are traced out: they break no graph and measure nothing, which is
said in one `RuntimeWarning` of the process. Importing this module imports neither torch nor
anything of it, and without torch there is nothing that it changes.
"""

from __future__ import annotations

import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._core import annotate, timer

__all__ = ["annotate", "timer"]
