"""Random programs over torch's tensors, each made from a seed, and worlds to run them in.

A program is a list of steps over numbered values: operators, views, writes in place, random
numbers, other streams that fork from the current one and join it, values that are let go.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.gpu.support.fuzz_operators import KINDS, OPS, TYPES, memory

SIDES = 2  # streams besides the current one
_STEPS = 20
_SHAPES = (
    *((), (1,), (5,), (33,), (4, 6), (3, 1), (0, 3), (2, 3, 4), (2, 4, 3, 5), (1, 8), (129, 65)),
    *((4, 6), (6, 4), (2, 4, 3, 5)),  # which many operators take
)
_MAX_ELEMENTS = 20_000
_MAX_DIMS = 5


class Step(NamedTuple):
    """One step of a program.

    Attributes
    ----------
    op : str
        A key of `OPS`; or "fork" and "join", of all other streams; or "drop", of a value.
    operands : tuple of int
        The values that it takes.
    arguments : tuple
        Plain ones.
    result : int or None
        The value that it makes; None if it makes none.
    stream : int
        0 is the current one.
    """

    op: str
    operands: tuple[int, ...] = ()
    arguments: tuple[Any, ...] = ()
    result: int | None = None
    stream: int = 0

    def __str__(self) -> str:
        given = ", ".join([*(f"v{each}" for each in self.operands), *map(repr, self.arguments)])
        made = "" if self.result is None else f"v{self.result} = "
        where = f"  # stream {self.stream}" if self.stream else ""
        return f"{made}{self.op}({given}){where}"


class World:
    """Inputs with the memory that they are in.

    Parameters
    ----------
    torch : module
    inputs : list of Tensor
    bases : list of Tensor
        All of the memory of each, dense.
    """

    def __init__(self, torch: Any, inputs: list[Any], bases: list[Any]) -> None:
        self._torch = torch
        self.inputs = inputs
        self.bases = bases

    def copy(self) -> World:
        """Return a world with equal inputs, in other memory of the same layout."""
        bases = [base.clone() for base in self.bases]
        inputs = [
            base.as_strided(given.shape, given.stride(), given.storage_offset())
            for given, base in zip(self.inputs, bases, strict=True)
        ]
        return World(self._torch, inputs, bases)

    def move(self) -> None:
        """Take other tensors in other memory, with the values of these."""
        other = self.copy()
        self.inputs, self.bases = other.inputs, other.bases

    def fill(self, seed: int) -> None:
        """Give about half of the inputs values that depend on the seed alone."""
        chance = random.Random(seed)
        for given in self.inputs:
            if chance.random() < 0.5:
                given.copy_(_values(self._torch, chance, given.shape, given.dtype))


def _values(torch: Any, chance: random.Random, shape: Sequence[int], dtype: Any) -> Any:
    generator = torch.Generator().manual_seed(chance.getrandbits(32))
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator) * 2).to(dtype)
    return torch.randint(-5, 6, shape, generator=generator).to(dtype)


def _input(torch: Any, chance: random.Random, device: str) -> tuple[Any, Any]:
    """Return an input and its base."""
    shape = chance.choice(_SHAPES)
    dtype = getattr(torch, chance.choice(TYPES))
    layout = chance.choice(("dense", "transposed", "channels last", "sliced", "stepped", "offset"))
    if layout == "channels last" and len(shape) != 4:
        layout = "transposed"

    def base_of(*sizes: int) -> Any:
        return _values(torch, chance, sizes, dtype).to(device)

    if layout == "transposed":
        base = base_of(*shape[::-1])
        return base.permute(tuple(reversed(range(len(shape))))), base
    if layout == "channels last":
        base = base_of(shape[0], *shape[2:], shape[1])
        return base.permute(0, 3, 1, 2), base
    if layout == "sliced":
        base = base_of(*(size + 2 for size in shape))
        return base[tuple(slice(1, size + 1) for size in shape)], base
    if layout == "stepped" and shape:
        base = base_of(*shape[:-1], shape[-1] * 2)
        return base[..., ::2], base
    if layout == "offset":
        count = 1
        for size in shape:
            count *= size
        base = base_of(count + 3)
        return base[3:].view(shape), base
    base = base_of(*shape)
    return base, base


class Program:
    """A program and the inputs to begin with.

    Parameters
    ----------
    torch : module
    seed : int
    device : str
        Where it is to run: what torch allows is found by running the steps there.

    Attributes
    ----------
    steps : list of Step
        The first values are the inputs.
    """

    def __init__(self, torch: Any, seed: int, device: str) -> None:
        self.torch = torch
        self.seed = seed
        chance = random.Random(seed)
        pairs = [_input(torch, chance, device) for _ in range(chance.randrange(1, 5))]
        self._world = World(torch, *map(list, zip(*pairs, strict=True)))
        self.steps = _Writer(torch, chance, self._world.copy().inputs).write()

    def world(self) -> World:
        """Return a new world, equal to all others of this program."""
        return self._world.copy()

    def results(self) -> list[int]:
        """Return values for a function to return: none is in memory of an input or of another."""
        values = self.run(self.world().inputs)
        taken = {memory(values[number]) for number in range(len(self._world.inputs))}
        found = []
        for number, value in reversed(values.items()):
            if memory(value) not in taken:
                taken.add(memory(value))
                found.append(number)
        return found[:4]

    def run(self, inputs: Sequence[Any], sides: Sequence[Any] = ()) -> dict[int, Any]:
        """Run the steps; return the values that are left, by number.

        Parameters
        ----------
        inputs : sequence of Tensor
        sides : sequence of torch.cuda.Stream
            The other streams; without, all runs on the current one.
        """
        values = dict(enumerate(inputs))
        for step in self.steps:
            run_step(self.torch, step, values, sides)
        return values

    def __str__(self) -> str:
        lines = [f"program {self.seed}"]
        for number, given in enumerate(self._world.inputs):
            layout = f"strides {given.stride()}, offset {given.storage_offset()}"
            lines.append(f"v{number}: {given.dtype} {tuple(given.shape)}, {layout}")
        return "\n".join([*lines, *map(str, self.steps)])


def run_step(torch: Any, step: Step, values: dict[int, Any], sides: Sequence[Any]) -> None:
    """Run one step on `values`."""
    if step.op == "drop":
        del values[step.operands[0]]
    elif step.op in {"fork", "join"}:
        for side in sides:
            current = torch.cuda.current_stream()
            waiting, other = (side, current) if step.op == "fork" else (current, side)
            waiting.wait_stream(other)
    else:
        given = [values[number] for number in step.operands]
        on_side = step.stream and sides
        with torch.cuda.stream(sides[step.stream - 1]) if on_side else contextlib.nullcontext():
            made = OPS[step.op].run(torch, *given, *step.arguments)
        if step.result is not None:
            values[step.result] = made


def _may_race(given: Sequence[Any]) -> bool:
    """Return whether a write may meet itself or what it reads from, which no order is set for."""
    first = given[0]
    meets_itself = any(
        size > 1 and stride == 0 for size, stride in zip(first.shape, first.stride(), strict=True)
    )
    return meets_itself or any(memory(each) == memory(first) for each in given[1:])


class _Writer:
    """Finds steps that torch allows, by running them.

    Between a fork and a join the streams run side by side: none may use what another writes, or
    write what another uses.
    """

    def __init__(self, torch: Any, chance: random.Random, inputs: list[Any]) -> None:
        self._torch = torch
        self._chance = chance
        self._values = dict(enumerate(inputs))
        self._next = len(inputs)
        self._steps: list[Step] = []
        self._forked = False
        self._used: dict[int, set[int]] = {}  # streams by memory, since the fork
        self._written: dict[int, set[int]] = {}

    def write(self) -> list[Step]:
        for _ in range(_STEPS * 20):
            if len(self._steps) >= _STEPS:
                break
            self._add()
        if self._forked:
            self._steps.append(Step("join"))
        return self._steps

    def _add(self) -> None:
        chance = self._chance
        if chance.random() < (0.2 if self._forked else 0.06):
            self._steps.append(Step("join" if self._forked else "fork"))
            self._forked = not self._forked
            self._used, self._written = {}, {}
        elif chance.random() < 0.08 and not self._forked:
            self._drop()
        else:
            tables, weights = zip(*KINDS, strict=True)
            name = chance.choice(list(chance.choices(tables, weights)[0]))
            stream = chance.randrange(SIDES + 1) if self._forked else 0
            any(self._try(name, stream) for _ in range(8))

    def _drop(self) -> None:
        made = [step.result for step in self._steps if step.result in self._values]
        if made:
            number = self._chance.choice(made)
            assert number is not None
            del self._values[number]
            self._steps.append(Step("drop", (number,)))

    def _operands(self, count: int) -> tuple[int, ...]:
        chance = self._chance
        # What was made last is taken more often, so that steps build on each other.
        numbers = [*self._values, *list(self._values)[-3:] * 2]
        first = chance.choice(numbers)
        alike = [each for each in numbers if self._is_alike(each, first)]
        others = [
            chance.choice(alike if chance.random() < 0.7 else numbers) for _ in range(1, count)
        ]
        return (first, *others)

    def _is_alike(self, one: int, other: int) -> bool:
        a, b = self._values[one], self._values[other]
        return bool((a.shape, a.dtype) == (b.shape, b.dtype))

    def _try(self, name: str, stream: int) -> bool:
        """Add a step if torch allows it, and return whether it does."""
        chance, values, op = self._chance, self._values, OPS[name]
        operands = self._operands(op.num_operands)
        given = [values[number] for number in operands]
        writes = op.writes
        if not self._may_run(stream, given, writes) or (writes and _may_race(given)):
            return False
        try:
            arguments = op.choose(chance, given)
            made = op.run(self._torch, *given, *arguments)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return False  # torch does not allow it; a later step will do
        if not writes and (made.numel() > _MAX_ELEMENTS or made.dim() > _MAX_DIMS):
            return False
        self._note(stream, given, writes)
        result = None
        if not writes:
            result, self._next = self._next, self._next + 1
            values[result] = made
            # New memory belongs to its stream until the join.
            if not any(memory(made) == memory(each) for each in given):
                self._written.setdefault(memory(made), set()).add(stream)
        self._steps.append(Step(name, operands, arguments, result, stream))
        return True

    def _may_run(self, stream: int, given: Sequence[Any], writes: bool) -> bool:
        if not self._forked:
            return True
        others = {number for number in range(SIDES + 1) if number != stream}
        if any(self._written.get(memory(each), set()) & others for each in given):
            return False
        return not (writes and self._used.get(memory(given[0]), set()) & others)

    def _note(self, stream: int, given: Sequence[Any], writes: bool) -> None:
        if self._forked:
            for each in given:
                self._used.setdefault(memory(each), set()).add(stream)
            if writes:
                self._written.setdefault(memory(given[0]), set()).add(stream)
