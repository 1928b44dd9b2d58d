"""Random functions of arguments and state, for graphed callables.

A line that torch refuses is left out, which is found by running it.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.gpu.support.fuzz_operators import KINDS, OPS, Op, memory
from tests.gpu.support.fuzz_state import BUFFERS, EXTERNAL, PARAMETERS, ROW, Body, Line, State

_MAX_ELEMENTS = 2_000
_MAX_DIMS = 4
_SHAPES = {**PARAMETERS, **BUFFERS, **EXTERNAL}
_STATE = tuple(_SHAPES)


def _blocks(_: Any, x: Any, model: Any) -> Any:
    x = x * 1
    for block in model.blocks:
        x = block(x)
    return x


def _optional(_: Any, x: Any, model: Any) -> Any:
    return x * 1 if model.optional is None else x + model.optional


# These take a tensor and the model.
_OF_MODEL: dict[str, Callable[..., Any]] = {
    "blocks": _blocks,
    "optional": _optional,
    "by_mode": lambda _, x, model: x * 2 if model.training else x + 1,
    "drop": lambda _, x, model: model.drop(x * 1),
}
# These are views for some strides and copies for others.
_MAYBE_VIEWS = {
    "contiguous": Op(lambda _, x: x.contiguous()),
    "reshape": Op(lambda _, x: x.reshape(-1)),
}
_FRESH, _VIEWS, _WRITES, _DRAWS = (dict(table) for table, _ in KINDS)
_VIEWS = {**_VIEWS, **_MAYBE_VIEWS}
_ALL = {**OPS, **_MAYBE_VIEWS}

_SMOOTH = (
    *("tanh", "sigmoid", "neg", "add", "sub", "mul", "lerp", "add_number", "mul_number", "flip"),
    *("clone", "roll", "cat", "stack", "softmax", "matmul", "mean"),
)
_OF_ROWS = (
    *("abs", "relu", "tanh", "sigmoid", "neg", "clone", "add_number", "mul_number", "add", "sub"),
    *("mul", "maximum", "lerp", "add_", "mul_", "copy_", "add_number_", "fill_", "zero_"),
    *("relu_", "clamp_"),
)
_TRAINING = {
    "matmul": Op(lambda torch, x, y: torch.tanh(torch.matmul(x, y)), 2),
    "mean": Op(lambda _, x: x.mean(-1, keepdim=True)),
}


def _guarded(write: Callable[..., Any]) -> Callable[..., Any]:
    """Give a write one meaning where its operands share memory: it reads before it writes."""

    def run(torch: Any, x: Any, *given: Any) -> None:
        if any(size > 1 and not by for size, by in zip(x.shape, x.stride(), strict=True)):
            raise ValueError("it would write to one element from several places")
        apart = [
            each.clone() if torch.is_tensor(each) and memory(each) == memory(x) else each
            for each in given
        ]
        write(torch, x, *apart)

    return run


_GUARDED = {name: _guarded(op.run) for name, op in _ALL.items() if op.writes}
_RUN = {
    **{name: op.run for name, op in {**_ALL, **_TRAINING}.items()},
    **_GUARDED,
    **_OF_MODEL,
}


def operators(torch: Any, foreign: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """Return what the names in a function's lines stand for."""
    import gpuprof

    own = {name: functools.partial(run, torch) for name, run in _RUN.items()}
    return {**own, **foreign, "timer": gpuprof.timer}


class Writer:
    """Writes a function by running each line on a world's arguments and state.

    Attributes
    ----------
    written : set of str
        Arguments and state that the function may write to.
    draws : bool
        Whether it takes random numbers.
    """

    def __init__(
        self,
        torch: Any,
        chance: random.Random,
        *,
        kind: str,
        state: State,
        arguments: Sequence[Any],
        foreign: Mapping[str, Callable[..., Any]],
    ) -> None:
        self._chance = chance
        self._kind = kind
        self._scope: dict[str, Any] = dict(state.scope)
        self._names = [f"a{number}" for number in range(len(arguments))]
        self._scope.update(zip(self._names, arguments, strict=True))
        self._operators = operators(torch, foreign)
        self._foreign = tuple(foreign)
        self._num_arguments = len(arguments)
        self._made: list[str] = []
        self._roots: dict[str, str] = {}  # what a view, or what may be one, is of
        self._lines: list[Line] = []
        self.written: set[str] = set()
        self.of_kernels: set[str] = set()  # state that others than torch read or write
        self.draws = False
        self.sees_strides = False  # whether what it does depends on the strides of its arguments

    def write(self, count: int) -> Body:
        """Return a function of about so many lines."""
        for _ in range(count * 12):
            if len(self._lines) >= count:
                break
            self._try()
        fresh = [name for name in self._made if name not in self._roots]
        results = tuple(self._chance.sample(fresh, min(len(fresh), self._chance.choice((1, 2, 3)))))
        if self._kind == "torch" and self._chance.random() < 0.05:
            results = ()
        timed = self._chance.randrange(len(self._lines)) if self._lines else None
        timed = timed if self._chance.random() < 0.15 else None
        return Body(tuple(self._lines), results, self._num_arguments, timed)

    def _choose(self) -> tuple[str, Op]:
        chance = self._chance
        if self._kind == "training":
            name = chance.choice((*_SMOOTH, "blocks", "optional", "by_mode", "drop"))
        elif self._kind == "buckets":
            name = chance.choice((*_OF_ROWS, "blocks", "optional", "by_mode"))
        elif self._foreign and chance.random() < 0.4:
            name = chance.choice(self._foreign)
            # What writes twice as often: a kernel's write is what nobody tells of.
            return name, Op(self._operators[name], 2, writes=True)
        elif chance.random() < 0.12:
            name = chance.choice(tuple(_OF_MODEL))
        else:
            tables = (_FRESH, _VIEWS, _WRITES, _DRAWS)
            name = chance.choice(list(chance.choices(tables, (6, 4, 7, 1))[0]))
        if name in _OF_MODEL:
            return name, Op(_OF_MODEL[name])
        return name, _ALL[name] if name in _ALL else _TRAINING[name]

    def _operand(self, like: Any = None, *, of_kernel: bool = False) -> str:
        chance = self._chance
        state = _STATE
        if of_kernel:
            state = tuple(each for each in _STATE if each.startswith("model."))
        elif self._kind == "buckets":  # which goes with any number of rows
            state = tuple(name for name, shape in _SHAPES.items() if shape == ROW)
        names = [*self._names * 3, *state, *self._made, *self._made[-3:] * 3]
        if like is not None:
            alike = [
                each
                for each in names
                if (found := self._value(each)).shape == like.shape and found.dtype == like.dtype
            ]
            if alike and chance.random() < 0.8:
                return chance.choice(alike)
        return chance.choice(names)

    def _value(self, name: str) -> Any:
        return self._scope[name] if name in self._scope else eval(name, dict(self._scope))

    def _try(self) -> None:
        name, op = self._choose()
        is_foreign = name in self._foreign
        first = self._operand(of_kernel=is_foreign)
        given = [self._value(first)]
        names = [first]
        for _ in range(1, op.num_operands):
            names.append(self._operand(given[0], of_kernel=is_foreign))
            given.append(self._value(names[-1]))
        if name in _OF_MODEL:
            names.append("model")
            given.append(self._scope["model"])
        if is_foreign and any(self._root(each) in EXTERNAL for each in names):
            return  # nothing would tell of it
        if self._kind == "buckets" and op.writes and self._root(first) in _STATE:
            return  # state has no rows
        try:
            arguments = op.choose(self._chance, given)
            made = self._operators[name](*given, *arguments)
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError):
            return  # torch does not allow it; another line will do
        if not op.writes and (made.numel() > _MAX_ELEMENTS or made.dim() > _MAX_DIMS):
            return
        self.draws = self.draws or name in _DRAWS or name == "drop"
        self.sees_strides = self.sees_strides or name in {*_MAYBE_VIEWS, "view"}
        root = self._root(first)
        if is_foreign:
            self.of_kernels.update(map(self._root, names))
        if op.writes:
            self.written.add(root)
            self._lines.append(Line(name, tuple(names), arguments))
            return
        result = f"v{len(self._lines)}"
        if name in _VIEWS:
            self._roots[result] = root
        self._scope[result] = made
        self._made.append(result)
        self._lines.append(Line(name, tuple(names), arguments, result))

    def _root(self, name: str) -> str:
        return self._roots.get(name, name)
