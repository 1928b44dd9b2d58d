"""Padded calls of functions of torch's, on torch for the CPU: as if they had not been padded."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import gpuprof
from tests.support.structures import Batch

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("tapes")]


def make(function: Any, buckets: Any) -> gpuprof.GraphedCallable:
    return gpuprof.make_graphed_callable(function, warmup=0, verify="off", buckets=buckets)


def padded(calls: gpuprof.GraphedCallable) -> int:
    return calls.stats().padded_calls


def scaled_in_place(batch: Batch, other: Any) -> Any:
    batch.x.mul_(batch.scale).add_(other)
    return batch.x, {"twice": batch.x.repeat_interleave(2, 0), "last": other[..., -1:]}, batch.scale


def test_padded_calls_return_and_write_what_others_do() -> None:
    calls = make(scaled_in_place, {0: (4, 8)})
    for size in (3, 1, 2, 7, 5, 8, 9, 6):  # 8 is a bucket, 9 is too large
        x, other = torch.randn(size, 10), torch.randn(size, 10)
        expected_x = x.clone()
        expected = scaled_in_place(Batch(expected_x, 3.0), other.clone())
        given, more, scale = calls(Batch(x, 3.0), other)
        assert torch.equal(x, expected_x)
        assert torch.equal(given, expected[0])
        assert all(torch.equal(more[name], expected[1][name]) for name in more)
        assert (len(more), scale) == (2, 3.0)
    assert padded(calls) == 4  # the first call of a bucket is the function's


def test_gradients_of_padded_calls_are_those_of_the_function() -> None:
    layer = torch.nn.Linear(5, 5)
    calls = make(lambda x, w: (layer(x).tanh() * w).cumsum(1), {0: (4,)})
    for size in (3, 1, 2, 3):
        worlds = []
        for function in (calls, calls.eager):
            torch.manual_seed(size)
            x, w = torch.randn(size, 5, requires_grad=True), torch.randn(size, 5)
            layer.zero_grad()
            function(x, w).square().sum().backward()
            worlds.append([x.grad, layer.weight.grad.clone(), layer.bias.grad.clone(), w.grad])
        (*found, none), (*expected, _) = worlds
        for grad, other in zip(found, expected, strict=True):
            torch.testing.assert_close(grad, other)
        assert none is None
    assert padded(calls) == 3


def test_the_mask_is_true_for_what_is_real() -> None:
    def body(x: Any, *, valid: Any) -> Any:
        assert valid.dtype is torch.bool
        return (x * valid[:, None]).sum(0), valid, valid.sum()

    calls = make(body, {0: (4, 8), "mask": "valid"})
    for size in (3, 1, 4, 9, 7, 5, 0):  # 4 is a bucket, 9 is too large, 0 is not padded
        x = torch.randn(size, 10)
        total, valid, count = calls(x)
        torch.testing.assert_close(total, x.sum(0))
        assert valid.tolist() == [True] * size
        assert count.item() == size
    assert padded(calls) == 2


@pytest.mark.parametrize(
    "lay_out",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1::3],
        lambda x: x.repeat(2, 1)[3:, :5],
        lambda x: x[:5, :6].to(x.dtype).conj(),
    ],
    ids=["transposed", "strided", "part", "conjugate"],
)
def test_what_is_written_comes_back_whatever_the_layout(lay_out: Any) -> None:
    rules = {"x": {0: (32,), -1: (64,)}}
    calls = make(lambda x: x.mul_(2).sum(), rules)
    for _ in range(2):
        whole = torch.randn(12, 14, dtype=torch.complex64)
        x, expected = lay_out(whole), lay_out(whole.clone()) * 2
        version = x._version
        calls(x=x)
        assert torch.equal(x, expected)
        assert x._version > version
    assert padded(calls) == 1


def test_one_array_may_be_padded_in_two_places() -> None:
    calls = make(lambda x, y: (x + y, x.t() @ y), {0: (4,)})
    for size in (3, 2):
        x = torch.randn(size, 6)
        total, product = calls(x, x)
        assert torch.equal(total, 2 * x)
        torch.testing.assert_close(product, x.t() @ x)
    assert padded(calls) == 1


def test_arrays_without_elements_are_padded_too() -> None:
    calls = make(lambda x: (x.add_(1), x.new_zeros(0, 6)), {0: (4,)})
    for size in (3, 2):
        x = torch.zeros(size, 0)
        assert [each.shape for each in calls(x)] == [(size, 0), (0, 6)]
    assert padded(calls) == 1


def test_an_expanded_array_is_written_to_once_for_all_that_it_stands_for() -> None:
    calls = make(lambda x: x.add_(1), {0: (4,)})
    calls(torch.zeros(3, 2))
    x = torch.zeros(1, 2).expand(3, 2)
    calls(x)
    assert x.tolist() == [[1, 1]] * 3


def test_what_would_be_cut_to_another_size_than_eagerly_is_refused() -> None:
    calls = make(lambda x: x[:3] * 2, {0: (8,)})
    assert [len(calls(torch.ones(size))) for size in (5, 4, 3)] == [3, 3, 3]
    with pytest.raises(ValueError, match="does not follow the padded dimension"):
        calls(torch.ones(2))


def test_no_padded_array_is_kept_while_the_function_runs() -> None:
    kept: list[int] = []

    def body(x: Any) -> Any:
        alive = [each for each in gc.get_objects() if type(each) is torch.Tensor]
        kept.append(sum(each.shape == (8, 7) for each in alive))
        return x * 2

    fast = gpuprof.make_graphed_callable(body, warmup=2, buckets={0: (8,)})
    for _ in range(2):
        fast(torch.ones(3, 7))
    assert kept == [0, 0]
