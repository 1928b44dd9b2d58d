"""The signatures of the packages that `gpuprof.compat` stands for, as their releases have them.

They were read with `inspect` from torch 2.13, triton 3.9, and nvtx 0.2.14 and 0.2.17.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Parameters = list[tuple[str, str, Any]]

# Where the originals are, by the module in gpuprof.compat.
ORIGINALS = {
    "triton": "triton.testing",
    "torch": "torch.cuda",
    "torch_nvtx": "torch.cuda.nvtx",
    "nvtx": "nvtx",
}

# "module in gpuprof.compat:name" -> its parameters, without `self`
STORED = {
    "triton:do_bench": (
        "fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode='mean'"
    ),
    "triton:do_bench_cudagraph": (
        "fn, rep=20, grad_to_none=None, quantiles=None, return_mode='mean'"
    ),
    "torch:Event": "enable_timing=False, blocking=False, interprocess=False, external=False",
    "torch:Event.record": "stream=None",
    "torch:Event.wait": "stream=None",
    "torch:Event.query": "",
    "torch:Event.synchronize": "",
    "torch:Event.elapsed_time": "end_event",
    "torch:graph": (
        "cuda_graph, pool=None, stream=None, capture_error_mode='global', "
        "enable_annotations=False, check_input_liveness=False"
    ),
    "torch:CUDAGraph": "keep_graph=False",
    "torch:CUDAGraph.capture_begin": (
        "pool=None, capture_error_mode='global', check_input_liveness=False"
    ),
    "torch:CUDAGraph.capture_end": "",
    "torch:CUDAGraph.instantiate": "",
    "torch:CUDAGraph.replay": "",
    "torch:CUDAGraph.reset": "",
    "torch:CUDAGraph.pool": "",
    "torch:CUDAGraph.debug_dump": "debug_path",
    "torch:graph_pool_handle": "",
    "torch:make_graphed_callables": (
        "callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None"
    ),
    "torch_nvtx:range_push": "msg",
    "torch_nvtx:range_pop": "",
    "torch_nvtx:range_start": "msg",
    "torch_nvtx:range_end": "range_id",
    "torch_nvtx:mark": "msg",
    "torch_nvtx:range": "msg, *args, **kwargs",
    "nvtx:annotate": "message=None, color=None, domain=None, category=None, payload=None",
    "nvtx:mark": "message=None, color='blue', domain=None, category=None, payload=None",
    "nvtx:push_range": "message=None, color='blue', domain=None, category=None, payload=None",
    "nvtx:pop_range": "domain=None",
    "nvtx:start_range": "message=None, color=None, domain=None, category=None, payload=None",
    "nvtx:end_range": "range_id",
    "nvtx:enabled": "",
    "nvtx:get_domain": "name=None",
    "nvtx:Domain": "name=None",
}


def stored(name: str) -> Parameters:
    """Return the parameters of a name in `STORED`."""
    return parameters_of(eval(f"lambda {STORED[name]}: None"))


def parameters_of(function: Callable[..., Any]) -> Parameters:
    """Return the name, kind and default of each parameter, without `self` and `cls`."""
    parameters = inspect.signature(function).parameters.values()
    return [
        (each.name, each.kind.name, each.default)
        for each in parameters
        if each.name not in {"self", "cls"}
    ]
