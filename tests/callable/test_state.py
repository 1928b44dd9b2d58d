"""What a graphed callable depends on besides its arguments, and what its warm-ups leave behind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from gpuprof._callable import state
from gpuprof._frameworks.torch import fresh_autocast_cache, random_state

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*CUDA is not available:UserWarning"),
]


def double_by_default() -> AbstractContextManager[object]:
    class Block(nullcontext[None]):
        def __enter__(self) -> None:
            torch.set_default_dtype(torch.float64)

        def __exit__(self, *_: object) -> None:
            torch.set_default_dtype(torch.float32)

    return Block()


@pytest.fixture
def autocast(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[object]]:
    """Turn torch's autocast for CUDA on, which torch does not do without a GPU."""

    def make(dtype: Any = torch.bfloat16, cache: bool = True) -> AbstractContextManager[object]:
        class Block(nullcontext[None]):
            def __enter__(self) -> None:
                torch.set_autocast_enabled("cuda", True)
                torch.set_autocast_dtype("cuda", dtype)
                torch.set_autocast_cache_enabled(cache)

            def __exit__(self, *_: object) -> None:
                torch.set_autocast_enabled("cuda", False)
                torch.set_autocast_dtype("cuda", torch.float16)
                torch.set_autocast_cache_enabled(True)

        return Block()

    return make


@pytest.mark.parametrize(
    ("block", "difference"),
    [
        (lambda _: torch.no_grad(), ["grad mode: off, captured on"]),
        (
            lambda _: torch.inference_mode(),
            ["grad mode: off, captured on", "inference mode: on, captured off"],
        ),
        (lambda cast: cast(), ["autocast: torch.bfloat16, captured off"]),
        (
            lambda cast: cast(torch.float16, cache=False),
            [
                "autocast: torch.float16, captured off",
                "autocast's cache of weights: off, captured on",
            ],
        ),
        (
            lambda _: double_by_default(),
            ["default dtype: torch.float64, captured torch.float32"],
        ),
    ],
    ids=["no_grad", "inference_mode", "autocast", "autocast without cache", "default dtype"],
)
def test_a_mode_makes_another_state_and_probes_that_differ(
    autocast: Any, block: Any, difference: list[str]
) -> None:
    plain = state.current()
    probes = state.state_guards()
    assert all(probe() == wanted for probe, wanted in probes)
    with block(autocast):
        other = state.current()
        assert not all(probe() == wanted for probe, wanted in probes)
        inside = state.state_guards()
        assert all(probe() is wanted for probe, wanted in inside)
    assert not all(probe() == wanted for probe, wanted in inside)
    assert other != plain
    assert other.describe_difference(plain) == difference
    assert state.current() == plain
    assert hash(state.current()) == hash(plain)


def test_dtypes_of_autocast_differ(autocast: Any) -> None:
    with autocast(torch.bfloat16):
        one = state.current()
        probes = state.state_guards()
    with autocast(torch.float16):
        other = state.current()
        assert not all(probe() == wanted for probe, wanted in probes)
    assert other.describe_difference(one) == ["autocast: torch.float16, captured torch.bfloat16"]


def test_autocast_of_the_cpu_is_no_part_of_it() -> None:
    plain = state.current()
    probes = state.state_guards()
    with torch.autocast("cpu"):
        assert state.current() == plain
        assert all(probe() == wanted for probe, wanted in probes)


def test_without_torch_the_state_is_the_one_torch_begins_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    without = state.current()
    assert state.state_guards() == ()
    random_state(0)()
    with fresh_autocast_cache():
        pass
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert state.current() == without


def holds(guards: Any) -> bool:
    """Return whether all say what they said when they were made."""
    return all(ask() == wanted for ask, wanted in guards)


def test_external_tensors_require_gradients_as_they_did() -> None:
    frozen, trained = torch.ones(2), torch.ones(2, requires_grad=True)
    numbers = torch.tensor([1])
    guards = state.tensor_guards(state.current(), (frozen, trained, numbers))
    assert holds(guards)
    frozen.requires_grad_(True)
    assert not holds(guards)
    frozen.requires_grad_(False)
    assert holds(guards)
    trained.requires_grad_(False)
    assert not holds(guards)


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode])
def test_where_gradients_are_not_recorded_it_is_no_matter_who_requires_them(block: Any) -> None:
    tensor = torch.ones(2)
    with block():
        guards = state.tensor_guards(state.current(), [tensor])
    tensor.requires_grad_(True)
    assert holds(guards)


def test_an_external_tensor_on_the_host_holds_what_it_held() -> None:
    tensor = torch.ones(2)
    guards = state.tensor_guards(state.current(), [tensor])
    assert holds(guards)
    tensor.add_(1)
    assert not holds(guards)


def test_a_tensor_of_inference_mode_has_no_version_to_look_at() -> None:
    with torch.inference_mode():
        tensor = torch.ones(2)
    guards = state.tensor_guards(state.current(), [tensor])
    assert holds(guards)
    with torch.inference_mode():
        tensor.add_(1)
    assert holds(guards)


def test_modules_are_in_training_as_they_were() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(0.5))
    guards = state.training_flags([model, model[0]])
    assert holds(guards)
    model[0].eval()
    assert holds(guards), "what is inside of another one is guarded with the rest of it"
    model.eval()
    assert not holds(guards)
    model.train()
    assert holds(guards)
    assert state.training_flags([]) == []


@pytest.fixture
def model() -> Any:
    return torch.nn.Linear(2, 1)


# Gradients that a function sets.


def test_a_function_that_sets_no_gradients_asks_for_none(model: Any) -> None:
    fields = state.GradientFields([model])
    assert fields.changed() == []
    assert fields.guards([]) == []


def test_gradients_that_were_made_are_what_a_call_leaves(model: Any) -> None:
    fields = state.GradientFields([model])
    model(torch.ones(2)).sum().backward()
    made = model.weight.grad, model.bias.grad
    changed = fields.changed()
    assert [id(parameter) for parameter, _ in changed] == [*map(id, model.parameters())]
    assert all(found is grad for (_, found), grad in zip(changed, made, strict=True))
    guards = fields.guards([])
    assert not holds(guards), "a call finds none, as the capture did"
    model.zero_grad()
    assert holds(guards)


def test_gradients_that_were_added_to_are_to_be_the_same_tensors(model: Any) -> None:
    model(torch.ones(2)).sum().backward()
    fields = state.GradientFields([model])
    model(torch.ones(2)).sum().backward()
    assert fields.changed() == []
    guards = fields.guards({model.weight.grad.untyped_storage()._cdata})
    assert holds(guards)
    kept = model.weight.grad
    model.weight.grad = kept.clone()
    assert not holds(guards)
    model.weight.grad = kept
    model.bias.grad = None
    assert holds(guards), "that one was not used"


def test_gradients_that_were_let_go_are_let_go(model: Any) -> None:
    model(torch.ones(2)).sum().backward()
    fields = state.GradientFields([model])
    model.zero_grad()
    assert [found for _, found in fields.changed()] == [None, None]


def test_a_transform_of_torch_func_is_named() -> None:
    seen: list[str | None] = []

    def body(x: Any) -> Any:
        seen.append(state.transform_of_torch())
        return x * 2

    guards = state.state_guards()

    def outside(x: Any) -> Any:
        seen.append(None if holds(guards) else "differs")
        return x.sum()

    body(torch.ones(2))
    torch.func.vmap(body)(torch.ones(2))
    torch.func.grad(lambda x: body(x).sum())(torch.ones(2))
    torch.func.vmap(outside)(torch.ones(2, 2))
    assert seen == [None, "torch.func (vmap)", "torch.func (grad)", "differs"]
    assert holds(guards)


def test_what_is_captured_inside_of_forward_mode_fits_outside_alone() -> None:
    with torch.autograd.forward_ad.dual_level():
        guards = state.state_guards()
        assert not holds(guards)
    assert holds(guards)


@pytest.mark.parametrize("fails", [False, True])
def test_what_autocast_has_cast_is_forgotten_before_and_after(
    monkeypatch: pytest.MonkeyPatch, autocast: Any, fails: bool
) -> None:
    cleared: list[str] = []
    monkeypatch.setattr(torch, "clear_autocast_cache", lambda: cleared.append("cleared"))
    with autocast():
        with pytest.raises(KeyError) if fails else nullcontext(), fresh_autocast_cache():
            cleared.append("block")
            if fails:
                raise KeyError
        assert cleared == ["cleared", "block", "cleared"]
    with fresh_autocast_cache():
        pass
    assert len(cleared) == 3


class Generator:
    """A generator of torch's for CUDA, which there is none of without a GPU."""

    def __init__(self) -> None:
        self.seed, self.offset = 11, 40
        self.seeded = 0

    def initial_seed(self) -> int:
        return self.seed

    def get_offset(self) -> int:
        return self.offset

    def set_offset(self, offset: int) -> None:
        self.offset = offset

    def manual_seed(self, seed: int) -> None:
        self.seed, self.offset = seed, 0
        self.seeded += 1


@pytest.fixture
def generators(monkeypatch: pytest.MonkeyPatch) -> tuple[Generator, Generator]:
    both = (Generator(), Generator())
    monkeypatch.setattr(torch.cuda, "default_generators", both)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    return both


def test_the_generator_of_the_device_is_put_back(generators: tuple[Generator, Generator]) -> None:
    first, second = generators
    put_back = random_state(1)
    first.offset += 4
    second.offset += 4
    put_back()
    assert (first.offset, second.offset) == (44, 40)
    assert second.seeded == 0
    second.manual_seed(5)
    put_back()
    assert (second.seed, second.offset) == (11, 40)


def test_before_cuda_is_in_use_there_is_no_generator_to_put_back(
    generators: tuple[Generator, Generator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    put_back = random_state(0)
    generators[0].offset += 4
    put_back()
    assert generators[0].offset == 44
