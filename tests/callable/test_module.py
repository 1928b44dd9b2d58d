"""A graphed module is a module: beside the original, on the CPU with a tape for a graph."""

from __future__ import annotations

import copy
import io
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import gpuprof
from tests.support.processes import check_python

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("tapes")]
nn = torch.nn


class Net(nn.Module):  # type: ignore[misc, name-defined]
    """With what a module may have: a buffer, a module with a mode, names of the callable's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("scale", torch.ones(()))
        self.factor = 2.0
        self.name = "a net"

    def forward(self, values: Any) -> Any:
        return self.norm(self.layer(values)) * self.scale * self.factor

    def reset(self) -> str:
        return "the net's own"

    def width(self) -> int:
        return int(self.layer.in_features)


def batch(step: int = 0) -> Any:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step))


def make(module: Any = None, **options: Any) -> Any:
    return gpuprof.make_graphed_callable(module or Net(), (batch(),), **options)


def assert_same_calls(fast: Any, eager: Any) -> None:
    for step in range(3):
        assert torch.equal(fast(batch(step)), eager(batch(step)))


def assert_same_state(mine: Any, theirs: Any) -> None:
    one, other = mine.state_dict(), theirs.state_dict()
    assert list(one) == list(other)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_graphed_callable_of_a_module_is_a_module_and_that_of_a_function_is_not() -> None:
    fast = make()
    assert isinstance(fast, nn.Module)
    assert isinstance(fast, gpuprof.GraphedCallable)
    assert repr(fast).startswith("<gpuprof.GraphedCallable 'Net': 1 graph")
    of_method = make(Net().forward)
    assert isinstance(of_method, gpuprof.GraphedCallable)
    assert not isinstance(of_method, nn.Module)


def test_of_several_functions_those_that_are_modules_give_modules() -> None:
    one, two = gpuprof.make_graphed_callable((nn.Linear(4, 4), torch.tanh), ((batch(),),) * 2)
    assert isinstance(one, nn.Module)
    assert not isinstance(two, nn.Module)


@pytest.mark.parametrize(
    "name",
    [
        *("parameters", "named_parameters", "buffers", "named_buffers"),
        *("modules", "named_modules", "children", "named_children"),
    ],
)
def test_what_is_in_the_original_is_in_the_result(name: str) -> None:
    def found(of: Any) -> list[Any]:
        each = [one[-1] if isinstance(one, tuple) else one for one in getattr(of, name)()]
        return list(map(id, each))

    fast = make()
    assert found(fast) == found(fast.eager)


def test_state_is_saved_and_loaded_by_the_keys_of_the_original() -> None:
    net = Net()
    fast = make(net)
    saved = {name: value.clone() for name, value in net.state_dict().items()}
    assert list(fast.state_dict()) == list(saved)
    with torch.no_grad():
        net.layer.weight.add_(1)
    assert str(fast.load_state_dict(saved)) == "<All keys matched successfully>"
    assert torch.equal(net.layer.weight, saved["layer.weight"])
    file = io.BytesIO()
    torch.save(fast.state_dict(), file)
    file.seek(0)
    other = Net()
    other.load_state_dict(torch.load(file))
    assert_same_state(fast, other)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.eval(),
        lambda model: model.eval().train(),
        lambda model: model.requires_grad_(False),
        lambda model: model.apply(lambda each: each.train(False)),
        lambda model: model.to(torch.float32).eval(),
        lambda model: model.zero_grad(),
    ],
)
def test_a_method_of_modules_changes_the_original_and_returns_the_result(change: Any) -> None:
    net = Net()
    eager = copy.deepcopy(net)
    fast = make(net)
    found = change(fast)
    assert found is fast or found is None
    change(eager)
    assert [each.training for each in fast.modules()] == [e.training for e in eager.modules()]
    assert fast.training == eager.training
    assert_same_calls(fast, eager)
    assert_same_state(fast, eager)


def test_other_dtypes_get_graphs_of_their_own() -> None:
    net = Net()
    eager = copy.deepcopy(net)
    fast = make(net)
    assert fast.double() is fast
    assert net.layer.weight.dtype == torch.float64
    values = batch().double()
    assert torch.equal(fast(values), eager.double()(values))
    assert fast.half() is fast
    assert net.scale.dtype == torch.float16


def test_attributes_and_methods_are_those_of_the_original() -> None:
    net = Net()
    eager = copy.deepcopy(net)
    fast = make(net)
    assert fast.width() == 4
    assert fast.layer is net.layer
    assert fast.factor == 2.0
    assert fast.get_submodule("layer") is net.layer
    fast.factor = eager.factor = 3.0
    assert net.factor == 3.0
    fast.more = nn.Linear(2, 2)
    assert net.more is fast.more
    assert "more.weight" in fast.state_dict()
    del fast.more
    assert not hasattr(net, "more")
    assert {"width", "layer", "stats"} <= {*dir(fast)}
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        _ = fast.nothing
    assert_same_calls(fast, eager)


def test_where_names_clash_the_callable_has_its_own() -> None:
    fast = make()
    assert fast.name == "Net"
    with pytest.raises(AttributeError):
        fast.name = "another"
    assert fast.eager.name == "a net"
    assert len(fast.graphs) == 1
    assert fast.graph.num_replays >= 1
    assert fast.reset() is None
    assert fast.eager.reset() == "the net's own"
    assert fast.stats().captures == 1


def test_a_container_is_one_still() -> None:
    layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    fast = make(layers)
    assert len(fast) == 2
    assert fast[0] is layers[0]
    assert list(fast) == list(layers)
    fast[1] = nn.Tanh()
    assert_same_calls(fast, layers)
    assert bool(make()) is True


def test_it_can_be_a_part_of_other_modules() -> None:
    net = Net()
    eager = nn.Sequential(copy.deepcopy(net), nn.ReLU())
    outer = nn.Sequential(make(net), nn.ReLU())
    assert [name for name, _ in outer.named_parameters()] == [
        name for name, _ in eager.named_parameters()
    ]
    for each in (outer, eager):
        each.train(False)
        each.to(torch.float32)
    assert net.training is False
    assert_same_state(outer, eager)
    other = nn.Sequential(Net(), nn.ReLU())
    with torch.no_grad():
        other[0].layer.weight.mul_(2)
    for each in (outer, eager):
        assert not each.load_state_dict(other.state_dict()).missing_keys
        assert not each.load_state_dict(other.state_dict(), assign=True).missing_keys
    assert_same_calls(outer, eager)


def test_an_outer_module_with_it_can_be_graphed() -> None:
    net = Net()
    eager = nn.Sequential(copy.deepcopy(net), nn.ReLU())
    outer = make(nn.Sequential(make(net), nn.ReLU()))
    assert_same_calls(outer, eager)
    for each in (net, eager[0]):
        each.factor = 3.0
    assert_same_calls(outer, eager)
    again = make(make(net))
    assert_same_calls(again, eager[0])


def test_hooks_of_the_result_run_around_each_call() -> None:
    fast = make()
    seen: list[Any] = []

    def before(module: Any, given: Any) -> Any:
        seen.append(module)
        return (given[0] + 1,)

    def after(module: Any, _: Any, result: Any) -> Any:
        seen.append(module)
        return result * 2

    handles = [fast.register_forward_pre_hook(before), fast.register_forward_hook(after)]
    eager = copy.deepcopy(fast.eager)
    assert torch.equal(fast(batch()), eager(batch() + 1) * 2)
    assert seen == [fast, fast]
    for handle in handles:
        handle.remove()
    assert_same_calls(fast, eager)
    assert seen == [fast, fast]
    assert fast.stats().captures == 1


def test_hooks_of_the_backward_pass_run_and_gradients_are_those_of_the_original() -> None:
    net = Net()
    eager = copy.deepcopy(net)
    fast = make(net)
    seen: list[Any] = []
    fast.register_full_backward_pre_hook(lambda module, _: seen.append(module))
    fast.register_full_backward_hook(lambda module, *_: seen.append(module))
    for run in (fast, eager):
        run(batch().requires_grad_()).square().sum().backward()
    assert seen == [fast, fast]
    for mine, theirs in zip(fast.parameters(), eager.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)


def test_a_call_without_hooks_does_not_pass_through_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = make(), make()
    other.register_forward_hook(lambda *_: None)
    monkeypatch.setattr(nn.Module, "_call_impl", lambda *_: 1 / 0)
    one(batch())
    with pytest.raises(ZeroDivisionError):
        other(batch())


def test_hooks_of_one_callable_are_not_those_of_another() -> None:
    one, other = make(), make()
    one.register_forward_hook(lambda *_: 1 / 0)
    other(batch())
    one.eager(batch())
    with pytest.raises(ZeroDivisionError):
        one(batch())


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setitem(os.environ, name, str(value))
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("processes")
def test_data_parallel_takes_it_as_it_is() -> None:
    net = Net()
    parallel = nn.parallel.DistributedDataParallel
    eager, fast = parallel(copy.deepcopy(net)), parallel(make(net))
    assert list(fast.state_dict()) == list(eager.state_dict())
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (fast, eager)]
    for step in range(3):
        for run, optimizer in zip((fast, eager), optimizers, strict=True):
            optimizer.zero_grad()
            run(batch(step)).square().sum().backward()
            optimizer.step()
        assert_same_state(fast, eager)
    assert fast.module.stats().replays >= 3


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_it_cannot_be_copied_or_pickled(copied: Any) -> None:
    fast = make()
    for each in (fast, nn.Sequential(fast)):
        if each is not fast and copied is copy.copy:
            continue
        with pytest.raises(TypeError, match=r"cannot be pickled or copied.*\.eager"):
            copied(each)


def test_torch_is_not_imported_for_a_function() -> None:
    check_python(
        """
        import sys, warnings
        import gpuprof
        warnings.simplefilter("ignore")
        gpuprof.make_graphed_callable(str, on_capture_error="eager")
        assert "torch" not in sys.modules
        """
    )
