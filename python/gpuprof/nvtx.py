"""NVTX, NVIDIA's annotations for tools like Nsight Systems and Nsight Compute.

It is off until `enable` is called or ``GPUPROF_NVTX=1`` is set; then annotations, marks and timer
scopes appear in the tool under which the program runs.
"""

from gpuprof._nvtx import (
    CATALOG,
    RangeCatalog,
    RangeSpec,
    catalogs,
    disable,
    enable,
    is_enabled,
    is_tool_attached,
    last_push_result,
    valid_label,
)

__all__ = [
    "CATALOG",
    "RangeCatalog",
    "RangeSpec",
    "catalogs",
    "disable",
    "enable",
    "is_enabled",
    "is_tool_attached",
    "last_push_result",
    "valid_label",
]
