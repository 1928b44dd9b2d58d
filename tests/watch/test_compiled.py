"""What a watch sees of models that `torch.compile` compiles."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import gpuprof
from tests.support.watched import nn, torch

dynamo: Any = pytest.importorskip("torch._dynamo", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def no_compiled_code() -> Iterator[None]:
    dynamo.reset()
    expected()
    yield
    dynamo.reset()


class Net(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2)])
        self.head = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def net() -> Any:
    torch.manual_seed(5)
    return Net()


def gradients(model: Any, call: Any = None) -> list[Any]:
    model.zero_grad()
    x = torch.arange(8.0).view(2, 4).requires_grad_()
    loss = (model if call is None else call)(x).square().sum()
    loss.backward()
    return [loss, x.grad, *(each.grad for each in model.parameters())]


@functools.cache
def expected() -> list[Any]:
    """Return them of a model that nothing watches; first called where nothing is watched."""
    return gradients(net())


def check_gradients(model: Any, call: Any = None) -> None:
    found = gradients(model, call)
    assert len(found) == len(expected())
    assert all(map(torch.allclose, found, expected()))


def called(seen: Any) -> set[str]:
    rows = seen.read()
    assert "stopped" not in str(rows)
    assert all(row.backward.calls == row.forward.calls for row in rows.values())
    return {path for path, row in rows.items() if row.forward.calls}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_is_one_row(backend: str) -> None:
    model = net()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with gpuprof.watch(compiled) as seen:
        for _ in range(3):
            check_gradients(model, compiled)
    assert called(seen) == {""}
    row = seen.read()[""]
    assert (row.forward.timed, row.backward.timed, row.class_name) == (3, 3, "OptimizedModule")
    check_gradients(model, compiled)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_hooks_are_traced_out_of_a_region_that_is_compiled_later(backend: str) -> None:
    model = net()
    with warnings.catch_warnings(), gpuprof.watch(model) as seen:
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        for _ in range(3):
            check_gradients(model, compiled)
    assert called(seen) == set()
    check_gradients(model, compiled)


def test_a_watch_adds_no_graph_break() -> None:
    model = net()
    with gpuprof.watch(model):
        found = dynamo.explain(model)(torch.ones(2, 4))
    assert (found.graph_count, found.graph_break_count) == (1, 0), found.break_reasons


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_model_compiled_in_place_is_one_row(when: str) -> None:
    model = net()
    model.compile(backend="aot_eager", fullgraph=True)
    if when == "after":
        gradients(model)
    compiled = model._compiled_call_impl
    first, second = gpuprof.watch(model), gpuprof.watch(model)
    for _ in range(3):
        check_gradients(model)
    assert called(first) == called(second) == {""}
    first.close()
    check_gradients(model)
    second.close()
    assert model._compiled_call_impl is compiled
    assert second.read()[""].backward.timed == 4


def test_layers_compiled_in_place_are_a_row_each() -> None:
    model = net()
    for layer in model.layers:
        layer.compile(backend="aot_eager")
    with gpuprof.watch(model, depth=3) as seen:
        for _ in range(2):
            check_gradients(model)
    assert called(seen) == {"", "layers.0", "layers.1", "head"}
    assert seen.read()["layers.0"].share < 1


def test_a_module_that_is_kept_from_being_compiled_is_seen() -> None:
    model = net()
    model.head = torch.compiler.disable(model.head)
    with gpuprof.watch(model) as seen:
        compiled = torch.compile(model, backend="eager")
        for _ in range(2):
            check_gradients(model, compiled)
    assert called(seen) == {"head._orig_mod"}
    assert seen.read()["head._orig_mod"].backward.timed == 2


def test_a_watch_that_saw_nothing_says_what_to_watch() -> None:
    model = net()
    with gpuprof.watch(model) as seen:
        torch.compile(model, backend="eager")(torch.ones(2, 4))
    assert "of a model that torch.compile compiled, watch what it returned" in str(seen)
