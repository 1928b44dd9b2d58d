"""Ranks: the statistics and traces of all processes of a `torch.distributed` program.

Importing this module imports neither torch nor anything of it. See docs/distributed.md.
"""

from __future__ import annotations

import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._distributed.files import RankMerge
from gpuprof._distributed.gather import gather_stats
from gpuprof._distributed.ranks import RankStats
from gpuprof._distributed.rows import RankRow, RankTimes
from gpuprof._distributed.trace import RankTrace, trace
from gpuprof._distributed.watch import CollectiveWatch, time_collectives

__all__ = [
    "CollectiveWatch",
    "RankMerge",
    "RankRow",
    "RankStats",
    "RankTimes",
    "RankTrace",
    "gather_stats",
    "time_collectives",
    "trace",
]

# In tracebacks and pickles the classes show the name that users know.
for _class in (CollectiveWatch, RankMerge, RankRow, RankStats, RankTimes, RankTrace):
    _class.__module__ = __name__
del _class
