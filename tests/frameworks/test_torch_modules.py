"""Which modules of torch a function holds, on a stand-in for torch."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

import pytest

from gpuprof._frameworks.torch_modules import find_arrays, find_modules


class Module:
    """What there is of a `torch.nn.Module`."""

    def __init__(self) -> None:
        self._modules: dict[str, Any] = {}

    def forward(self, x: Any) -> Any:
        return x

    def __call__(self, x: Any) -> Any:
        return self.forward(x)


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for torch, so that `Module` is one of its modules."""
    stand_in = types.SimpleNamespace(nn=types.SimpleNamespace(Module=Module))
    monkeypatch.setitem(sys.modules, "torch", stand_in)  # type: ignore[arg-type]


def held_in_every_way(module: Any) -> dict[str, Any]:
    def wrapped(x: Any) -> Any:
        return module(x)

    class Engine:
        def __init__(self) -> None:
            self.model = module

        def run(self, x: Any) -> Any:
            return self.model(x)

        __call__ = run

    return {
        "module": module,
        "method": module.forward,
        "closure": lambda x: module(x) + 1,
        "default": lambda x, model=module: model(x),
        "keyword default": lambda x, *, model=module: model(x),
        "partial": functools.partial(module),
        "partial argument": functools.partial(print, module),
        "partial keyword": functools.partial(print, end=module),
        "method of an object": Engine().run,
        "object": Engine(),
        "wrapped": functools.lru_cache(wrapped),
        "wrapped twice": functools.wraps(wrapped)(functools.partial(print)),
    }


@pytest.mark.parametrize("way", held_in_every_way(Module()))
def test_a_module_is_found_however_a_callable_holds_it(way: str) -> None:
    module = Module()
    assert find_modules(held_in_every_way(module)[way]) == [module]


def test_modules_are_found_once_and_nothing_else_is() -> None:
    one, other, unset = Module(), Module(), Module()

    def function(x: Any, y: Any = one) -> Any:
        return one, other, later, x, y

    assert find_modules(function, [other, 1, None]) == [one, other]
    assert find_modules(print) == find_modules(Module) == []
    later = unset
    function.__wrapped__ = function  # type: ignore[attr-defined]
    assert find_modules(function) == [one, unset, other]


class Array:
    """An array of some library, by its type alone."""

    __cuda_array_interface__ = None


class Holder:
    """An object with an array."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def method(self) -> Any:
        return self.array


in_a_global = Array()


def test_arrays_are_found_where_a_function_has_them() -> None:
    in_a_closure, in_a_list, in_an_object, given = (Array() for _ in range(4))
    items, holder = [in_a_list, 1], Holder(in_an_object)

    def function(x: Any = given) -> Any:
        return in_a_global, in_a_closure, items, holder, x

    found = {id(each) for each in find_arrays(function)}
    expected = (in_a_global, in_a_closure, in_a_list, in_an_object, given)
    assert found == set(map(id, expected))
    assert find_arrays(holder.method) == [in_an_object]
    assert find_arrays(print) == []
