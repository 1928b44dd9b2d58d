"""Structures as graphed callables take and return them, and what makes two of them alike."""

from __future__ import annotations

import collections
import dataclasses
import enum
import importlib
import math
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from gpuprof._callable.mismatch import describe_mismatch
from gpuprof._callable.pytree import Flat, flatten_arguments
from tests.support.stand_in_arrays import FLOAT16, Array


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Batch:
    x: Any
    scale: Any = 1.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    y: Any = dataclasses.field(default=2, init=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Slotted:
    __slots__ = ("x",)
    x: Any


@dataclasses.dataclass
class Output(collections.OrderedDict):  # type: ignore[type-arg]
    """Its items are its attributes, too, but for None: as the results of transformers."""

    logits: Any = None
    hidden: Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


class Handle:
    """Nothing but itself."""


class Named:
    """Equal by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


class Cache:
    """Keys and values of layers, as those of transformers: compared by identity."""

    def __init__(self, keys: Any, values: Any, window: Any = None) -> None:
        self.keys, self.values, self.window = [*keys], [*values], window
        self.hits: set[int] = set()  # no part of it

    @classmethod
    def of(cls, parts: Any, context: Any) -> Cache:
        return cls(*parts, window=context["window"])


@dataclasses.dataclass
class Point:
    x: Any
    notes: Any = dataclasses.field(default_factory=set)


Register = Callable[[type, Any, Any], None]


def registry(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Stand in for ``torch.utils._pytree``, which knows `Cache` and `Point`; register others."""
    nodes: dict[type, Any] = {}
    if "torch.utils._pytree" in sys.modules:
        importlib.import_module("torch._dynamo")  # imports from it when it is first used
    part = types.SimpleNamespace(SUPPORTED_NODES=nodes)
    monkeypatch.setitem(sys.modules, "torch.utils._pytree", part)  # type: ignore[arg-type]

    def register(kind: type, flatten: Any, unflatten: Any) -> None:
        nodes[kind] = types.SimpleNamespace(flatten_fn=flatten, unflatten_fn=unflatten)

    register(Cache, lambda each: ((each.keys, each.values), {"window": each.window}), Cache.of)
    register(Point, lambda each: ([each.x], None), lambda parts, _: Point(*parts))
    return register


def flat(*args: Any, **kwargs: Any) -> Flat:
    return flatten_arguments(args, kwargs)


def same(one: Flat, other: Flat) -> bool:
    """Whether one graph serves both, which the texts must agree about."""
    equal = one.key == other.key
    assert equal == (not describe_mismatch(one, other)) == (not describe_mismatch(other, one))
    if equal:
        assert hash(one.key) == hash(other.key)
    return equal


KEYS = st.one_of(st.sampled_from("abc"), st.integers(0, 2), st.booleans(), st.none())
CONSTANTS = st.one_of(
    st.sampled_from([None, True, False, 0, 1, 0.0, -0.0, 1.0, math.nan, "", "a", b"a", Color.RED]),
    st.builds(complex, st.sampled_from([0.0, -0.0, math.nan])),
)
SHAPES = st.sampled_from([(), (1,), (2,), (1, 2)])
DTYPES = st.sampled_from([FLOAT16, (4, 16, 1)])
LEAVES = st.one_of(
    CONSTANTS, st.builds(lambda shape, dtype: Array(*shape, dtype=dtype), SHAPES, DTYPES)
)


def containers(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.dictionaries(KEYS, inside, max_size=3)
    return st.one_of(
        st.lists(inside, max_size=3),
        st.lists(inside, max_size=3).map(tuple),
        items,
        items.map(collections.OrderedDict),
        st.builds(Pair, inside, inside),
        st.builds(Batch, inside, inside),
        st.builds(Frozen, inside),
        st.builds(Output, inside, inside),
    )


STRUCTURES = st.recursive(LEAVES, containers, max_leaves=6)


def alike(one: Any, other: Any) -> bool:
    """Whether two structures are, told in another way than by their keys."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Array):
        return one.facts[3:5] == other.facts[3:5]
    if isinstance(one, dict):
        types_of = {(type(key), key) for key in one}
        return types_of == {(type(key), key) for key in other} and all(
            alike(one[key], other[key]) for key in one
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if dataclasses.is_dataclass(one):
        return all(alike(getattr(one, name), getattr(other, name)) for name in vars(one))
    return repr(one) == repr(other)
