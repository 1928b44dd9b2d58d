"""The programs of the fuzzer in tests/gpu, which must themselves be right to find anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.gpu.support.fuzz import Execute, check, eagerly, without_gradients
from tests.gpu.support.fuzz_operators import OPS
from tests.gpu.support.fuzz_programs import Program, World, run_step

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:::torch")]

SEEDS = range(40)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with without_gradients(torch):
        yield


def program(seed: int) -> Program:
    return Program(torch, seed, "cpu")


def test_a_seed_stands_for_one_program_and_one_world() -> None:
    for seed in SEEDS[:10]:
        one, other = program(seed), program(seed)
        assert str(one) == str(other)
        for a, b in zip(one.world().bases, other.world().bases, strict=True):
            assert torch.equal(a, b)
    assert len({str(program(seed)) for seed in SEEDS}) == len(SEEDS)


def test_a_program_does_the_same_in_two_worlds() -> None:
    for seed in SEEDS:
        one = program(seed)
        check(one, lambda _, one=one: eagerly(one))  # type: ignore[misc]


def test_the_programs_have_all_kinds_of_steps() -> None:
    steps = [step for seed in range(200) for step in program(seed).steps]
    names = {step.op for step in steps}
    assert set(OPS) <= names
    assert {"fork", "join", "drop"} <= names
    assert {step.stream for step in steps} == {0, 1, 2}


def test_worlds_share_no_memory() -> None:
    one = program(1)
    worlds = [one.world(), one.world()]
    for world in worlds:
        world.inputs[0].fill_(1)
    assert worlds[0].bases[0].data_ptr() != worlds[1].bases[0].data_ptr()
    assert worlds[0].inputs[0].data_ptr() >= worlds[0].bases[0].data_ptr()
    assert worlds[0].inputs[0].stride() == worlds[1].inputs[0].stride()


def test_results_of_a_function_share_no_memory() -> None:
    for seed in SEEDS:
        one = program(seed)
        world = one.world()
        values = one.run(world.inputs)
        memory = [values[number].untyped_storage().data_ptr() for number in one.results()]
        inputs = {base.untyped_storage().data_ptr() for base in world.bases}
        assert len(set(memory)) == len(memory)
        assert inputs.isdisjoint(memory)


def test_streams_side_by_side_never_use_what_another_writes() -> None:
    for seed in SEEDS:
        one = program(seed)
        values = dict(enumerate(one.world().inputs))
        used: dict[int, set[int]] = {}
        written: dict[int, set[int]] = {}
        forked = False
        for step in one.steps:
            given = [values[number] for number in step.operands]
            run_step(torch, step, values, ())
            if step.op in {"fork", "join"}:
                forked, used, written = step.op == "fork", {}, {}
            if not forked or step.op == "fork":
                continue
            places = {each.untyped_storage().data_ptr() for each in given}
            for place in places:
                used.setdefault(place, set()).add(step.stream)
            if OPS[step.op].writes:
                written.setdefault(given[0].untyped_storage().data_ptr(), set()).add(step.stream)
            elif values[step.result].untyped_storage().data_ptr() not in places:  # type: ignore[index]
                made = values[step.result].untyped_storage().data_ptr()  # type: ignore[index]
                written[made], used[made] = {step.stream}, {step.stream}
            for place, streams in written.items():
                if place:
                    assert used.get(place, streams) == streams, str(one)
        assert not forked


# Worlds with a defect that a capture could have.


def drops_a_write(one: Program) -> Callable[[World], Execute]:
    kept = [step for step in one.steps if step.op not in OPS or not OPS[step.op].writes]

    def execute(world: World) -> dict[int, Any]:
        values = dict(enumerate(world.inputs))
        for step in kept:
            run_step(torch, step, values, ())
        return values

    return lambda _: execute


def repeats_its_random_numbers(one: Program) -> Callable[[World], Execute]:
    def execute(world: World) -> dict[int, Any]:
        before = torch.get_rng_state()
        torch.manual_seed(7)
        values = one.run(world.inputs)
        torch.set_rng_state(before)
        return values

    return lambda _: execute


def draws_without_moving_the_generator_on(one: Program) -> Callable[[World], Execute]:
    def execute(world: World) -> dict[int, Any]:
        with torch.random.fork_rng():
            return one.run(world.inputs)

    return lambda _: execute


def gives_what_it_gave_before(one: Program) -> Callable[[World], Execute]:
    def make(world: World) -> Execute:
        first = {key: value.clone() for key, value in one.run(world.copy().inputs).items()}

        def execute(world: World) -> dict[int, Any]:
            one.run(world.inputs)
            return first

        return execute

    return make


def writes_beside_a_sliced_input(one: Program) -> Callable[[World], Execute]:
    def execute(world: World) -> dict[int, Any]:
        values = one.run(world.inputs)
        for base, given in zip(world.bases, world.inputs, strict=True):
            if base.numel() > given.numel():
                base.view(-1)[0] = 1
        return values

    return lambda _: execute


@pytest.mark.parametrize(
    "defect",
    [
        drops_a_write,
        repeats_its_random_numbers,
        draws_without_moving_the_generator_on,
        gives_what_it_gave_before,
        writes_beside_a_sliced_input,
    ],
)
def test_a_defect_is_found_and_told_with_its_program(
    defect: Callable[[Program], Callable[[World], Execute]],
) -> None:
    found = 0
    for seed in SEEDS:
        one = program(seed)
        try:
            check(one, defect(one))
        except AssertionError as error:
            assert str(one) in str(error)  # noqa: PT017
            assert f"program {seed}\n" in str(error)  # noqa: PT017
            found += 1
        if found == 5:
            return
    pytest.fail(f"found {found} times")


def test_an_error_of_a_world_is_told_with_its_program() -> None:
    def fails(_: World) -> dict[int, Any]:
        message = "no graph"
        raise ValueError(message)

    with pytest.raises(AssertionError, match=r"round 0: ValueError: no graph\nprogram 3\n"):
        check(program(3), lambda _: fails)
