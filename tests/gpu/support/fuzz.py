"""Two worlds in which a random program must do the same each time.

One runs it eagerly, the other in any other way, on equal inputs and from an equal state of the
random generator. After each round all values, the memory under all inputs and the generator are
compared, bit by bit.

An argument of a graphed callable is dense in the graph. So `reshape` of a sliced one may be a view
in one world and a copy in the other, and is no operator here.

Nothing but `captured` and `graphed` needs a GPU. `python -m tests.gpu.support.fuzz SEED` shows a
program, and runs it where there is a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.gpu.support.fuzz_programs import SIDES, Program, World

# Runs a program on a world's inputs; returns the values that are to be compared, by number.
Execute = Callable[[World], dict[int, Any]]


def eagerly(program: Program, sides: Sequence[Any] = ()) -> Execute:
    """Return what runs `program` step by step."""
    return lambda world: program.run(world.inputs, sides)


def check(
    program: Program,
    make: Callable[[World], Execute],
    *,
    sides: Sequence[Any] = (),
    rounds: int = 3,
) -> None:
    """Fail unless a program gives the same in a second world, each time with other inputs.

    Parameters
    ----------
    program : Program
    make : callable
        Given the second world, returns what runs the program in it.
    sides : sequence of torch.cuda.Stream
        For the eager world.
    rounds : int
        What the program writes to its inputs stays there for the next, or is overwritten.
    """
    first, second = program.world(), program.world()
    run_first = eagerly(program, sides)
    generator = Generator(program.torch, first)
    where = "making it"
    try:
        run_second = make(second)
        for number in range(rounds):
            where = f"round {number}"
            if number:
                for world in (first, second):
                    world.fill(program.seed * rounds + number)
            generator.seed(program.seed + number)
            wanted = run_first(first)
            after = generator.state()
            generator.seed(program.seed + number)
            found = run_second(second)
            assert generator.state() == after, "the random generator is elsewhere"
            _compare(program.torch, (first, wanted), (second, found))
    except Exception as error:
        message = f"{where}: {type(error).__name__}: {error}\n{program}"
        raise AssertionError(message) from error


class Generator:
    """Torch's random generator of the device that a world is on."""

    def __init__(self, torch: Any, world: World) -> None:
        self._torch = torch
        self._is_cuda = any(base.is_cuda for base in world.bases)

    def seed(self, number: int) -> None:
        self._torch.manual_seed(number)

    def state(self) -> list[int]:
        part = self._torch.cuda if self._is_cuda else self._torch
        state: list[int] = part.get_rng_state().tolist()
        return state


def _compare(
    torch: Any, wanted: tuple[World, dict[int, Any]], found: tuple[World, dict[int, Any]]
) -> None:
    for number, value in found[1].items():
        assert is_same(torch, wanted[1][number], value), f"v{number} differs"
    for number, (one, other) in enumerate(zip(wanted[0].bases, found[0].bases, strict=True)):
        assert is_same(torch, one, other), f"the memory under v{number} differs"


def is_same(torch: Any, one: Any, other: Any) -> bool:
    """Return whether two tensors have the same type, shape and values. NaN is like NaN."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if torch.equal(one, other):
        return True
    return bool(((one == other) | ((one != one) & (other != other))).all())  # noqa: PLR0124


def captured(gpuprof: Any, program: Program, sides: Sequence[Any]) -> Callable[[World], Execute]:
    """Return what captures a program in a world, and launches its graph there."""

    def make(world: World) -> Execute:
        torch = program.torch
        with gpuprof.capture(allow_empty=True, name=f"program {program.seed}") as cap:
            values = program.run(world.inputs, sides)
        launches = iter(range(1_000_000))

        def execute(_: World) -> dict[int, Any]:
            if next(launches) % 2:  # every second launch on another stream
                current, other = torch.cuda.current_stream(), sides[0]
                other.wait_stream(current)
                cap.graph.launch(other)
                current.wait_stream(other)
            else:
                cap.graph.launch()
            return values

        return execute

    return make


def graphed(gpuprof: Any, program: Program, sides: Sequence[Any]) -> Callable[[World], Execute]:
    """Return what makes a graphed callable of a program, and calls it with a world's inputs."""
    numbers = program.results()

    def function(*inputs: Any) -> tuple[Any, ...]:
        values = program.run(inputs, sides)
        return tuple(values[number] for number in numbers)

    def make(world: World) -> Execute:
        fast = gpuprof.make_graphed_callable(function, tuple(world.copy().inputs))

        def execute(world: World) -> dict[int, Any]:
            world.move()
            found = dict(zip(numbers, fast(*world.inputs), strict=True))
            seen = fast.stats()
            assert (seen.captures, seen.eager_calls, seen.failures) == (1, 0, 0), seen
            return found

        return execute

    return make


@contextlib.contextmanager
def without_gradients(torch: Any) -> Iterator[None]:
    """Let programs write to what would need gradients; and leave torch's generators as they are."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        yield


def main(seed: int) -> None:
    """Show a program, and check it where there is a GPU."""
    import torch

    import gpuprof

    has_gpu = torch.cuda.is_available()
    with without_gradients(torch):
        program = Program(torch, seed, "cuda" if has_gpu else "cpu")
        print(program)
        if has_gpu:
            sides = [torch.cuda.Stream() for _ in range(SIDES)]
            check(program, captured(gpuprof, program, sides), sides=sides)
            check(program, graphed(gpuprof, program, sides), sides=sides)


if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]))
