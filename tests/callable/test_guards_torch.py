"""What is guarded of torch's modules and tensors."""

from __future__ import annotations

import copy
import gc
import re
import weakref
from typing import Any

import pytest

import gpuprof._core as _core
from gpuprof._callable.guards import MadeStateError, ModuleGuards
from gpuprof._callable.observe import Observation
from gpuprof._frameworks.torch_modules import find_modules
from tests.support.ids import short

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
nn = torch.nn

MOVED = "its memory moved (p.data = ..., .to())"
REPLACED = "replaced by another object"


class Net(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.1)
        self.layers = nn.Sequential(nn.Linear(3, 2, bias=False))
        self.register_buffer("mask", None)
        self.scale = 2
        self.table = torch.ones(2)
        self.scaling = {"default": 2.0}
        self.names = ["x", "y", "x"]
        self.merged = {1, "x"}
        self.drop.held = [1]
        self.size = (2, 3)

    def forward(self, x: Any) -> Any:
        return self.layers(self.drop(self.norm(self.fc(x)))) * self.scale


@pytest.fixture
def net() -> Any:
    return Net()


def holds(guards: ModuleGuards) -> bool:
    """Return whether guards hold, of which C++ and Python must say the same."""
    changed = guards.moved()
    assert guards.core.hold() is (not changed), changed
    return not changed


def test_a_module_is_as_it_was_after_it_was_used(net: Any) -> None:
    guards = ModuleGuards([net]).finish()
    net(torch.randn(4, 2)).sum().backward()
    net.eval()
    net.train()
    net.load_state_dict(copy.deepcopy(net.state_dict()))
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    net.zero_grad()
    net.fc.weight.requires_grad_(False)
    net.table = torch.zeros(2)  # frozen
    net.unused = 5
    net.fc.register_forward_hook(print).remove()
    assert holds(guards)
    assert guards.modules == [net]


def resize(tensor: Any) -> None:
    tensor.untyped_storage().resize_(0)


def without_gradient(tensor: Any) -> Any:
    return tensor.requires_grad_(False)


def parametrized(net: Any) -> None:
    nn.utils.parametrizations.weight_norm(net.fc)


WEIGHT = "parameter 'fc.weight'"
CHANGES: dict[str, tuple[Any, str]] = {
    "data": (lambda n: setattr(n.fc.weight, "data", torch.ones(3, 2)), f"{WEIGHT}: {MOVED}"),
    "shape": (
        lambda n: setattr(n.fc.weight, "data", n.fc.weight.data.view(2, 3)),
        f"{WEIGHT}: its shape is (2, 3), captured (3, 2)",
    ),
    "type": (
        lambda n: setattr(without_gradient(n.fc.weight), "data", n.fc.weight.data.view(torch.int)),
        f"{WEIGHT}: its dtype is int32, captured float32",
    ),
    "t_": (
        lambda n: without_gradient(n.fc.weight).t_(),
        f"{WEIGHT}: its shape is (2, 3), captured (3, 2)",
    ),
    "strides": (
        lambda n: n.norm.running_mean.as_strided_((3,), (0,)),
        "buffer 'norm.running_mean': its strides are (0,), captured (1,)",
    ),
    "set_": (lambda n: without_gradient(n.fc.weight).set_(torch.ones(3, 2)), f"{WEIGHT}: {MOVED}"),
    "resize_": (lambda n: resize(n.fc.weight), f"{WEIGHT}: {MOVED}"),
    "to": (lambda n: n.double(), f"{WEIGHT}: {MOVED}"),
    "to of a buffer": (lambda n: n.double(), f"buffer 'norm.running_mean': {REPLACED}"),
    "assign": (
        lambda n: n.load_state_dict(copy.deepcopy(n.state_dict()), assign=True),
        f"{WEIGHT}: {REPLACED}",
    ),
    "swap": (
        lambda n: torch.utils.swap_tensors(n.fc.weight, nn.Parameter(torch.ones(3, 2))),
        f"{WEIGHT}: {MOVED}",
    ),
    "deleted": (lambda n: delattr(n.fc, "weight"), f"{WEIGHT}: removed"),
    "parametrized": (parametrized, f"{WEIGHT}: removed"),
    "registered": (
        lambda n: n.register_parameter("more", nn.Parameter(torch.ones(2))),
        "parameter 'more': added",
    ),
    "buffer": (lambda n: setattr(n, "mask", torch.ones(2)), f"buffer 'mask': {REPLACED}"),
    "append": (lambda n: n.layers.append(nn.ReLU()), "submodule 'layers.1': added"),
    "submodule": (lambda n: setattr(n, "drop", nn.ReLU()), f"submodule 'drop': {REPLACED}"),
    "eval": (lambda n: n.drop.eval(), "training flag of 'drop': False, captured with True"),
    "eval of all": (lambda n: n.eval(), "training flag: False, captured with True"),
    "number": (lambda n: setattr(n.drop, "p", 0.5), "attribute 'drop.p': 0.5, captured with 0.1"),
    "own number": (lambda n: setattr(n, "scale", 3), "attribute 'scale': 3, captured with 2"),
    "value in a dict": (
        lambda n: n.scaling.update(default=4.0),
        "entry 'scaling.default': 4.0, captured with 2.0",
    ),
    "key of a dict": (lambda n: n.scaling.update(a=None), "entry 'scaling.a': added"),
    "item of a list": (lambda n: n.names.pop(), "entry 'names.2': removed"),
    "order of a list": (lambda n: n.names.sort(), "entry 'names.1': 'x', captured with 'y'"),
    "item of a set": (lambda n: n.merged.add(3), "entry 'merged.3': added"),
    "equal item of a set": (
        lambda n: (n.merged.remove(1), n.merged.add(True)),
        "entry 'merged.1': True, captured with 1",
    ),
    "list of a part": (lambda n: n.drop.held.append(2), "entry 'drop.held.1': added"),
    "another list": (lambda n: setattr(n, "names", [*n.names]), f"attribute 'names': {REPLACED}"),
    "tuple": (lambda n: setattr(n, "size", (2, 4)), f"attribute 'size': {REPLACED}"),
    "all attributes": (
        lambda n: setattr(n.fc, "__dict__", dict(vars(n.fc))),
        f"attribute 'fc.__dict__': {REPLACED}",
    ),
    "forward": (lambda n: setattr(n.fc, "forward", print), "attribute 'fc.forward': added"),
    "compile": (lambda n: n.fc.compile(), "attribute 'fc._compiled_call_impl': added"),
    "hook": (lambda n: n.fc.register_forward_hook(print), "hook added to 'fc'"),
    "own hook": (lambda n: n.register_forward_pre_hook(print, with_kwargs=True), "hook added"),
    "backward hook": (lambda n: n.fc.register_full_backward_hook(print), "hook added to 'fc'"),
    "dict": (
        lambda n: setattr(n, "_buffers", dict(n._buffers)),
        f"attribute '_buffers': {REPLACED}",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_everything_of_a_module_that_changes_is_found(net: Any, change: str) -> None:
    guards = ModuleGuards([net]).finish()
    assert holds(guards)
    make, text = CHANGES[change]
    make(net)
    assert not holds(guards)
    assert text in guards.moved()


@pytest.mark.parametrize("held", [{"a": [1]}, [nn.Module()], {(1, 2)}, [*range(2000)]], ids=short)
def test_containers_of_other_objects_and_long_ones_are_frozen(net: Any, held: Any) -> None:
    net.held = held
    guards = ModuleGuards([net]).finish()
    held.clear()
    net.held = None
    assert holds(guards)


def test_a_buffer_that_comes_and_goes_is_found(net: Any) -> None:
    guards = ModuleGuards([net]).finish()
    net.mask = torch.ones(2)
    assert not holds(guards)
    with_mask = ModuleGuards([net]).finish()
    net.mask = None
    assert holds(guards)
    assert with_mask.moved() == [f"buffer 'mask': {REPLACED}"]
    assert not holds(with_mask)


def test_hooks_that_come_first_are_in_the_order_that_is_guarded(net: Any) -> None:
    net.fc.register_forward_hook(print)
    net.fc.register_forward_hook(repr, prepend=True)
    guards = ModuleGuards([net]).finish()
    assert holds(guards)
    net.fc.register_forward_hook(repr, prepend=True)
    assert not holds(guards)
    assert guards.moved() == ["hook added to 'fc'"]


def test_a_hook_that_goes_is_found(net: Any) -> None:
    handle = net.fc.register_forward_hook(print)
    guards = ModuleGuards([net]).finish()
    assert holds(guards)
    handle.remove()
    assert not holds(guards)
    assert guards.moved() == ["hook removed from 'fc'"]


@pytest.mark.parametrize("tensor", [torch.ones(2, 3), torch.ones(2, 3, requires_grad=True)])
def test_tensors_are_told_of_without_the_protocol_too(tensor: Any) -> None:
    tensor = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    guards = _core._Guards((), ((tensor, None),), 0)
    assert guards.hold()
    tensor.data = tensor.data.view(3, 2)
    assert not guards.hold()
    tensor.data = tensor.data.view(2, 3)
    assert guards.hold()
    tensor.untyped_storage().resize_(0)
    assert not guards.hold()


@pytest.mark.parametrize("rank", range(8))
def test_tensors_of_any_rank_are_told_of(rank: int) -> None:
    tensor = torch.ones((2,) * rank)
    model = nn.Module()
    model.register_buffer("x", tensor)
    guards = ModuleGuards([model]).finish()
    assert holds(guards)
    before = tensor.data
    for other in (before[None], before.view(torch.int32), before.clone(), before[..., None]):
        tensor.data = other
        assert not holds(guards)
        tensor.data = before
        assert holds(guards)
    torch.utils.swap_tensors(tensor, torch.ones((2,) * rank))
    assert not holds(guards)


def test_a_sweep_finds_a_tensor_that_moved_in_a_few_calls() -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(10)))
    guards = ModuleGuards([model], check="sweep").finish()
    model[7].weight.data = torch.zeros(2, 2)
    checks = [guards.core.hold() for _ in range(20)]
    assert checks[0]
    assert not all(checks)
    model[7].eval()
    assert not guards.core.hold()  # flags are looked at in each


def test_what_the_run_changed_itself_is_left_out(net: Any) -> None:
    guards = ModuleGuards([net])
    net.scale = 7
    net.table = torch.zeros(2)
    net.names.append("z")
    net.fc.register_forward_hook(print)
    guards.finish()
    net.scale = 8
    net.names.append("z")
    assert holds(guards)
    net.drop.p = 0.3
    assert not holds(guards)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda n: setattr(n, "mask", torch.ones(2)), "replaces buffer 'mask'"),
        (lambda n: setattr(n.norm, "running_var", torch.ones(3)), "replaces buffer 'norm.running"),
        (lambda n: setattr(n.fc, "bias", None), "replaces parameter 'fc.bias'"),
        (lambda n: setattr(n.fc.bias, "data", torch.ones(3)), "moves parameter 'fc.bias'"),
        (lambda n: setattr(n, "drop", nn.ReLU()), "replaces submodule 'drop'"),
        (lambda n: n.layers.append(nn.ReLU()), r"changes submodule 'layers.1' \(added\)"),
        (lambda n: setattr(n, "__dict__", dict(vars(n))), "replaces attribute '__dict__'"),
    ],
)
def test_a_run_that_replaces_state_is_refused(net: Any, change: Any, text: str) -> None:
    guards = ModuleGuards([net])
    change(net)
    with pytest.raises(TypeError, match=f"the function {text}"):
        guards.finish()


def test_the_old_memory_of_a_parameter_stays(net: Any) -> None:
    storage = weakref.ref(net.fc.weight.untyped_storage())
    before = net.fc.weight.data_ptr()
    guards = ModuleGuards([net]).finish()
    net.fc.weight.data = torch.zeros(3, 2)
    gc.collect()
    kept = storage()
    assert kept is not None
    assert kept.data_ptr() == before
    del kept, guards
    assert storage() is None


def test_modules_are_neither_kept_alive_nor_watched_after_release(net: Any) -> None:
    guards = ModuleGuards([net]).finish()
    core, own, fc = guards.core, vars(net), weakref.ref(net.fc)
    del guards, net
    gc.collect()
    assert core.hold()
    own["training"] = False
    assert not core.hold()
    own.clear()
    del core, own
    gc.collect()
    assert fc() is None


def test_tensors_have_names(net: Any) -> None:
    cache, seen = torch.ones(2), Observation()
    with seen.of_block():
        cache + 1
    guards = ModuleGuards([net]).finish(seen)
    assert guards.name_of(net.fc.weight) == WEIGHT
    assert guards.name_of(net.norm.running_var) == "buffer 'norm.running_var'"
    assert guards.name_of(cache) == "a tensor of shape (2,)"
    assert guards.name_of(torch.ones(2, 3)) == "tensor of shape (2, 3)"
    cache.resize_(4000)
    assert guards.moved() == [f"a tensor of shape (2,): {MOVED}"]


def test_several_modules_are_named_by_their_classes(net: Any) -> None:
    other = nn.Linear(2, 2)
    other.weight = nn.Parameter(torch.ones(2, 2))
    guards = ModuleGuards([net, other]).finish()
    other.weight.data = torch.ones(2, 2)
    net.eval()
    assert f"parameter 'Linear.weight': {MOVED}" in guards.moved()
    assert "training flag of 'Net': False, captured with True" in guards.moved()


def test_shared_parameters_are_guarded_in_each_place() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    other.weight = one.weight
    guards = ModuleGuards([nn.Sequential(one, other)]).finish()
    other.weight = nn.Parameter(torch.zeros(2, 2))
    assert not holds(guards)
    assert guards.moved() == [f"parameter '1.weight': {REPLACED}"]


@pytest.mark.parametrize("inside", [True, False])
def test_what_is_compiled_is_guarded_by_the_module_inside(net: Any, inside: bool) -> None:
    compiled = torch.compile(net, backend="eager")
    model = nn.Sequential(compiled) if inside else compiled
    (found,) = find_modules(model)
    guards = ModuleGuards([found])
    model(torch.ones(4, 2))
    guards.finish()
    model(torch.ones(5, 2))
    assert holds(guards)
    net.fc.weight.data = torch.zeros(3, 2)
    assert not holds(guards)
    assert guards.moved() == [f"parameter '{'0.' if inside else ''}fc.weight': {MOVED}"]


def test_functions_with_decorators_of_torch_hold_modules(net: Any) -> None:
    def run(x: Any) -> Any:
        return net(x)

    for function in (torch.no_grad()(run), torch.compile(run, backend="eager"), torch.compile(net)):
        assert find_modules(function) == [net]


def test_a_scripted_module_is_guarded_by_its_tensors() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    guards = ModuleGuards([scripted]).finish()
    scripted(torch.ones(2, 2))
    assert holds(guards)
    scripted.double()
    assert not holds(guards)
    assert guards.moved() == [f"parameter '0.weight': {MOVED}", f"parameter '0.bias': {MOVED}"]


def test_tensors_without_memory_are_known_by_identity() -> None:
    model = nn.ModuleList([nn.Linear(2, 2, device="meta"), nn.LazyLinear(2), nn.Module()])
    model[2].register_buffer("sparse", torch.eye(2).to_sparse())
    guards = ModuleGuards([model]).finish()
    assert holds(guards)
    model[0].weight = nn.Parameter(torch.zeros(2, 2))
    model[2].sparse = torch.eye(2).to_sparse()
    assert not holds(guards)
    assert guards.moved() == [
        f"parameter '0.weight': {REPLACED}",
        f"buffer '2.sparse': {REPLACED}",
    ]


# Optimizers.


class Training:
    """A model whose optimizer has made its state, and the guards of one more step."""

    def __init__(self, make: Any) -> None:
        self.model = nn.Linear(2, 3)
        self.optimizer = make(self.model.parameters())
        self.step()
        seen = Observation()
        guards = ModuleGuards([])
        with seen.of_block():
            self.step()
        self.guards = guards.finish(seen)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(2)).sum().backward()
        self.optimizer.step()


def momentum(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=torch.tensor(0.1), foreach=False, capturable=False)


OPTIMIZERS = pytest.mark.parametrize("make", [momentum, adam])


@OPTIMIZERS
def test_further_steps_of_an_optimizer_change_nothing(make: Any) -> None:
    training = Training(make)
    assert holds(training.guards)
    state = next(iter(training.optimizer.state.values()))
    next(each for each in state.values() if each.ndim).mul_(2)
    training.optimizer.state["own"] = {}
    assert holds(training.guards)


def reload(optimizer: Any) -> None:
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def first_moment(optimizer: Any) -> tuple[Any, str]:
    state = next(iter(optimizer.state.values()))
    return state, next(name for name, each in state.items() if torch.is_tensor(each) and each.ndim)


def replace_moment(optimizer: Any) -> None:
    state, name = first_moment(optimizer)
    state[name] = state[name].clone()


def move_moment(optimizer: Any) -> None:
    state, name = first_moment(optimizer)
    state[name].data = state[name].clone()


def add_group(optimizer: Any) -> None:
    optimizer.add_param_group({"params": [torch.ones(1, requires_grad=True)]})


OF_OPTIMIZERS: dict[str, tuple[Any, str]] = {
    "load_state_dict": (reload, r"attribute '(SGD|AdamW)\.state': replaced by another object"),
    "clear": (
        lambda optimizer: optimizer.state.clear(),
        r"attribute '\w+\.state\.a parameter of shape \(3, 2\)': removed",
    ),
    "replaced": (replace_moment, r"attribute '\w+\.state\[0\]\.\w+': replaced by another object"),
    "moved": (move_moment, r"a tensor of shape \(3, 2\): its memory moved"),
    "group": (add_group, r"entry '\w+\.param_groups\.1': added"),
    "learning rate": (
        lambda optimizer: optimizer.param_groups[0].update(lr=torch.tensor(0.2)),
        r"attribute '\w+\.param_groups\[0\]\.lr': replaced by another object",
    ),
}


@OPTIMIZERS
@pytest.mark.parametrize("change", OF_OPTIMIZERS)
def test_state_and_options_of_an_optimizer_that_are_replaced_are_found(
    make: Any, change: str
) -> None:
    training = Training(make)
    edit, text = OF_OPTIMIZERS[change]
    edit(training.optimizer)
    assert not holds(training.guards)
    assert any(re.match(text, each) for each in training.guards.moved()), training.guards.moved()


@pytest.mark.parametrize("make", [momentum, torch.optim.RMSprop])
def test_state_that_an_optimizer_makes_in_a_capture_is_dropped(make: Any) -> None:
    training = Training(make)
    training.optimizer.state.clear()
    seen = Observation()
    with seen.of_block():
        training.step()
    with pytest.raises(MadeStateError, match=r"the state of its (SGD|RMSprop) in the"):
        ModuleGuards([]).finish(seen)
    assert not any(training.optimizer.state.values())
    training.step()  # makes it
    seen = Observation()
    with seen.of_block():
        training.step()
    assert holds(ModuleGuards([]).finish(seen))
