"""What a refused capture of a torch function says: the operator, its line, and what cures it."""

from __future__ import annotations

import contextlib
import gc
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.support import cpu_graphs

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [
    pytest.mark.usefixtures("tapes"),
    pytest.mark.torch,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes"),
]


def routed(x: Any) -> Any:
    """Return what a mixture of experts does, which finds its tokens on the host."""
    out = torch.zeros_like(x)
    for expert in range(2):
        (rows,) = torch.where(x[:, 0] > expert)
        out.index_add_(0, rows, x[rows])
    return out


def branching(x: Any) -> Any:
    if x.sum() > 0:
        return x + 1
    return x


class Detector(torch.nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        y = torch.relu(x)
        return y[y > 0.5]


class Deep(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.ReLU(), Detector())

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def notes(
    function: Callable[..., Any], kind: type[Exception] = RuntimeError, **options: Any
) -> str:
    """Return the notes of the error that refuses a function, which keeps its type and text."""
    with pytest.raises(kind) as caught:
        gpuprof.make_graphed_callable(function, (torch.ones(4, 4),), **options)
    assert type(caught.value) is kind
    assert "not permitted when stream is capturing" in str(caught.value)
    (note,) = caught.value.__notes__
    return str(note)


def line(function: Callable[..., Any], offset: int) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + offset} in {code.co_name}"


@pytest.mark.parametrize(
    ("function", "op", "where", "cure"),
    [
        (routed, "aten::nonzero", line(routed, 4), r"torch.nonzero_static(x, size=n)"),
        (
            branching,
            "aten::_local_scalar_dense",
            line(branching, 1),
            "torch.where(condition, a, b)",
        ),
        (Deep(), "aten::index.Tensor", line(Detector.forward, 2), "torch.where(mask, x, 0)"),
        (lambda x: x.masked_select(x > 0), "aten::masked_select", "in <lambda>", "torch.where"),
        (lambda x: x.unique(), "aten::_unique2", "in <lambda>", "torch.sort(x)"),
        (
            lambda x: x.repeat_interleave(x[0].long(), dim=0),
            "aten::repeat_interleave.Tensor",
            "in <lambda>",
            "output_size=n",
        ),
        (lambda x: x[0].long().bincount(), "aten::bincount", "in <lambda>", "scatter_add_"),
        (
            lambda x: torch.linalg.inv(x + torch.eye(4)),
            "aten::_linalg_check_errors",
            "in <lambda>",
            "torch.linalg.inv_ex",
        ),
    ],
)
def test_the_operator_its_line_and_the_cure_are_named(
    function: Callable[..., Any], op: str, where: str, cure: str
) -> None:
    note = notes(function, name="step")
    assert note.startswith("gpuprof: capture 'step' (mode thread_local) broke in ")
    assert f"broke in {op} at " in note
    assert where in note
    assert cure in note


def test_a_call_that_runs_eagerly_instead_says_it_in_its_warning() -> None:
    with pytest.warns(RuntimeWarning, match="step: the capture failed") as told:
        fast = gpuprof.make_graphed_callable(
            branching, (torch.ones(4, 4),), on_capture_error="eager", name="step"
        )
    assert f"broke in aten::_local_scalar_dense at {line(branching, 1)}" in str(told[0].message)
    assert torch.equal(fast(-torch.ones(4, 4)), -torch.ones(4, 4))


def test_an_error_in_a_call_is_told_as_well() -> None:
    fast = gpuprof.make_graphed_callable(branching, warmup=1)
    fast(torch.ones(2))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="capturing") as caught:
            fast(torch.ones(2))
        assert line(branching, 1) in caught.value.__notes__[0]


@pytest.mark.parametrize("call", [lambda fast, x: fast(x), lambda fast, x: torch.vmap(fast)(x)])
def test_an_error_that_is_gone_keeps_no_argument(call: Callable[..., Any]) -> None:
    fast = gpuprof.make_graphed_callable(branching, warmup=0)

    def refused() -> weakref.ref[Any]:
        x = torch.ones(2)
        with contextlib.suppress(RuntimeError, InvalidStateError):
            call(fast, x)
            pytest.fail("it is not refused")
        return weakref.ref(x)

    refused()
    gc.collect()
    gc.disable()
    try:
        assert refused()() is None
    finally:
        gc.enable()


def test_calls_run_eagerly_where_their_warning_is_an_error() -> None:
    fast = gpuprof.make_graphed_callable(branching, warmup=0, on_capture_error="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="the capture failed"):
            fast(torch.ones(2))
        assert fast(torch.ones(2)).tolist() == [2, 2]
    assert fast.stats().failures == 1


def breaking() -> None:
    cpu_graphs.Capture.status = 2


def before_an_operator(x: Any) -> Any:
    y = x + 1
    breaking()
    return y.relu().nonzero()


def with_an_error(x: Any) -> Any:
    if cpu_graphs.Capture.number_open:
        breaking()
        raise RuntimeError("operation not permitted when stream is capturing")
    return x


def in_an_operator_that_says_nothing(x: Any) -> Any:
    y = torch.ops.gpuprof_tests.quiet(x)
    return y.nonzero()


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    """Have an operator that breaks the capture, and does not raise."""
    from torch import library as registry

    operators = registry.Library("gpuprof_tests", "FRAGMENT")
    operators.define("quiet(Tensor x) -> Tensor")

    def implementation(x: Any) -> Any:
        breaking()
        return x.clone()

    operators.impl("quiet", implementation, "CPU")
    yield
    operators._destroy()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("function", "place"),
    [
        (before_an_operator, f"at a line before {line(before_an_operator, 3)}"),
        (with_an_error, f"at {line(with_an_error, 3)}"),
        (
            in_an_operator_that_says_nothing,
            f"in gpuprof_tests::quiet at {line(in_an_operator_that_says_nothing, 1)}",
        ),
    ],
)
def test_what_broke_first_is_named(function: Callable[..., Any], place: str) -> None:
    assert f" broke {place}" in notes(function)


@pytest.mark.parametrize("in_the_capture", [False, True])
def test_an_error_that_breaks_no_capture_has_no_note(in_the_capture: bool) -> None:
    def failing(x: Any) -> Any:
        if bool(cpu_graphs.Capture.number_open) is in_the_capture:
            raise KeyError
        return x

    with pytest.raises(KeyError) as caught:
        gpuprof.make_graphed_callable(failing, (torch.ones(4),))
    assert not getattr(caught.value, "__notes__", ())
