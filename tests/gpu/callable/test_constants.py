"""What a capture takes from the host, beside eager: constants, indices, masks, and their guards."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof


def bodies(torch: Any) -> dict[str, Callable[[Any], Any]]:
    """Return functions of a matrix of 4 x 8 on the GPU."""
    row, rows = torch.arange(8.0), torch.arange(32.0).reshape(4, 8)
    pinned = torch.arange(8.0).pin_memory()

    def assigned(x: Any) -> Any:
        x = x.clone()
        x[0], x[:, 1], x[[2, 3], 2] = row, rows[:, 1], 5.0
        x[torch.tensor([1, 2])] = torch.tensor(3.0)
        return x

    return {
        "tensor": lambda x: x.index_fill(0, torch.tensor([0, 2], device="cuda"), 5.0),
        "number": lambda x: x + torch.tensor(2.5, device="cuda"),
        "half": lambda x: x + torch.tensor([0.1] * 8, dtype=torch.half, device="cuda"),
        "as_tensor": lambda x: x + torch.as_tensor([1.5] * 8, device="cuda"),
        "as_tensor of a tensor": lambda x: x + torch.as_tensor(row, device="cuda"),
        "asarray": lambda x: x + torch.asarray([1.5] * 8, device="cuda"),
        "new_tensor": lambda x: x + x.new_tensor([1.5] * 8),
        "to": lambda x: x + torch.arange(8.0).to("cuda"),
        "to, not blocking": lambda x: x + torch.full((8,), 3.0).to("cuda", non_blocking=True),
        "to another dtype": lambda x: x + row.to("cuda", torch.float64),
        "to as": lambda x: x + torch.arange(8).to(x),
        "type_as": lambda x: x + torch.arange(8.0).type_as(x),
        "cuda": lambda x: x * rows.cuda(),
        "strided": lambda x: x * rows.t().to("cuda").t(),
        "pinned": lambda x: x + pinned.to("cuda", non_blocking=True),
        "pinned to half": lambda x: x + pinned.to("cuda", torch.half, non_blocking=True),
        "copy_": lambda x: torch.empty_like(x).copy_(row) + x,
        "copy_ to half": lambda x: torch.empty(4, 8, device="cuda").half().copy_(rows) + x,
        "copy_ to a column": lambda x: torch.zeros_like(x)[:, 1].copy_(rows[:, 1]) + x[:, 1],
        "index": lambda x: x[:, torch.tensor([1, 0])],
        "list": lambda x: x[[2, 0]],
        "list of columns": lambda x: x[:, [1, 7]],
        "array": lambda x: x[torch.arange(2).numpy()],
        "mask": lambda x: x[rows > 7],
        "mask of rows": lambda x: x[torch.tensor([True, False, True, False]), 2:],
        "indices of both": lambda x: x[torch.tensor([0, 1]), torch.tensor([2, 3], device="cuda")],
        "assigned": assigned,
        "where": lambda x: torch.where(x > 0, x, torch.tensor(0.0)),
        "built mask": lambda x: x.masked_fill(torch.ones(4, 8).triu(1).bool().to("cuda"), -1.0),
        "scalar": lambda x: x * torch.tensor(2.0),
        "empty": lambda x: torch.cat([x, torch.empty(0, 8).to("cuda")]),
    }


NAMES = (
    *("tensor", "number", "half", "as_tensor", "as_tensor of a tensor", "asarray", "new_tensor"),
    *("to", "to, not blocking", "to another dtype", "to as", "type_as", "cuda", "strided"),
    *("pinned", "pinned to half", "copy_", "copy_ to half", "copy_ to a column", "index", "list"),
    *("list of columns", "array", "mask", "mask of rows", "indices of both", "assigned", "where"),
    *("built mask", "scalar", "empty"),
)


def churn(torch: Any) -> None:
    """Give out all memory of the host again that nobody keeps."""
    gc.collect()
    torch.cuda.synchronize()
    for size in (1, 2, 8, 32, 64):
        for _ in range(16):
            torch.full((size,), -7.0)
            torch.full((size,), -7.0).pin_memory()


def inputs(torch: Any, seed: int) -> Any:
    return torch.randn(4, 8, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))


def test_each_body_is_tested(torch: Any) -> None:
    assert tuple(bodies(torch)) == NAMES


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_callable_is_as_eager(torch: Any, name: str, inference: bool) -> None:
    function = bodies(torch)[name]
    with torch.inference_mode(inference), torch.no_grad():
        fast = gpuprof.make_graphed_callable(function, (inputs(torch, 0),))
        for seed in range(3):
            churn(torch)
            x = inputs(torch, seed)
            assert torch.equal(fast(x), function(x))
    assert fast.stats().captures == 1
    assert fast.stats().eager_calls == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_capture_is_as_eager(torch: Any, name: str) -> None:
    function, x = bodies(torch)[name], inputs(torch, 0)
    function(x)
    with gpuprof.capture(host_constants=True) as cap:
        found = function(x)
    for seed in range(3):
        churn(torch)
        x.copy_(inputs(torch, seed))
        cap.graph.launch()
        assert torch.equal(found, function(x))


def test_a_capture_refuses_what_it_was_not_asked_for(torch: Any) -> None:
    x, row = inputs(torch, 0), torch.arange(8.0)
    with pytest.raises(Exception, match=r"(?i)pinned|captur"), gpuprof.capture():
        x.add_(row.to("cuda"))
    assert torch.equal((x + row.to("cuda")).cpu(), x.cpu() + row)
    with pytest.raises(ZeroDivisionError), gpuprof.capture(host_constants=True):
        x.add_(row.to("cuda"))
        raise ZeroDivisionError
    with gpuprof.capture(host_constants=True) as cap:
        found = x + row.to("cuda")
    cap.graph.launch()
    assert torch.equal(found.cpu(), x.cpu() + row)


def test_a_write_to_the_source_needs_another_graph(torch: Any) -> None:
    scale = torch.arange(8.0)

    def function(x: Any) -> Any:
        return x * (scale + 1).to("cuda")

    x = inputs(torch, 0)
    with torch.no_grad():
        fast = gpuprof.make_graphed_callable(function, (x,))
        for value in (2.0, 3.0):
            scale.fill_(value)
            assert torch.equal(fast(x), function(x))
        assert fast.stats().captures == 3
        assert torch.equal(fast(x), function(x))
        assert fast.stats().captures == 3


def test_a_buffer_on_the_host_is_guarded_by_name(torch: Any) -> None:
    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.ones(8))

        def forward(self, x: Any) -> Any:
            return x * self.mask.to(x.device)

    module, x = Masked(), inputs(torch, 0)
    with torch.no_grad():
        fast = gpuprof.make_graphed_callable(module, (x,))
        module.mask = torch.full((8,), 2.0)
        assert torch.equal(fast(x), module(x))
        module.mask[3] = 0.0
        assert torch.equal(fast(x), module(x))


@pytest.mark.parametrize("param_grads", ["autograd", "accumulate"])
def test_gradients_are_as_eager(torch: Any, param_grads: str) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(_ctx: Any, grad: Any) -> Any:
            return grad * torch.full((8,), 2.0).to("cuda")

    net = torch.nn.Linear(8, 8, device="cuda")

    def function(x: Any) -> Any:
        y = Doubled.apply(net(x)) + torch.tensor([0.5] * 8, device="cuda")
        return y[torch.tensor([0, 2, 2])] * torch.arange(8.0).to("cuda")

    fast = gpuprof.make_graphed_callable(function, (inputs(torch, 0),), param_grads=param_grads)
    for seed in range(2):
        found = []
        for run in (fast, function):
            net.zero_grad(set_to_none=True)
            churn(torch)
            result = run(inputs(torch, seed))
            result.sum().backward()
            found.append([result.detach(), net.weight.grad.clone(), net.bias.grad.clone()])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("compiled", ["the function", "a part", "another function"])
def test_compiled_code_may_take_part(torch: Any, compiled: str) -> None:
    row = torch.arange(8.0)
    part = torch.compile(lambda x: x.sin() + 1)
    part(inputs(torch, 0))

    def function(x: Any) -> Any:
        x = part(x) if compiled == "a part" else x.sin() + 1
        return x * row.to("cuda")

    def of_numbers(x: Any) -> Any:
        return function(x) + torch.tensor([1.0] * 8, device="cuda")

    with torch.no_grad():
        for each in (function, of_numbers):
            fast = gpuprof.make_graphed_callable(
                each, (inputs(torch, 0),), compile=compiled == "the function"
            )
            for seed in range(2):
                churn(torch)
                x = inputs(torch, seed)
                torch.testing.assert_close(fast(x), each(x))
            row.add_(1)
            torch.testing.assert_close(fast(x), each(x))
            assert fast.stats().eager_calls == 0


def test_a_closure_without_arguments(torch: Any) -> None:
    x, out = inputs(torch, 0), torch.zeros(4, 8, device="cuda")

    def step() -> None:
        out.copy_(x * torch.arange(8.0).to("cuda"))

    fast = gpuprof.make_graphed_callable(step, (), warmup=1)
    x.copy_(inputs(torch, 1))
    churn(torch)
    fast()
    assert torch.equal(out, x * torch.arange(8.0).to("cuda"))


@pytest.mark.parametrize("is_whole_step", [False, True])
def test_checkpointed_layers_index_by_lists_when_they_are_recomputed(
    torch: Any, is_whole_step: bool
) -> None:
    checkpoint = importlib.import_module("torch.utils.checkpoint").checkpoint
    weight = torch.randn(8, device="cuda", requires_grad=True)

    def function(x: Any) -> Any:
        how = {"use_reentrant": False, "preserve_rng_state": False}
        result = checkpoint(lambda x: (x * weight).sin()[:, [0, 3]], x, **how)
        if not is_whole_step:
            return result
        weight.grad = None
        result.square().sum().backward()
        return weight.grad.clone()

    def gradients(fn: Any, x: Any) -> Any:
        result = fn(x)
        return result if is_whole_step else torch.autograd.grad(result.square().sum(), weight)[0]

    fast = gpuprof.make_graphed_callable(function)
    for seed in range(6):
        x = inputs(torch, seed)
        torch.testing.assert_close(gradients(fast, x), gradients(function, x))
    assert fast.stats().replays
