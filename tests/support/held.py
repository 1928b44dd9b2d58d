"""What gpuprof's core holds, of which no public name tells."""

from __future__ import annotations

from gpuprof._core import _drain_kept as drain_kept
from gpuprof._core import _forget_warnings as forget_warnings
from gpuprof._core import _open_captures as open_captures
from gpuprof._core import _relaxed_collections as relaxed_collections
from gpuprof._core import _release_idle as release_idle
from gpuprof._core import _samples_in_memory as samples_in_memory
from gpuprof._core import _scopes as scopes

__all__ = [
    "drain_kept",
    "forget_warnings",
    "open_captures",
    "relaxed_collections",
    "release_idle",
    "samples_in_memory",
    "scopes",
]
