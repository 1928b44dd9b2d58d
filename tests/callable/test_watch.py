"""What a captured function reads besides its arguments: functions and objects, without torch."""

from __future__ import annotations

import functools
import math
import sys
import types
from typing import Any

import pytest

from gpuprof import annotate, timer
from gpuprof._callable import places
from gpuprof._callable.guards import Watched, collect
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


def change(watched: Watched, change: Any, *expected: str) -> None:
    assert watched.moved() == []
    change()
    assert watched.moved() == list(expected)


def set_global(value: float) -> None:
    globals()["SCALE"] = value


def test_a_global_that_a_function_names_is_watched() -> None:
    watched = collect(scaled)
    assert watched.names == ("global 'SCALE'",)
    change(watched, lambda: set_global(3.0), "global 'SCALE': 3.0, captured with 2.0")


def test_a_global_that_is_deleted_is_told() -> None:
    change(
        collect(scaled), lambda: globals().pop("SCALE"), "global 'SCALE': it is not there any more"
    )


def test_functions_inside_of_a_function_are_read_too() -> None:
    def function(xs: list[float]) -> list[float]:
        return [x * SCALE for x in xs] + list(map(lambda x: x + SCALE, xs))  # noqa: C417

    assert "global 'SCALE'" in collect(function).names


def test_functions_of_the_same_file_that_it_calls_are_read_too() -> None:
    watched = collect(lambda x: scaled(x) + 1)
    assert set(watched.names) == {"global 'scaled'", "global 'SCALE'"}
    change(watched, lambda: set_global(1.0), "global 'SCALE': 1.0, captured with 2.0")


def test_modules_classes_and_builtins_are_no_values() -> None:
    assert collect(lambda x: math.sqrt(len(str(x))) + isinstance(x, Engine)).names == ()


def test_a_closure_variable_is_watched() -> None:
    gain = 1

    def function(x: float) -> float:
        return x * gain

    watched = collect(function)

    def assign() -> None:
        nonlocal gain
        gain = 5

    change(watched, assign, "closure variable 'gain': 5, captured with 1")


def test_a_closure_variable_without_a_value_yet_is_passed_over() -> None:
    def function() -> Any:
        return later

    assert collect(function).items == ()
    later = 1


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, True), (1, 1.0), (0.0, -0.0), ("a", "b"), (None, 0), (2, 3)],
    ids=short,
)
def test_values_of_another_type_or_sign_are_others(before: Any, after: Any) -> None:
    box = types.SimpleNamespace(value=before)
    watched = collect(lambda: box.value)
    change(
        watched,
        lambda: setattr(box, "value", after),
        f"attribute 'box.value': {after!r}, captured with {before!r}",
    )


def test_an_equal_value_and_another_nan_are_the_same() -> None:
    box = types.SimpleNamespace(value=float("nan"), text="a" * 40, number=10**20)
    watched = collect(lambda: (box.value, box.text, box.number))
    box.value, box.text, box.number = -float("nan"), "".join(["a"] * 40), 10**19 * 10
    assert watched.moved() == []


def test_attributes_of_the_object_of_a_method_are_watched_where_they_are_read() -> None:
    engine = Engine()
    watched = collect(engine.step)
    engine.unused = engine.settings.unused = 7
    engine.table["b"] = 7
    assert watched.moved() == []
    engine.gain, engine.settings.bias, engine.table["a"], engine.steps[0] = 2, 1.5, 3, 4
    set_global(1.0)
    assert set(watched.moved()) == {
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
    watched = collect(forms[form])
    engine.gain = 9
    (change,) = watched.moved()
    assert change.endswith("gain': 9, captured with 1")


def test_an_object_in_the_place_of_another_is_told() -> None:
    engine = Engine()
    watched = collect(lambda x: engine.step(x) + 1)
    engine = Engine()
    assert watched.moved() == ["closure variable 'engine': replaced by another object"]


def test_a_name_that_is_made_up_at_run_time_may_be_any() -> None:
    engine = Engine()
    watched = collect(lambda name: getattr(engine, name))
    change(
        watched,
        lambda: setattr(engine, "unused", 2),
        "attribute 'engine.unused': 2, captured with 1",
    )


def test_class_methods_and_static_ones_are_functions() -> None:
    assert collect(Engine.made).names == ("global 'SCALE'",)


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
    names = collect(lambda x: methods.of_class(x) + methods.once).names
    assert {"global 'SCALE'", "attribute 'methods.gain'"} <= set(names)


def test_an_array_that_does_not_tell_its_address_is_known_by_identity() -> None:
    class Closed(Array):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            raise RuntimeError

    array = Closed(1)
    watched = collect(lambda: array)
    assert watched.items[0].address is None
    assert watched.moved() == []
    array = Closed(1)
    assert watched.moved() == ["closure variable 'array': replaced by another object"]


def test_defaults_and_partial_arguments_are_watched() -> None:
    array, other = Array(4096), Array(8192)

    def function(x: Any, y: Any = array, *, gain: float = 1.0, z: Any = other) -> Any:
        return x, y, z, gain

    partial = functools.partial(function, Array(256), extra=1)
    watched = collect(partial)
    assert watched.names[:2] == ("default of 'y'", "default of 'gain'")
    array.address = other.address = 512
    partial.args[0].address = 512
    partial.keywords["extra"] = 2
    moved = "its memory moved (p.data = ..., .to())"
    assert set(watched.moved()) == {
        f"default of 'y': {moved}",
        f"default of 'z': {moved}",
        f"argument '0': {moved}",
        "argument 'extra': 2, captured with 1",
    }


def test_arrays_are_kept_and_known_by_their_address() -> None:
    array = Array(4096)
    nested = {"cache": [(array, Array(1))]}
    watched = collect(lambda: nested)
    assert array in watched.keep
    array.address = 8192
    assert watched.moved() == [
        "closure variable 'nested['cache'][0][0]': its memory moved (p.data = ..., .to())"
    ]


@pytest.mark.parametrize("wrap", [timer("w"), annotate("w"), functools.lru_cache])
def test_what_a_decorated_function_reads_is_found(wrap: Any) -> None:
    gain = [1.0]

    @wrap
    def function(x: float) -> float:
        return x * gain[0]

    watched = collect(function)
    gain[0] = 2.0
    assert watched.moved() == ["closure variable 'gain[0]': 2.0, captured with 1.0"]


def test_a_decorators_own_cells_are_read_too() -> None:
    gain = 1.0

    def decorator(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(x: float) -> Any:
            return function(x) * gain

        return wrapper

    watched = collect(decorator(scaled))
    assert {"closure variable 'gain'", "global 'SCALE'"} <= set(watched.names)
    gain = 2.0


def test_objects_that_refer_to_one_another_are_walked_once() -> None:
    one, other = types.SimpleNamespace(gain=1), types.SimpleNamespace(gain=2)
    one.peer, other.peer = other, one
    loop: list[Any] = [one]
    loop.append(loop)
    watched = collect(lambda: (one.peer.peer.gain, loop))
    other.gain = 3
    (change,) = watched.moved()
    assert change.endswith("peer.gain': 3, captured with 2")


def test_each_call_looks_at_a_few_of_the_nearest_values() -> None:
    gain = 1.0
    watched = collect(lambda x: scaled(x) * gain)
    assert [item.expected for item in watched.always] == [1.0]
    box = types.SimpleNamespace(**{f"value{i}": i for i in range(30)})
    many = collect(functools.partial(lambda **_: None, **vars(box)))
    assert len(many.always) == 8
    assert len(many.items) == 30


def test_items_say_where_to_look_and_what_for() -> None:
    array = Array(4096)
    table = {"a": array}
    watched = collect(lambda: (table["a"], SCALE))
    cell, entry, scale = watched.items
    assert (type(cell.container), cell.key, cell.expected) == (types.CellType, None, table)
    assert entry == (table, "a", array, 4096)
    assert scale == (globals(), "SCALE", 2.0, None)


def test_too_many_places_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_MAX_ITEMS", 5)
    arrays = [Array(i + 1) for i in range(10)]
    watched = collect(lambda: arrays)
    assert len(watched.items) == len(watched.names) == 5
    assert watched.left_out == 6


def test_a_value_that_the_function_changes_is_noted_as_it_is_after_a_call() -> None:
    engine = types.SimpleNamespace(calls=0)

    def function() -> None:
        engine.calls += 1

    function()
    watched = collect(function)
    assert watched.moved() == []
    function()
    assert watched.moved() == ["attribute 'engine.calls': 2, captured with 1"]


def test_a_builtin_reads_nothing() -> None:
    assert collect(math.sqrt).items == ()
    assert collect(sys.getrefcount).moved() == []
