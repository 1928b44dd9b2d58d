"""The signatures of the packages that `gpuprof.compat` stands for, as their releases have them.

Each is (name, kind, default) by parameter, without `self`. They were read with `inspect` from torch
2.13, triton 3.9, and nvtx 0.2.14 and 0.2.17.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Signature = list[tuple[str, str, Any]]
NO_DEFAULT = "(none)"

_MESSAGE = [("message", None), ("color", None), ("domain", None), ("category", None)]


def _plain(*parameters: str | tuple[str, Any]) -> Signature:
    """Return a signature of parameters that may be given by position or by name."""
    kind = "POSITIONAL_OR_KEYWORD"
    return [
        (each, kind, NO_DEFAULT) if isinstance(each, str) else (each[0], kind, each[1])
        for each in parameters
    ]


_RANGE = _plain(*_MESSAGE, ("payload", None))
_BLUE = _plain(
    ("message", None), ("color", "blue"), ("domain", None), ("category", None), ("payload", None)
)

# "module in gpuprof.compat:name" -> (where the original is, its signature)
STORED: dict[str, tuple[str, Signature]] = {
    "triton:do_bench": (
        "triton.testing:do_bench",
        _plain(
            "fn",
            ("warmup", 25),
            ("rep", 100),
            ("grad_to_none", None),
            ("quantiles", None),
            ("return_mode", "mean"),
        ),
    ),
    "triton:do_bench_cudagraph": (
        "triton.testing:do_bench_cudagraph",
        _plain(
            "fn",
            ("rep", 20),
            ("grad_to_none", None),
            ("quantiles", None),
            ("return_mode", "mean"),
        ),
    ),
    "torch:Event": (
        "torch.cuda:Event",
        _plain(
            ("enable_timing", False),
            ("blocking", False),
            ("interprocess", False),
            ("external", False),
        ),
    ),
    "torch:Event.record": ("torch.cuda:Event.record", _plain(("stream", None))),
    "torch:Event.wait": ("torch.cuda:Event.wait", _plain(("stream", None))),
    "torch:Event.query": ("torch.cuda:Event.query", []),
    "torch:Event.synchronize": ("torch.cuda:Event.synchronize", []),
    "torch:Event.elapsed_time": ("torch.cuda:Event.elapsed_time", _plain("end_event")),
    "torch:graph": (
        "torch.cuda:graph",
        _plain(
            "cuda_graph",
            ("pool", None),
            ("stream", None),
            ("capture_error_mode", "global"),
            ("enable_annotations", False),
            ("check_input_liveness", False),
        ),
    ),
    "torch:CUDAGraph": ("torch.cuda:CUDAGraph", _plain(("keep_graph", False))),
    "torch:CUDAGraph.capture_begin": (
        "torch.cuda:CUDAGraph.capture_begin",
        _plain(("pool", None), ("capture_error_mode", "global"), ("check_input_liveness", False)),
    ),
    "torch:CUDAGraph.capture_end": ("torch.cuda:CUDAGraph.capture_end", []),
    "torch:CUDAGraph.instantiate": ("torch.cuda:CUDAGraph.instantiate", []),
    "torch:CUDAGraph.replay": ("torch.cuda:CUDAGraph.replay", []),
    "torch:CUDAGraph.reset": ("torch.cuda:CUDAGraph.reset", []),
    "torch:CUDAGraph.pool": ("torch.cuda:CUDAGraph.pool", []),
    "torch:CUDAGraph.debug_dump": ("torch.cuda:CUDAGraph.debug_dump", _plain("debug_path")),
    "torch:graph_pool_handle": ("torch.cuda:graph_pool_handle", []),
    "torch:make_graphed_callables": (
        "torch.cuda:make_graphed_callables",
        _plain(
            "callables",
            "sample_args",
            ("num_warmup_iters", 3),
            ("allow_unused_input", False),
            ("pool", None),
        ),
    ),
    "torch_nvtx:range_push": ("torch.cuda.nvtx:range_push", _plain("msg")),
    "torch_nvtx:range_pop": ("torch.cuda.nvtx:range_pop", []),
    "torch_nvtx:range_start": ("torch.cuda.nvtx:range_start", _plain("msg")),
    "torch_nvtx:range_end": ("torch.cuda.nvtx:range_end", _plain("range_id")),
    "torch_nvtx:mark": ("torch.cuda.nvtx:mark", _plain("msg")),
    "torch_nvtx:range": (
        "torch.cuda.nvtx:range",
        [
            *_plain("msg"),
            ("args", "VAR_POSITIONAL", NO_DEFAULT),
            ("kwargs", "VAR_KEYWORD", NO_DEFAULT),
        ],
    ),
    "nvtx:annotate": ("nvtx:annotate", _RANGE),
    "nvtx:mark": ("nvtx:mark", _BLUE),
    "nvtx:push_range": ("nvtx:push_range", _BLUE),
    "nvtx:pop_range": ("nvtx:pop_range", _plain(("domain", None))),
    "nvtx:start_range": ("nvtx:start_range", _RANGE),
    "nvtx:end_range": ("nvtx:end_range", _plain("range_id")),
    "nvtx:enabled": ("nvtx:enabled", []),
    "nvtx:get_domain": ("nvtx:get_domain", _plain(("name", None))),
    "nvtx:Domain": ("nvtx:Domain", _plain(("name", None))),
}


def signature_of(function: Callable[..., Any]) -> Signature:
    """Return the parameters of a function or class, without `self` and `cls`."""
    parameters = inspect.signature(function).parameters.values()
    return [
        (
            each.name,
            each.kind.name,
            NO_DEFAULT if each.default is inspect.Parameter.empty else each.default,
        )
        for each in parameters
        if each.name not in {"self", "cls"}
    ]
