"""What a captured function reads besides its arguments: torch's modules and tensors."""

from __future__ import annotations

import copy
import functools
import gc
import weakref
from typing import Any

import pytest

from gpuprof._callable import guards
from gpuprof._callable.guard_finder import find_guards
from gpuprof._callable.guards import ReplacementHook

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
nn = torch.nn

MOVED = "its memory moved (p.data = ..., .to())"
REPLACED = "replaced by another object"
GAIN = 1.0


class Net(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.drop = nn.Dropout(0.1)
        self.layers = nn.ModuleList([nn.Linear(2, 2, bias=False)])
        self.heads = [nn.Linear(2, 2)]
        self.tables = {"x": torch.ones(2)}
        self.scale = 2
        self.unused = 1

    def forward(self, x: Any) -> Any:
        return self.helper(self.layers[0](self.drop(self.norm(self.fc(x)))))

    def helper(self, x: Any) -> Any:
        return self.heads[0](x) * self.scale * GAIN + self.tables["x"]


@pytest.fixture
def net() -> Any:
    return Net()


def test_a_module_is_as_it_was_after_it_ran(net: Any) -> None:
    found = find_guards(net)
    net(torch.randn(4, 2))
    net.eval()
    net.train()
    net.load_state_dict(copy.deepcopy(net.state_dict()))
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    net.zero_grad()
    net.unused = 5
    assert found.moved() == []
    assert found.left_out == 0
    assert found.modules[0] is net


def test_everything_of_a_module_that_changes_is_named(net: Any, monkeypatch: Any) -> None:
    found = find_guards(net)
    net.fc.weight.data = torch.zeros(2, 2)
    net.fc.bias = nn.Parameter(torch.zeros(2))
    net.norm.running_mean = torch.zeros(2)
    net.norm.eps = 0.5
    net.drop.eval()
    net.drop.p = 0.5
    net.layers[0] = nn.Linear(2, 2, bias=False)
    net.heads[0].bias.data = torch.zeros(2)
    net.tables["x"] = torch.ones(2)
    net.scale = 3
    monkeypatch.setitem(globals(), "GAIN", 2.0)
    assert set(found.moved()) == {
        f"parameter 'fc.weight': {MOVED}",
        f"parameter 'fc.bias': {REPLACED}",
        f"buffer 'norm.running_mean': {REPLACED}",
        "attribute 'norm.eps': 0.5, captured with 1e-05",
        "training flag of 'drop': False, captured with True",
        "attribute 'drop.p': 0.5, captured with 0.1",
        f"submodule 'layers.0': {REPLACED}",
        f"parameter 'heads[0].bias': {MOVED}",
        f"attribute 'tables['x']': {REPLACED}",
        "attribute 'scale': 3, captured with 2",
        "global 'GAIN': 2.0, captured with 1.0",
    }


@pytest.mark.parametrize(
    "move",
    [
        lambda net: net.double(),
        lambda net: net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True),
        lambda net: torch.utils.swap_tensors(net.fc.weight, nn.Parameter(torch.ones(2, 2))),
        lambda net: net.fc.weight.untyped_storage().resize_(0),
        lambda net: nn.utils.parametrizations.weight_norm(net.fc),
        lambda net: delattr(net.fc, "weight"),
    ],
    ids=["double", "assign", "swap_tensors", "resized to nothing", "weight_norm", "deleted"],
)
def test_a_parameter_with_other_memory_is_found(net: Any, move: Any) -> None:
    found = find_guards(net)
    move(net)
    assert any(change.startswith("parameter 'fc.weight': ") for change in found.moved())


def test_the_old_memory_of_a_parameter_stays(net: Any) -> None:
    weight = net.fc.weight
    before, values = weight.data_ptr(), weight.detach().clone()
    found = find_guards(net)
    weight.data = torch.zeros(2, 2)
    (storage,) = [each for each in found.keep if each.data_ptr() == before]
    kept = torch.empty(0).set_(storage, 0, (2, 2))
    assert torch.equal(kept, values)


def test_the_training_flag_of_the_module_is_looked_at_each_time(net: Any) -> None:
    found = find_guards(net)
    (item,) = found.always
    assert (item.container, item.key, item.expected) == (vars(net), "training", True)
    net.eval()
    assert "training flag: False, captured with True" in found.moved()


def forms(net: Any) -> dict[str, Any]:
    class Engine:
        def __init__(self) -> None:
            self.model = net

        def run(self, x: Any) -> Any:
            return self.model(x)

    engine, models = Engine(), {"a": net}
    return {
        "module": net,
        "method": net.forward,
        "closure": lambda x: net(x) + 1,
        "partial": functools.partial(net),
        "no_grad": torch.no_grad()(lambda x: net(x) + 1),
        "object": engine.run,
        "object in a closure": lambda x: engine.run(x) + 1,
        "dict": lambda x: models["a"](x) + 1,
        "default": lambda x, model=net: model(x) + 1,
        "compiled": torch.compile(net, backend="eager"),
        "compiled function": torch.compile(lambda x: net(x) + 1, backend="eager"),
        "inside of a module": nn.Sequential(net),
        "compiled inside of a module": nn.Sequential(torch.compile(net, backend="eager")),
        "instead of forward": Patched(net),
    }


class Patched(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, net: Any) -> None:
        super().__init__()
        self.forward = lambda x: net(x) + 1


@pytest.mark.parametrize("form", forms(Net()))
def test_a_module_is_found_however_it_is_called(net: Any, form: str) -> None:
    found = find_guards(forms(net)[form])
    assert found.moved() == []
    assert any(net in list(each.modules()) for each in found.modules)
    net.fc.weight.data = torch.zeros(2, 2)
    net.scale = 5
    weight, scale = found.moved() if "weight" in found.moved()[0] else found.moved()[::-1]
    assert weight.endswith(f"fc.weight': {MOVED}")
    assert scale.endswith("scale': 5, captured with 2")
    assert "_orig_mod" not in weight


def test_a_compiled_module_has_the_flags_of_the_one_inside(net: Any) -> None:
    found = find_guards(torch.compile(net, backend="eager"))
    assert found.modules == [net, net.heads[0]]
    assert [item.container for item in found.always] == [vars(net)]


def test_a_scripted_modules_parameters_are_watched() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    found = find_guards(scripted)
    assert found.moved() == []
    scripted.double()
    assert found.moved() == [f"parameter '0.weight': {MOVED}", f"parameter '0.bias': {MOVED}"]


def test_two_modules_of_a_function_have_its_names_for_them() -> None:
    encoder, decoder = nn.Linear(2, 2), nn.Linear(2, 2)
    found = find_guards(lambda x: decoder(encoder(x)))
    assert set(found.modules) == {encoder, decoder}
    assert len(found.always) == 4
    decoder.weight.data = torch.zeros(2, 2)
    encoder.eval()
    assert set(found.moved()) == {
        f"parameter 'decoder.weight': {MOVED}",
        "training flag of 'encoder': False, captured with True",
    }


def test_parameters_without_memory_are_known_by_identity() -> None:
    meta = nn.Linear(2, 2, device="meta")
    lazy = nn.LazyLinear(2)
    found = find_guards(lambda x: (meta(x), lazy(x)))
    assert found.moved() == []
    meta.weight = nn.Parameter(torch.zeros(2, 2))
    lazy(torch.ones(1, 3))
    assert f"parameter 'meta.weight': {REPLACED}" in found.moved()


def test_shared_parameters_are_watched_in_each_place() -> None:
    one, other = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    other.weight = one.weight
    model = nn.Sequential(one, other)
    found = find_guards(model)
    other.weight = nn.Parameter(torch.zeros(2, 2))
    assert found.moved() == [f"parameter '1.weight': {REPLACED}"]


def test_what_is_watched_does_not_keep_the_module_alive(net: Any) -> None:
    found = find_guards(nn.Sequential(nn.Linear(2, 2)))
    found.modules.clear()
    assert found.moved() == []
    model = nn.Linear(2, 2)
    gone = weakref.ref(model)
    listening = ReplacementHook([model], list)
    del model
    gc.collect()
    assert gone() is None
    listening.remove()


def has_hook() -> bool:
    return bool(nn.modules.module._global_parameter_registration_hooks)


@pytest.mark.parametrize(
    "replace",
    [
        lambda net: net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True),
        lambda net: setattr(net.fc, "weight", nn.Parameter(torch.zeros(2, 2))),
        lambda net: (
            net.fc.register_parameter("more", None)
            or setattr(net.fc, "more", nn.Parameter(torch.zeros(1)))
        ),
    ],
    ids=["assign", "assignment", "a new one"],
)
def test_a_replaced_parameter_is_told_at_once(net: Any, replace: Any) -> None:
    told: list[bool] = []
    listening = ReplacementHook([net], lambda: told.append(True))
    before = dict(vars(net.fc))
    replace(net)
    assert told
    assert {name for name in vars(net.fc) if name not in before} == set()
    told.clear()
    Net()
    assert not told
    listening.remove()
    listening.remove()
    replace(net)
    assert not told


def test_one_hook_serves_all_who_listen_and_goes_with_the_last(net: Any) -> None:
    assert not has_hook()
    first, second = [], []
    listening = [
        ReplacementHook([net], lambda: first.append(1)),
        ReplacementHook([net.fc, net.fc], lambda: second.append(1)),
    ]
    assert len(nn.modules.module._global_parameter_registration_hooks) == 1
    net.fc.weight = nn.Parameter(torch.zeros(2, 2))
    assert (len(first), len(second)) == (1, 1)
    listening[0].remove()
    assert has_hook()
    net.fc.weight = nn.Parameter(torch.zeros(2, 2))
    assert (len(first), len(second)) == (1, 2)
    listening[1].remove()
    assert not has_hook()
    assert not guards._by_module


def test_the_hook_goes_with_the_last_module() -> None:
    model = nn.Linear(2, 2)
    listening = ReplacementHook([model], list)
    assert has_hook()
    del model
    gc.collect()
    assert not has_hook()
    listening.remove()


def test_a_module_that_is_listened_to_is_not_changed(net: Any) -> None:
    before = {name: copy.copy(value) for name, value in vars(net).items()}
    listening = ReplacementHook([net], list)
    find_guards(net)
    assert vars(net) == before
    listening.remove()
