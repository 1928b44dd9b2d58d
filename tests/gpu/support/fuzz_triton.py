"""The fuzzer's kernels in Triton, which reads their source from a file."""

from typing import Any

import triton
import triton.language as tl

_NUMBERS = ("m", "count", "x0", "x1", "y0", "y1")
_CODES = {"grow": 0, "add_positive": 1, "clip": 2, "take": 3}
_BLOCK = 64


@triton.jit(do_not_specialize=_NUMBERS)  # type: ignore[untyped-decorator]
def _kernel(px, py, m, count, x0, x1, y0, y1, CODE: tl.constexpr, BLOCK: tl.constexpr):  # noqa: PLR0917
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k < count
    at = px + (k // m) * x0 + (k % m) * x1
    x = tl.load(at, mask=mask, other=0.0)
    y = tl.load(py + (k // m) * y0 + (k % m) * y1, mask=mask, other=0.0)
    if CODE == 0:
        x = x * 2.0
    elif CODE == 1:
        x = x + tl.maximum(y, 0.0)
    elif CODE == 2:
        x = tl.minimum(tl.maximum(x, -1.0), 1.0)
    else:
        x = y
    tl.store(at, x, mask=mask)


def launch(name: str, x: Any, y: Any) -> None:
    """Run one kernel on two matrices on torch's current stream."""
    rows, columns = x.shape
    numbers = (columns, rows * columns, *x.stride(), *y.stride())
    blocks = (rows * columns + _BLOCK - 1) // _BLOCK
    _kernel[(blocks,)](x, y, *numbers, CODE=_CODES[name], BLOCK=_BLOCK)
