"""The scenarios of the fuzzer in tests/gpu, which must themselves be right to find anything."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gpu.support.fuzz_arrays import check_arrays
from tests.gpu.support.fuzz_bodies import operators
from tests.gpu.support.fuzz_callables import Make, check, eagerly, shrink
from tests.gpu.support.fuzz_foreign import kernels
from tests.gpu.support.fuzz_operators import OPS
from tests.gpu.support.fuzz_scenarios import KINDS, Scenario, make_scenario
from tests.gpu.support.fuzz_state import Body
from tests.gpu.support.fuzz_world import World

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:::torch")]

SEEDS = range(100)
_made: dict[int, Scenario] = {}


def scenario(seed: int) -> Scenario:
    if seed not in _made:
        _made[seed] = make_scenario(torch, seed, "cpu")
    return _made[seed]


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_a_seed_stands_for_one_scenario() -> None:
    for seed in SEEDS[:10]:
        assert str(make_scenario(torch, seed, "cpu")) == str(scenario(seed))
    assert len({str(scenario(seed)) for seed in SEEDS}) == len(SEEDS)


def test_a_scenario_does_the_same_in_two_worlds() -> None:
    for seed in SEEDS:
        check(scenario(seed), eagerly)


def test_the_scenarios_have_all_that_they_are_to_have() -> None:
    made = [scenario(seed) for seed in SEEDS]
    steps = [step for each in made for step in each.steps]
    calls = [step for step in steps if step.name == "call"]
    assert {each.kind for each in made} == set(KINDS)
    assert {step.mode for step in calls} == {"no_grad", "inference", "grad", "backward"}
    assert {step.where for step in calls} == {"here", "thread", "stream"}
    sources = {source.how for step in calls for source in step.sources}
    assert sources == {"new", "same", "alias", "overlap", "row", "state", "result"}
    changes = {"write", "data", "replace", "resize", "turn", "requires_grad", "update"}
    more = {"optional", "append", "pop", "mode", "hook", "collect", "reset", "no_grads"}
    assert {step.name for step in steps} >= changes | more
    used = {line.op for each in made for line in each.body.lines}
    assert len(used & set(OPS)) > 0.8 * len(OPS)
    assert used >= {"contiguous", "reshape", "blocks", "optional", "by_mode", "drop"}
    for name in ("outputs", "warmup", "max_graphs", "verify", "timers", "on_new_shape"):
        assert len({each.options[name] for each in made}) > 1, name


def test_results_share_no_memory_with_arguments_state_or_each_other() -> None:
    for seed in SEEDS:
        one = scenario(seed)
        world = one.world()
        with torch.random.fork_rng():
            for step in one.steps:
                world.run(step)
                if step.name != "call":
                    continue
                memory = [each.untyped_storage().data_ptr() for each in world.results]
                given = [*world.arguments, *(each for _, each in world.state.tensors())]
                others = {each.untyped_storage().data_ptr() for each in given}
                assert len(set(memory)) == len(memory), str(one)
                assert others.isdisjoint(memory), str(one)


# Worlds with a defect that a graphed callable could have.


def _calls(make_call: Any) -> Make:
    def make(one: Scenario, world: World) -> None:
        world.call_function = make_call(one, world)

    return make


def loses_a_write(one: Scenario, world: World) -> Any:
    lines = one.body.lines
    writes = [n for n, line in enumerate(lines) if line.result is None]
    kept = tuple(line for n, line in enumerate(lines) if n not in writes[-1:])
    body = Body(kept, one.body.results, one.body.num_arguments)
    foreign = kernels(torch, "cpu") if one.kind == "foreign" else {}
    return body.function(world.state.scope, operators(torch, foreign))


def loses_what_is_written_to_arguments(_: Scenario, world: World) -> Any:
    return lambda *given: world.function(*(each.clone() for each in given))


def takes_arguments_for_separate(_: Scenario, world: World) -> Any:
    def call(*given: Any) -> Any:
        inside = [each.clone() for each in given]
        result = world.function(*inside)
        for each, new in zip(given, inside, strict=True):
            if not torch.equal(each, new):
                each.copy_(new)
        return result

    return call


def reuses_the_memory_of_results(_: Scenario, world: World) -> Any:
    earlier: dict[Any, Any] = {}

    def call(*given: Any) -> Any:
        made = world.function(*given)
        key = tuple(each.shape for each in given)
        if made is None or earlier.setdefault(key, made) is made:
            return made
        if [each.shape for each in made] != [each.shape for each in earlier[key]]:
            return made
        for old, new in zip(earlier[key], made, strict=True):
            with contextlib.suppress(RuntimeError):  # made under inference mode
                old.copy_(new)
        return earlier[key]

    return call


def keeps_the_state_that_it_was_made_with(one: Scenario, world: World) -> Any:
    """Read other objects than the model's, which have the same values and write to them alike."""
    copy = one.world()
    current = dict(copy.state.tensors())

    def call(*given: Any) -> Any:
        for name, tensor in world.state.tensors():
            if name in current and current[name].shape == tensor.shape:
                with contextlib.suppress(RuntimeError):
                    current[name].data.copy_(tensor)
        result = copy.function(*given)
        for name, tensor in world.state.tensors():
            if name in current and current[name].shape == tensor.shape:
                tensor.data.copy_(current[name])
        return result

    return call


def repeats_its_random_numbers(_: Scenario, world: World) -> Any:
    def call(*given: Any) -> Any:
        before = torch.get_rng_state()
        torch.default_generator.manual_seed(7)
        result = world.function(*given)
        torch.set_rng_state(before)
        return result

    return call


def forgets_gradients(one: Scenario, world: World) -> Any:
    def call(*given: Any) -> Any:
        made = world.function(*given)
        if not one.trains or made is None:
            return made
        return tuple(each.detach().requires_grad_(each.requires_grad) for each in made)

    return call


@pytest.mark.parametrize(
    ("defect", "at_least"),
    [
        (loses_a_write, 10),
        (loses_what_is_written_to_arguments, 10),
        (takes_arguments_for_separate, 3),
        (reuses_the_memory_of_results, 10),
        (keeps_the_state_that_it_was_made_with, 5),
        (repeats_its_random_numbers, 5),
        (forgets_gradients, 3),
    ],
)
def test_a_defect_is_found(defect: Any, at_least: int) -> None:
    found = 0
    for seed in SEEDS:
        try:
            check(scenario(seed), _calls(defect), shrinks=False)
        except AssertionError as error:
            assert str(scenario(seed)) in str(error)  # noqa: PT017
            assert f"fuzz_callables {seed}" in str(error)  # noqa: PT017
            found += 1
        if found == at_least:
            return
    pytest.fail(f"found {found} times")


def test_a_failure_is_made_small() -> None:
    one = next(each for seed in SEEDS if "a0" in (each := scenario(seed)).written)
    smaller, said = shrink(one, _calls(loses_what_is_written_to_arguments))
    assert "the memory of argument" in said
    assert len(smaller.steps) == 1
    assert len(smaller.body.lines) < len(one.body.lines)


def test_an_error_is_told_with_its_scenario() -> None:
    def make(_: Scenario, world: World) -> None:
        def call(*_given: Any) -> None:
            raise ValueError("no graph")

        world.call_function = call

    with pytest.raises(AssertionError, match=r"step 0, call\(.*: ValueError: no graph\n") as caught:
        check(scenario(3), make)
    assert "in short: " in str(caught.value)


def test_a_static_result_is_stale_where_it_is_an_argument() -> None:
    made = [scenario(seed) for seed in SEEDS]
    static = [each for each in made if not each.keeps]
    found = [each.stale_arguments(step) for each in static for step in each.steps]
    assert any(found)
    cloning = [dataclasses.replace(each, options={"outputs": "clone"}) for each in static]
    assert not any(each.stale_arguments(step) for each in cloning for step in each.steps)


# Functions of arrays.


def test_a_function_of_arrays_does_the_same_in_two_worlds() -> None:
    pytest.importorskip("numpy", reason="NumPy (for torch) is not installed")
    lost = 0
    for seed in SEEDS:
        check_arrays(torch, seed, "cpu", lambda _, function: function)
        try:
            check_arrays(torch, seed, "cpu", _loses_writes_to_arrays)
        except AssertionError as error:
            assert f"arrays {seed}\n" in str(error)  # noqa: PT017
            lost += 1
    assert lost > 20


def _loses_writes_to_arrays(_: Any, function: Any) -> Any:
    return lambda *given: function(*(each.copy() for each in given))
