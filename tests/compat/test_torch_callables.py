"""`make_graphed_callables` of torch modules, on the CPU with a tape for a graph."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import gpuprof
from gpuprof.compat import make_graphed_callables
from gpuprof.errors import InvalidStateError
from tests.support import cpu_graphs

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch
nn = torch.nn


@pytest.fixture(autouse=True)
def tapes(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_graphs.install(monkeypatch)


def batch(step: int = 0) -> Any:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step)).requires_grad_()


class Unused(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, values: Any, other: Any) -> tuple[Any, Any]:
        return self.used(values), other.detach()


def test_a_module_is_returned_itself_and_replays_wherever_it_is_held() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    eager, layer = copy.deepcopy(model), model[0]
    seen: list[Any] = []
    layer.register_forward_hook(lambda *_: seen.append(None))
    assert make_graphed_callables(layer, (batch(),)) is layer
    assert not seen
    for step in range(3):
        for each in (model, eager):
            each.zero_grad()
            each(batch(step)).square().sum().backward()
        for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            assert torch.equal(mine.grad, theirs.grad)
    stats = layer.forward.run.stats()
    assert (stats.captures, stats.replays, stats.eager_calls) == (1, 3, 0)
    assert len(seen) == 3
    layer.eval()
    assert torch.equal(model(batch()), eager(batch()))


def test_of_several_the_modules_are_returned_and_functions_are_graphed() -> None:
    layer = nn.Linear(4, 4)
    one, two = make_graphed_callables((layer, torch.tanh), ((batch(),), (batch(),)))
    assert one is layer
    assert isinstance(two, gpuprof.GraphedCallable)
    assert torch.equal(
        two(one(batch(1))), nn.functional.linear(batch(1), *layer.parameters()).tanh()
    )


def test_inputs_that_are_not_used_are_refused_unless_they_are_allowed() -> None:
    model, args = Unused(), (batch(), batch(1))
    expected = r"not depend on args\[1\], parameter 'spare.weight', parameter 'spare.bias'"
    for warmup in (0, 3):
        with pytest.raises(InvalidStateError, match=expected):
            make_graphed_callables(model, args, warmup)
    assert "forward" not in vars(model)
    make_graphed_callables(model, args, allow_unused_input=True)
    model(*args)[0].sum().backward()
    assert args[1].grad is None
    assert model.spare.weight.grad is None
    with torch.no_grad():
        make_graphed_callables(Unused(), args)  # without a backward pass


def test_a_function_is_asked_for_its_arguments_alone() -> None:
    model = Unused()
    assert make_graphed_callables(lambda values: model(values, values)[0], (batch(),)) is not model
    with pytest.raises(InvalidStateError, match=r"not depend on args\[1\];"):
        make_graphed_callables(lambda values, _: values * 2, (batch(), batch()))
