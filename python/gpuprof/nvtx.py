"""NVTX, NVIDIA's annotations for tools like Nsight Systems and Nsight Compute.

It is off until `enable` is called or ``GPUPROF_NVTX=1`` is set; then annotations, marks and timer
scopes appear in the tool under which the program runs.
"""

from gpuprof._nvtx import CATALOG as CATALOG
from gpuprof._nvtx import RangeCatalog as RangeCatalog
from gpuprof._nvtx import RangeSpec as RangeSpec
from gpuprof._nvtx import catalogs as catalogs
from gpuprof._nvtx import disable as disable
from gpuprof._nvtx import enable as enable
from gpuprof._nvtx import is_enabled as is_enabled
from gpuprof._nvtx import is_tool_attached as is_tool_attached
from gpuprof._nvtx import last_push_result as last_push_result
from gpuprof._nvtx import valid_label as valid_label

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
