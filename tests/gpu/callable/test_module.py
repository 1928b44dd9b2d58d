"""A graphed module is a module: beside the original on a GPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import gpuprof
from gpuprof.compat import make_graphed_callables
from gpuprof.errors import InvalidStateError
from tests.gpu.support.callables import assert_replays


def nets(torch: Any) -> tuple[Any, Any]:
    """Return a network with a buffer that calls write, and an equal one of its own memory."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh()
    model = torch.nn.Sequential(*layers).cuda()
    return model, copy.deepcopy(model)


def batch(torch: Any, step: int = 0, dtype: str = "float32") -> Any:
    generator = torch.Generator("cuda").manual_seed(step)
    values = torch.randn(16, 8, device="cuda", generator=generator)
    return values.to(getattr(torch, dtype))


def assert_same(torch: Any, fast: Any, eager: Any, dtype: str = "float32") -> None:
    tolerance = {"float32": 1e-5, "float16": 1e-2}[dtype]
    for step in range(3):
        found, wanted = (each(batch(torch, step, dtype)) for each in (fast, eager))
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    for (name, mine), (other, theirs) in zip(
        fast.state_dict().items(), eager.state_dict().items(), strict=True
    ):
        assert name == other
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("change", ["eval", "half", "requires_grad_"])
def test_methods_of_modules_change_the_original(torch: Any, change: str) -> None:
    model, eager = nets(torch)
    fast = gpuprof.make_graphed_callable(model, (batch(torch),))
    arguments = (False,) if change == "requires_grad_" else ()
    assert getattr(fast, change)(*arguments) is fast
    getattr(eager, change)(*arguments)
    assert_same(torch, fast, eager, "float16" if change == "half" else "float32")
    assert fast.stats().replays >= 3


def test_a_sequential_with_it_trains(torch: Any) -> None:
    model, eager = nets(torch)
    samples = (batch(torch),)
    fast = torch.nn.Sequential(gpuprof.make_graphed_callable(model, samples), torch.nn.ReLU())
    plain = torch.nn.Sequential(eager, torch.nn.ReLU())
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (fast, plain)]
    for step in range(5):
        for each, optimizer in zip((fast, plain), optimizers, strict=True):
            optimizer.zero_grad()
            each(batch(torch, step)).square().mean().backward()
            optimizer.step()
    assert_replays(fast[0], 5)
    assert_same(torch, fast, plain)


@pytest.mark.parametrize("make", ["gpuprof", "torch"])
def test_a_script_for_torchs_callables_does_the_same(torch: Any, make: str) -> None:
    makes = {"gpuprof": make_graphed_callables, "torch": torch.cuda.make_graphed_callables}
    model, eager = nets(torch)
    sample = batch(torch).requires_grad_()
    pool = torch.cuda.graph_pool_handle()
    assert makes[make](model[0], (sample,), num_warmup_iters=2, pool=pool) is model[0]
    for step in range(3):
        for each in (model, eager):
            each.zero_grad()
            each(batch(torch, step).requires_grad_()).square().mean().backward()
        for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("make", ["gpuprof", "torch"])
def test_an_unused_input_is_refused_as_torch_refuses_it(torch: Any, make: str) -> None:
    makes = {"gpuprof": make_graphed_callables, "torch": torch.cuda.make_graphed_callables}
    samples = tuple(batch(torch, step).requires_grad_() for step in range(2))
    error = InvalidStateError if make == "gpuprof" else RuntimeError
    with pytest.raises(error, match=r"allow_unused"):
        makes[make](lambda x, _: x * 2, samples)
    fast = makes[make](lambda x, _: x * 2, samples, allow_unused_input=True)
    fast(*samples).sum().backward()
    assert samples[1].grad is None
    assert torch.equal(samples[0].grad, torch.full_like(samples[0], 2))
