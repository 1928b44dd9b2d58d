"""Results, gradients and random numbers are equal with and without a watch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import gpuprof
from tests.support.threads import in_threads
from tests.support.watched import MODELS, Branches, Residual, nn, torch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:::torch")]


def results(name: str, *, depth: int | None, steps: int = 3) -> list[Any]:
    """Train a model for some steps; return losses, gradients, buffers and a random number."""
    make, shape = MODELS[name]
    torch.manual_seed(7)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    watches = [] if depth is None else [gpuprof.watch(model, depth) for _ in range(2)]
    for _ in range(steps):
        x = torch.randn(shape, requires_grad=True)
        loss = model(x).square().sum()
        optimizer.zero_grad()
        loss.backward()
        found += [loss.detach(), x.grad]
        found += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    found += [each.detach() for each in model.state_dict().values()]
    found.append(torch.rand(1))
    for seen in watches:
        assert "stopped" not in str(seen)
        seen.close()
    return found


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_a_watched_model_trains_as_an_unwatched_one(name: str, depth: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a watch that fails warns of it
        found = results(name, depth=depth)
    expected = results(name, depth=None)
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("name", MODELS)
def test_every_module_whose_gradient_is_needed_has_a_backward_pass(name: str) -> None:
    make, shape = MODELS[name]
    model = make()
    with gpuprof.watch(model, 4) as seen:
        for _ in range(2):
            model(torch.randn(shape, requires_grad=True)).square().sum().backward()
    rows = seen.read()
    without = {
        path
        for path, row in rows.items()
        if row.forward.calls and not row.backward.calls and not row.also
    }
    # An in-place operation on its result takes the view that Flatten made out of the graph.
    expected = {"branches": {"unused", "frozen", "same"}, "views in place": {"0.flat"}}
    assert without == expected.get(name, set())
    passes = 6 if name == "recursive" else 2
    assert rows[""].backward.calls == rows[""].backward.timed == passes
    for row in rows.values():
        assert row.backward.pending == row.forward.pending == 0
        assert row.share is None or 0 <= row.share <= 1


def test_second_backward_passes_and_chosen_inputs_are_counted() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    x = torch.randn(2, 4, requires_grad=True)
    with gpuprof.watch(model) as seen:
        y = model(x).sum()
        y.backward(retain_graph=True)
        y.backward(retain_graph=True)
        (only,) = torch.autograd.grad(y, model[2].weight)  # the first layers do not run
    rows = seen.read()
    assert only is not None
    assert rows[""].forward.calls == 1
    assert (rows[""].backward.calls, rows["2"].backward.calls) == (3, 3)
    assert (rows["0"].backward.calls, rows["1"].backward.calls) == (2, 2)


def test_a_gradient_of_a_gradient_is_right() -> None:
    def second(watched: bool) -> Any:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        seen = gpuprof.watch(model) if watched else None
        x = torch.randn(2, 4, requires_grad=True)
        (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        first.square().sum().backward()
        assert seen is None or "stopped" not in str(seen)
        return model[0].weight.grad

    assert torch.equal(second(True), second(False))


def test_hooks_of_the_user_see_what_they_see_without_a_watch() -> None:
    def seen_by_hooks(watched: bool) -> list[Any]:
        torch.manual_seed(3)
        model, found = Residual(), []
        model.norm.register_full_backward_hook(lambda _m, i, o: found.extend([*i, *o]))
        model.down.register_forward_hook(lambda _m, _i, o: o * 2)
        model.down.register_forward_pre_hook(lambda _m, i: (i[0] + 1,))
        seen = gpuprof.watch(model) if watched else None
        y = model(torch.randn(2, 3, 4, requires_grad=True))
        y.register_hook(lambda g: g * 3)
        y.sum().backward()
        del seen
        return [*found, y]

    found, expected = seen_by_hooks(True), seen_by_hooks(False)
    assert len(found) == len(expected) == 3
    assert all(map(torch.equal, found, expected))


def test_threads_may_share_a_watched_model() -> None:
    model = Branches()

    def train() -> None:
        for _ in range(20):
            model(torch.randn(2, 3, 4)).sum().backward()

    with gpuprof.watch(model) as seen:
        in_threads(*[train] * 3)
    rows = seen.read()
    assert rows[""].forward.timed == rows[""].backward.timed == 60
    assert rows["rnn"].backward.timed == rows["used"].forward.timed == 60


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_without_gradients_there_is_no_backward_pass(mode: str) -> None:
    model = Residual()
    with gpuprof.watch(model) as seen, getattr(torch, mode)():
        model(torch.randn(2, 3, 4))
    rows = seen.read()
    assert all(row.forward.timed == 1 and not row.backward.calls for row in rows.values())
    assert "backward" in repr(rows)


def test_gradients_under_torch_func_are_right() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    values = dict(model.named_parameters())
    x = torch.randn(2, 4)

    def loss(parameters: Any) -> Any:
        return torch.func.functional_call(model, parameters, (x,)).sum()

    expected = torch.func.grad(loss)(values)
    with gpuprof.watch(model) as seen:
        found = torch.func.grad(loss)(values)
        torch.func.vmap(model)(x)
    assert all(torch.equal(found[name], expected[name]) for name in values)
    assert "stopped" not in str(seen)


class Two(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.first(x), self.second(x)


def test_a_pass_whose_last_node_is_not_needed_ends_with_autograd() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Two())
    with gpuprof.watch(model) as seen:
        for _ in range(3):
            model(torch.randn(2, 4))[1].sum().backward()
    rows = seen.read()
    assert rows["1.first"].backward.calls == 0
    assert rows["1.second"].backward.timed == rows["0"].backward.timed == 3
    assert rows["1"].backward.timed == rows[""].backward.timed == 3
    # It ends where the next one begins, and not with the model.
    assert rows["1"].backward.total_ms < rows[""].backward.total_ms
    (other,) = torch.autograd.grad(model(torch.randn(2, 4))[1].sum(), model[1].second.weight)
    assert other is not None


def test_a_forward_pass_that_takes_gradients_is_right() -> None:
    class Force(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.energy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, x: Any) -> Any:
            x = x.detach().requires_grad_()
            (force,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
            return force

    def run(watched: bool) -> list[Any]:
        torch.manual_seed(2)
        model = Force()
        seen = gpuprof.watch(model) if watched else None
        for _ in range(2):
            model(torch.randn(3, 4)).square().sum().backward()
        if seen is not None:
            rows = seen.read()
            assert "stopped" not in str(rows)
            assert rows["energy"].forward.calls == 2
            assert rows["energy"].backward.calls >= 2
            assert rows[""].recomputed.calls == 0
        return [each.grad for each in model.parameters() if each.grad is not None]

    found, expected = run(True), run(False)
    assert len(found) == len(expected) == 3
    assert all(map(torch.equal, found, expected))
