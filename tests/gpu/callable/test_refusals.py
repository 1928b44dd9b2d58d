"""What a refused capture says of operators that depend on data: name, line and cure."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")


def routed(torch: Any, x: Any) -> Any:
    """Return what a mixture of experts does, which finds its tokens on the host."""
    out = torch.zeros_like(x)
    for expert in range(2):
        (rows,) = torch.where(x[:, 0] > expert)
        out.index_add_(0, rows, x[rows])
    return out


def branching(torch: Any, x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x


def boxes(torch: Any, x: Any) -> Any:
    return torch.relu(x)[x > 0.5]


def to_the_host(torch: Any, x: Any) -> Any:
    return x * x.cpu().shape[0]


CASES: dict[Callable[[Any, Any], Any], tuple[str, str]] = {
    routed: ("aten::nonzero", "torch.nonzero_static(x, size=n)"),
    branching: ("aten::", "torch.where(condition, a, b)"),
    boxes: ("aten::index.Tensor", "torch.where(mask, x, 0)"),
    to_the_host: ("aten::", ".cpu()"),
    lambda _, x: x.masked_select(x > 0): ("aten::masked_select", "torch.where(mask, x, 0)"),
    lambda _, x: x.unique(): ("aten::_unique2", "torch.sort(x)"),
    lambda _, x: x.repeat_interleave(x[0].long(), dim=0): (
        "aten::repeat_interleave",
        "output_size=n",
    ),
    lambda _, x: x[0].long().bincount(): ("aten::bincount", "scatter_add_"),
    lambda torch, x: torch.linalg.inv(x + torch.eye(4, device="cuda")): (
        "aten::_linalg_check_errors at ",
        "torch.linalg.inv_ex",
    ),
}


@pytest.mark.parametrize("function", CASES)
def test_operator_line_and_cure_are_named(torch: Any, function: Callable[[Any, Any], Any]) -> None:
    op, cure = CASES[function]
    given = torch.ones(4, 4, device="cuda")
    with pytest.raises(RuntimeError) as caught:
        gpuprof.make_graphed_callable(lambda x: function(torch, x), (given,), name="step")
    said = "\n".join(caught.value.__notes__)
    assert f" broke in {op}" in said
    assert f" at {__file__}:" in said
    assert f" in {function.__name__}" in said
    assert cure in said


def test_compiled_code_that_depends_on_data_is_named(torch: Any) -> None:
    given = torch.ones(4, 4, device="cuda")
    with pytest.raises(RuntimeError) as caught:
        gpuprof.make_graphed_callable(lambda x: boxes(torch, x), (given,), compile=True)
    assert any("aten::index.Tensor" in note for note in caught.value.__notes__)


def test_a_wait_that_is_no_operator_is_named_by_its_line(torch: Any) -> None:
    def waiting(x: Any) -> Any:
        y = x + 1
        torch.cuda.synchronize()
        return y * 2

    with pytest.raises(RuntimeError) as caught:
        gpuprof.make_graphed_callable(waiting, (torch.ones(4, device="cuda"),))
    line = waiting.__code__.co_firstlineno + 2
    assert any(f"{__file__}:{line} in waiting" in note for note in caught.value.__notes__)


def test_a_wait_that_the_body_passes_over_is_told_by_the_next_operator(torch: Any) -> None:
    def passing(x: Any) -> Any:
        y = x + 1
        with contextlib.suppress(RuntimeError):
            torch.cuda.synchronize()
        return y * 2

    with pytest.raises((RuntimeError, gpuprof.CaptureError)) as caught:
        gpuprof.make_graphed_callable(passing, (torch.ones(4, device="cuda"),))
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert f"a line before {__file__}:{passing.__code__.co_firstlineno + 4} in passing" in said


def test_the_cures_can_be_captured(torch: Any) -> None:
    def cured(x: Any) -> Any:
        rows = torch.nonzero_static(x[:, 0] > 0, size=4, fill_value=0)
        kept = torch.where(x > 0, x, 0)
        counts = torch.ones(4, dtype=torch.long, device="cuda")
        inverse, _ = torch.linalg.inv_ex(x + 9 * torch.eye(4, device="cuda"))
        return rows, kept, inverse, x.repeat_interleave(counts, dim=0, output_size=4)

    given = torch.rand(4, 4, device="cuda")
    fast = gpuprof.make_graphed_callable(cured, (given,))
    for found, wanted in zip(fast(given), cured(given), strict=True):
        torch.testing.assert_close(found, wanted)
