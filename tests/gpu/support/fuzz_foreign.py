"""Kernels of other libraries than torch that write to their first array.

Where the arrays are zero or small, some of them write what was there already: a comparison of
values before and after would not see the write. Each takes two matrices or two rows of float32, of
any strides. On the CPU torch's operators stand in for them.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import warnings
from collections.abc import Callable
from typing import Any

Kernel = Callable[[Any, Any], None]
_EXPRESSIONS = {  # of the written element x and the read element y
    "grow": "x * 2.0f",
    "add_positive": "x + (y > 0.0f ? y : 0.0f)",
    "clip": "x > 1.0f ? 1.0f : (x < -1.0f ? -1.0f : x)",
    "take": "y",
}
_THREADS = 32
_RAW = """
extern "C" __global__ void {name}(float* px, const float* py, int n, int m,
                                  long long x0, long long x1, long long y0, long long y1) {{
  for (int k = threadIdx.x; k < n * m; k += blockDim.x) {{
    float x = px[(k / m) * x0 + (k % m) * x1];
    float y = py[(k / m) * y0 + (k % m) * y1];
    px[(k / m) * x0 + (k % m) * x1] = {expression};
  }}
}}
"""


def _checked(torch: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Return two matrices that share no memory, or raise."""
    if x.shape != y.shape or x.dim() not in {1, 2} or {x.dtype, y.dtype} != {torch.float32}:
        raise ValueError("not for these kernels")
    if x.numel() == 0 or any(
        size > 1 and not by for size, by in zip(x.shape, x.stride(), strict=True)
    ):
        raise ValueError("nothing, or one element in several places")
    x, y = x.detach(), y.detach()
    if x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr():
        y = y.clone()
    return (x, y) if x.dim() == 2 else (x.unsqueeze(0), y.unsqueeze(0))


def _of_torch(torch: Any, name: str) -> Kernel:
    def run(x: Any, y: Any) -> None:
        x, y = _checked(torch, x, y)
        made = {
            "grow": lambda: x * 2,
            "add_positive": lambda: x + y.clamp(min=0),
            "clip": lambda: x.clamp(-1, 1),
            "take": lambda: y,
        }[name]()
        x.copy_(made)

    return run


def _stream(cupy: Any, torch: Any) -> Any:
    return cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)


def _of_cupy(torch: Any, name: str) -> Kernel:
    import cupy

    text = f"z = {_EXPRESSIONS[name].replace('x', 'z')}"
    kernel = cupy.ElementwiseKernel("float32 y", "float32 z", text, f"fuzz_{name}")

    def run(x: Any, y: Any) -> None:
        x, y = _checked(torch, x, y)
        with _stream(cupy, torch):
            kernel(cupy.asarray(y), cupy.asarray(x))

    return run


def _of_raw(torch: Any, name: str) -> Kernel:
    import cupy

    source = _RAW.format(name=f"raw_{name}", expression=_EXPRESSIONS[name])
    kernel = cupy.RawKernel(source, f"raw_{name}")

    def run(x: Any, y: Any) -> None:
        import numpy

        x, y = _checked(torch, x, y)
        sizes = [numpy.int32(size) for size in x.shape]
        strides = [numpy.int64(by) for by in (*x.stride(), *y.stride())]
        with _stream(cupy, torch):
            kernel((1,), (_THREADS,), (cupy.asarray(x), cupy.asarray(y), *sizes, *strides))

    return run


def _of_numba(torch: Any, name: str) -> Kernel:
    import numpy

    if not hasattr(numpy, "row_stack"):  # newer ones have it no more, but Numba names it
        numpy.row_stack = numpy.vstack
    from numba import config, cuda

    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    source = {
        "grow": lambda x, _y: x * 2,
        "add_positive": lambda x, y: x + max(y, 0),
        "clip": lambda x, _y: min(max(x, -1), 1),
        "take": lambda _x, y: y,
    }[name]
    element = cuda.jit(device=True)(source)

    @cuda.jit("void(float32[:, :], float32[:, :])")  # of any strides
    def kernel(x: Any, y: Any) -> None:
        n, m = x.shape
        for k in range(cuda.threadIdx.x, n * m, cuda.blockDim.x):
            x[k // m, k % m] = element(x[k // m, k % m], y[k // m, k % m])

    def run(x: Any, y: Any) -> None:
        x, y = _checked(torch, x, y)
        stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
        arrays = [cuda.as_cuda_array(each, sync=False) for each in (x, y)]
        kernel[1, _THREADS, stream](*arrays)

    return run


def _of_triton(torch: Any, name: str) -> Kernel:
    from tests.gpu.support import fuzz_triton

    def run(x: Any, y: Any) -> None:
        x, y = _checked(torch, x, y)
        fuzz_triton.launch(name, x, y)

    return run


_LIBRARIES = {
    "cupy": ("cupy", _of_cupy),
    "raw": ("cupy", _of_raw),
    "numba": ("numba", _of_numba),
    "triton": ("triton", _of_triton),
}


# Strides and offsets for which libraries compile: dense, at an odd address, with gaps, transposed.
_FORMS = (
    ((6, 6), (((6, 1), 0), ((6, 1), 1), ((8, 1), 0), ((1, 6), 0), ((12, 2), 0))),
    ((6,), (((1,), 0), ((1,), 1), ((2,), 0))),
)


@functools.cache
def kernels(torch: Any, device: str) -> dict[str, Kernel]:
    """Return all kernels by name, compiled: a capture may be no place for that."""
    if device == "cpu":
        return {f"torch_{name}": _of_torch(torch, name) for name in _EXPRESSIONS}
    with warnings.catch_warnings():  # of libraries, as they are imported
        warnings.simplefilter("ignore")
        return _compiled(torch, device)


def _compiled(torch: Any, device: str) -> dict[str, Kernel]:
    made = {
        f"{library}_{name}": make(torch, name)
        for library, (module, make) in _LIBRARIES.items()
        if importlib.util.find_spec(module) is not None
        for name in _EXPRESSIONS
    }
    for shape, forms in _FORMS:
        for one, other in itertools.product(forms, repeat=2):
            for kernel in made.values():
                x, y = (torch.zeros(100, device=device) for _ in range(2))
                kernel(x.as_strided(shape, *one), y.as_strided(shape, *other))
    torch.cuda.synchronize()
    return made
