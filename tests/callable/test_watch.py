"""What a captured function reads besides its arguments: functions and objects, without torch."""

from __future__ import annotations

import functools
import math
import sys
import types
from typing import Any

import pytest

from gpuprof import annotate, timer
from gpuprof._callable import guards
from gpuprof._callable.guard_finder import find_guards
from gpuprof._callable.guards import GuardList
from tests.support.ids import short

SCALE = 2.0
OTHER = "untouched"


@pytest.fixture(autouse=True)
def globals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SCALE", 2.0)


class Array:
    """An array of some library, by its address alone."""

    def __init__(self, address: int) -> None:
        self.address = address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.address, False), "shape": (2,), "typestr": "<f4"}


def scaled(x: float) -> float:
    return x * SCALE


class Engine:
    """An object with settings; `unused` is not read by its methods."""

    def __init__(self) -> None:
        self.gain = 1
        self.unused = 1
        self.settings = types.SimpleNamespace(bias=0.5, unused=1)
        self.table = {"a": 1, "b": 2}
        self.steps = [1, 2]

    def step(self, x: float) -> float:
        return self.helped(x) + self.settings.bias + self.table["a"] + self.steps[0]

    def helped(self, x: float) -> float:
        return x * self.gain * self.offset

    @property
    def offset(self) -> float:
        return SCALE

    def __call__(self, x: float) -> float:
        return self.step(x)

    @classmethod
    def made(cls, x: float) -> float:
        return x * SCALE


def change(found: GuardList, change: Any, *expected: str) -> None:
    assert found.moved() == []
    change()
    assert found.moved() == list(expected)


def set_global(value: float) -> None:
    globals()["SCALE"] = value


def test_a_global_that_a_function_names_is_watched() -> None:
    found = find_guards(scaled)
    assert found.names == ["global 'SCALE'"]
    change(found, lambda: set_global(3.0), "global 'SCALE': 3.0, captured with 2.0")


def test_a_global_that_is_deleted_is_told() -> None:
    change(
        find_guards(scaled),
        lambda: globals().pop("SCALE"),
        "global 'SCALE': it is not there any more",
    )


def test_functions_inside_of_a_function_are_read_too() -> None:
    def function(xs: list[float]) -> list[float]:
        return [x * SCALE for x in xs] + list(map(lambda x: x + SCALE, xs))  # noqa: C417

    assert "global 'SCALE'" in find_guards(function).names


def test_functions_of_the_same_file_that_it_calls_are_read_too() -> None:
    found = find_guards(lambda x: scaled(x) + 1)
    assert set(found.names) == {"global 'scaled'", "global 'SCALE'"}
    change(found, lambda: set_global(1.0), "global 'SCALE': 1.0, captured with 2.0")


def test_modules_classes_and_builtins_are_no_values() -> None:
    assert find_guards(lambda x: math.sqrt(len(str(x))) + isinstance(x, Engine)).names == []


def test_a_closure_variable_is_watched() -> None:
    gain = 1

    def function(x: float) -> float:
        return x * gain

    found = find_guards(function)

    def assign() -> None:
        nonlocal gain
        gain = 5

    change(found, assign, "closure variable 'gain': 5, captured with 1")


def test_a_closure_variable_without_a_value_yet_is_passed_over() -> None:
    def function() -> Any:
        return later

    assert find_guards(function).items == []
    later = 1


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, True), (1, 1.0), (0.0, -0.0), ("a", "b"), (None, 0), (2, 3)],
    ids=short,
)
def test_values_of_another_type_or_sign_are_others(before: Any, after: Any) -> None:
    box = types.SimpleNamespace(value=before)
    found = find_guards(lambda: box.value)
    change(
        found,
        lambda: setattr(box, "value", after),
        f"attribute 'box.value': {after!r}, captured with {before!r}",
    )


def test_an_equal_value_and_another_nan_are_the_same() -> None:
    box = types.SimpleNamespace(value=float("nan"), text="a" * 40, number=10**20)
    found = find_guards(lambda: (box.value, box.text, box.number))
    box.value, box.text, box.number = -float("nan"), "".join(["a"] * 40), 10**19 * 10
    assert found.moved() == []


def test_attributes_of_the_object_of_a_method_are_watched_where_they_are_read() -> None:
    engine = Engine()
    found = find_guards(engine.step)
    engine.unused = engine.settings.unused = 7
    engine.table["b"] = 7
    assert found.moved() == []
    engine.gain, engine.settings.bias, engine.table["a"], engine.steps[0] = 2, 1.5, 3, 4
    set_global(1.0)
    assert set(found.moved()) == {
        "attribute 'gain': 2, captured with 1",
        "attribute 'settings.bias': 1.5, captured with 0.5",
        "attribute 'table['a']': 3, captured with 1",
        "attribute 'steps[0]': 4, captured with 1",
        "global 'SCALE': 1.0, captured with 2.0",
    }


@pytest.mark.parametrize("form", ["object", "closure", "partial", "list", "method in a closure"])
def test_an_object_is_found_however_it_is_called(form: str) -> None:
    engine = Engine()
    engines, step = [engine], engine.step
    forms = {
        "object": engine,
        "closure": lambda x: engine.step(x) + 1,
        "partial": functools.partial(Engine.step, engine),
        "list": lambda x: engines[0](x) + 1,
        "method in a closure": lambda x: step(x) + 1,
    }
    found = find_guards(forms[form])
    engine.gain = 9
    (change,) = found.moved()
    assert change.endswith("gain': 9, captured with 1")


def test_an_object_in_the_place_of_another_is_told() -> None:
    engine = Engine()
    found = find_guards(lambda x: engine.step(x) + 1)
    engine = Engine()
    assert found.moved() == ["closure variable 'engine': replaced by another object"]


def test_a_name_that_is_made_up_at_run_time_may_be_any() -> None:
    engine = Engine()
    found = find_guards(lambda name: getattr(engine, name))
    change(
        found,
        lambda: setattr(engine, "unused", 2),
        "attribute 'engine.unused': 2, captured with 1",
    )


def test_class_methods_and_static_ones_are_functions() -> None:
    assert find_guards(Engine.made).names == ["global 'SCALE'"]


def test_every_kind_of_method_that_is_called_is_read() -> None:
    class Methods:
        @staticmethod
        def of_none(x: float) -> float:
            return x * SCALE

        @classmethod
        def of_class(cls, x: float) -> float:
            return cls.of_none(x)

        @functools.cached_property
        def once(self) -> float:
            return self.gain

        gain = 1.0

    methods = Methods()
    methods.gain = 2.0
    names = find_guards(lambda x: methods.of_class(x) + methods.once).names
    assert {"global 'SCALE'", "attribute 'methods.gain'"} <= set(names)


def test_an_array_that_does_not_tell_its_address_is_known_by_identity() -> None:
    class Closed(Array):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            raise RuntimeError

    array = Closed(1)
    found = find_guards(lambda: array)
    assert found.items[0].address is None
    assert found.moved() == []
    array = Closed(1)
    assert found.moved() == ["closure variable 'array': replaced by another object"]


def test_defaults_and_partial_arguments_are_watched() -> None:
    array, other = Array(4096), Array(8192)

    def function(x: Any, y: Any = array, *, gain: float = 1.0, z: Any = other) -> Any:
        return x, y, z, gain

    partial = functools.partial(function, Array(256), extra=1)
    found = find_guards(partial)
    assert found.names[:2] == ["default of 'y'", "default of 'gain'"]
    array.address = other.address = 512
    partial.args[0].address = 512
    partial.keywords["extra"] = 2
    moved = "its memory moved (p.data = ..., .to())"
    assert set(found.moved()) == {
        f"default of 'y': {moved}",
        f"default of 'z': {moved}",
        f"argument '0': {moved}",
        "argument 'extra': 2, captured with 1",
    }


def test_arrays_are_kept_and_known_by_their_address() -> None:
    array = Array(4096)
    nested = {"cache": [(array, Array(1))]}
    found = find_guards(lambda: nested)
    assert array in found.keep
    array.address = 8192
    assert found.moved() == [
        "closure variable 'nested['cache'][0][0]': its memory moved (p.data = ..., .to())"
    ]


@pytest.mark.parametrize("wrap", [timer("w"), annotate("w"), functools.lru_cache])
def test_what_a_decorated_function_reads_is_found(wrap: Any) -> None:
    gain = [1.0]

    @wrap
    def function(x: float) -> float:
        return x * gain[0]

    found = find_guards(function)
    gain[0] = 2.0
    assert found.moved() == ["closure variable 'gain[0]': 2.0, captured with 1.0"]


def test_a_decorators_own_cells_are_read_too() -> None:
    gain = 1.0

    def decorator(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(x: float) -> Any:
            return function(x) * gain

        return wrapper

    found = find_guards(decorator(scaled))
    assert {"closure variable 'gain'", "global 'SCALE'"} <= set(found.names)
    gain = 2.0


def test_objects_that_refer_to_one_another_are_walked_once() -> None:
    one, other = types.SimpleNamespace(gain=1), types.SimpleNamespace(gain=2)
    one.peer, other.peer = other, one
    loop: list[Any] = [one]
    loop.append(loop)
    found = find_guards(lambda: (one.peer.peer.gain, loop))
    other.gain = 3
    (change,) = found.moved()
    assert change.endswith("peer.gain': 3, captured with 2")


def test_each_call_looks_at_a_few_of_the_nearest_values() -> None:
    gain = 1.0
    found = find_guards(lambda x: scaled(x) * gain)
    assert [item.expected for item in found.always] == [1.0]
    box = types.SimpleNamespace(**{f"value{i}": i for i in range(30)})
    many = find_guards(functools.partial(lambda **_: None, **vars(box)))
    assert len(many.always) == 8
    assert len(many.items) == 30


def test_items_say_where_to_look_and_what_for() -> None:
    array = Array(4096)
    table = {"a": array}
    found = find_guards(lambda: (table["a"], SCALE))
    cell, entry, scale = found.items
    assert (type(cell.container), cell.key, cell.expected) == (types.CellType, None, table)
    assert entry == (table, "a", array, 4096)
    assert scale == (globals(), "SCALE", 2.0, None)


def test_too_many_places_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_MAX_ITEMS", 5)
    arrays = [Array(i + 1) for i in range(10)]
    found = find_guards(lambda: arrays)
    assert len(found.items) == len(found.names) == 5
    assert found.left_out == 6


def test_a_value_that_the_function_changes_is_noted_as_it_is_after_a_call() -> None:
    engine = types.SimpleNamespace(calls=0)

    def function() -> None:
        engine.calls += 1

    function()
    found = find_guards(function)
    assert found.moved() == []
    function()
    assert found.moved() == ["attribute 'engine.calls': 2, captured with 1"]


def test_a_builtin_reads_nothing() -> None:
    assert find_guards(math.sqrt).items == []
    assert find_guards(sys.getrefcount).moved() == []
