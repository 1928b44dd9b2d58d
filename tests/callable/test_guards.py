"""What C++ guards: dicts, lists, sets, objects and arrays, without torch."""

from __future__ import annotations

import collections
import gc
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuprof._core as _core
from gpuprof._callable.observe import Range, merged
from tests.support.ids import short

ABSENT = _core._Guards.ABSENT
NAN = float("nan")


class Holder:
    """An object with attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Array:
    """An array of some library."""

    def __init__(self, address: int = 4096, shape: tuple[int, ...] = (2, 3)) -> None:
        self.address = address
        self.shape = shape
        self.typestr = "<f4"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        return {"data": data, "shape": self.shape, "typestr": self.typestr, "version": 3}


def container(entries: Any, expected: dict[Any, Any], whole: bool, owner: Any = None) -> Any:
    return entries, tuple(expected), tuple(expected.values()), whole, owner


def whole(entries: dict[Any, Any]) -> _core._Guards:
    return _core._Guards((container(entries, entries, True),), (), 0)


def listed(entries: dict[Any, Any], owner: Any = None, **expected: Any) -> _core._Guards:
    return _core._Guards((container(entries, expected, False, owner),), (), 0)


def arrays(*given: Array, at_once: int = 0) -> _core._Guards:
    return _core._Guards((), tuple((each, _core._array_facts(each)) for each in given), at_once)


def reverse(entries: dict[Any, Any]) -> None:
    items = list(entries.items())[::-1]
    entries.clear()
    entries.update(items)


CHANGES: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "assigned": lambda d: d.__setitem__("a", object()),
    "added": lambda d: d.__setitem__("new", None),
    "deleted": lambda d: d.__delitem__("b"),
    "popped": lambda d: d.pop("a"),
    "popped item": lambda d: d.popitem(),
    "cleared": lambda d: d.clear(),
    "updated": lambda d: d.update(b=1),
    "set by default": lambda d: d.setdefault("new"),
    "merged": lambda d: d.__ior__({"a": 1}),
    "in another order": reverse,
    "grown": lambda d: d.update({str(i): i for i in range(1000)}),
}


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_of_a_whole_dict_is_found(change: Any, kind: Any) -> None:
    entries = kind(a=object(), b=[])
    guards, before = whole(entries), dict(entries)
    assert guards.hold()
    change(entries)
    assert not guards.hold()
    assert not guards.hold()
    entries.clear()
    entries.update(before)
    assert guards.hold()


def test_only_listed_keys_of_a_dict_are_looked_at() -> None:
    entries = {"a": 1, "b": 2.0, "c": "x"}
    guards = listed(entries, a=1, c="x", d=ABSENT)
    entries["b"] = entries["other"] = object()  # type: ignore[assignment]
    assert guards.hold()
    for key, value, old in [("a", 2, 1), ("c", "y", "x")]:
        entries[key] = value
        assert not guards.hold()
        entries[key] = old
        assert guards.hold()
    entries["d"] = None  # type: ignore[assignment]
    assert not guards.hold()
    del entries["d"]
    assert guards.hold()
    del entries["a"]
    assert not guards.hold()


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, True), (1, 1.0), (0.0, -0.0), ("a", "b"), (None, 0), (True, False), ([], [])],
    ids=short,
)
def test_values_of_another_type_or_sign_are_others(before: Any, after: Any) -> None:
    entries = {"a": before}
    guards = whole(entries), listed(entries, a=before)
    entries["a"] = after
    assert not any(each.hold() for each in guards)


def test_an_equal_plain_value_and_another_nan_are_the_same() -> None:
    entries = {"a": NAN, "b": 10**20, "c": "a" * 40}
    guards = whole(entries)
    entries.update(a=-NAN, b=10**19 * 10, c="".join(["a"] * 40))
    assert guards.hold()


def test_lists_and_sets_hold_what_they_held() -> None:
    given, names = [1, None, "a"], {1, "a"}
    guards = _core._Guards(
        (
            container(given, dict(enumerate(given)), True),
            container(names, dict.fromkeys(names), True),
        ),
        (),
        0,
    )
    for change, undo in [
        (lambda: given.append(1), given.pop),
        (lambda: given.__setitem__(0, True), lambda: given.__setitem__(0, 1)),
        (given.reverse, given.reverse),
        (lambda: names.add(2), lambda: names.discard(2)),
        (lambda: names.discard("a"), lambda: names.add("a")),
        (lambda: (names.discard("a"), names.add("b")), lambda: names.__ixor__({"a", "b"})),
    ]:
        assert guards.hold()
        change()
        assert not guards.hold()
        undo()
    assert guards.hold()


def test_the_dict_of_an_object_has_to_be_the_same() -> None:
    holder = Holder(scale=1)
    own = vars(holder)
    guards = listed(own, holder, scale=1)
    assert guards.hold()
    holder.__dict__ = dict(own)
    assert not guards.hold()
    holder.__dict__ = own
    assert guards.hold()


@pytest.mark.parametrize("times", [1, 2000])
def test_attributes_that_are_assigned_are_found(times: int) -> None:
    def assign(value: int) -> None:
        holder.scale = value  # type: ignore[attr-defined]

    holder = Holder(scale=0)
    guards = listed(vars(holder), holder, scale=0)
    for _ in range(times):  # until the interpreter has a fast way for it
        assign(0)
    assert guards.hold()
    assert list(vars(holder)) == list(vars(Holder(scale=0)))
    assign(1)
    assert not guards.hold()
    assign(0)
    assert guards.hold()
    del holder.scale  # type: ignore[attr-defined]
    assert not guards.hold()


def test_a_dict_may_be_guarded_several_times() -> None:
    entries = {"a": 1}
    one, other = whole(entries), whole(entries)
    assert one.hold()
    assert other.hold()
    del one
    entries["a"] = 2
    assert not other.hold()
    again = _core._Guards(2 * (container(entries, {"a": 2}, True),), (), 0)
    del other
    assert again.hold()
    entries["a"] = 1
    assert not again.hold()
    del again
    entries["a"] = 3  # nobody is told
    assert whole(entries).hold()


def test_flagged_guards_do_not_hold() -> None:
    guards = _core._Guards((), (), 0)
    assert guards.hold()
    guards.flag()
    assert not guards.hold()


@pytest.mark.parametrize(
    ("name", "value"), [("address", 8192), ("shape", (3, 2)), ("shape", (6,)), ("typestr", "<i4")]
)
def test_an_array_that_moved_or_changed_is_found(name: str, value: Any) -> None:
    array = Array()
    guards = arrays(Array(), array)
    assert guards.hold()
    setattr(array, name, value)
    assert not guards.hold()


def test_a_sweep_finds_an_array_in_as_many_checks_as_there_are() -> None:
    given = [Array() for _ in range(7)]
    guards = arrays(*given, at_once=1)
    for moved in given:
        moved.address = 8192
        assert [guards.hold() for _ in given].count(False) == 1
        moved.address = 4096
    assert all(guards.hold() for _ in given)
    assert all(arrays(*given, at_once=10).hold() for _ in given)


@pytest.mark.parametrize(
    ("dicts", "tensors"),
    [
        ((((), (), (), True, None),), ()),
        ((({}, (), (), True),), ()),
        ((({}, (1,), (), True, None),), ()),
        ((), ((1, None),)),
        ((), ((Array(), (1, 2)),)),
        ((), (Array(),)),
    ],
    ids=short,
)
def test_what_cannot_be_guarded_is_refused(dicts: Any, tensors: Any) -> None:
    with pytest.raises((ValueError, RuntimeError, TypeError)):
        _core._Guards(dicts, tensors, 0)


def test_nothing_is_kept_alive_after_release() -> None:
    class Value:
        pass

    entries, array = {"a": Value()}, Array()
    held = weakref.ref(entries["a"]), weakref.ref(array)
    guards = _core._Guards(
        (container(entries, entries, True),), ((array, _core._array_facts(array)),), 0
    )
    counts = sys.getrefcount(entries)
    del array
    entries.clear()
    assert all(each() is not None for each in held)
    del guards
    assert not any(each() for each in held)
    assert sys.getrefcount(entries) == counts - 1


def test_a_cycle_through_guards_is_collected() -> None:
    holder = Holder(training=True)
    gone = weakref.ref(holder)
    holder.guards = listed(vars(holder), holder, training=True)  # type: ignore[attr-defined]
    holder.itself = holder  # type: ignore[attr-defined]
    del holder
    gc.collect()
    assert gone() is None


# Arrays that share memory, for which it matters which copy is made first.

PLACES = st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda one: (one[0], sum(one)))
HOW = st.sampled_from(["read", "written", "in place"])
OTHERS = st.lists(PLACES, max_size=3).map(merged)


def entry(how: list[str], written: list[Range], read: list[Range]) -> Any:
    """Return an entry for as many arrays, which it copies in, copies back too, or leaves there."""
    arrays = [
        {
            "framework": types.SimpleNamespace(types=(bytes,), in_place=each == "in place"),
            "inside": None,
            "desc": (0, 2, 0, (2, 32, 1), (1,), (1,)),
            "call_strides": None,
            "requires_grad": None,
            "of_torch": False,
            "copied_in": each != "in place",
            "copied_back": each == "written",
        }
        for each in how
    ]
    return _core._CacheEntry(
        graph=None,
        args=("tuple", ()),
        keywords=("dict", (), ()),
        keywords_in_order=False,
        arrays=arrays,
        state_guards=(),
        guards=_core._Guards((), (), 0),
        results=(),
        result=("tuple", ()),
        written=written,
        read=read,
        after=None,
        apply=None,
        verify_every=0,
        device=0,
        stream_type=None,
        stream=None,
    )


def meet(one: Range, others: list[Range]) -> bool:
    return any(one[0] < end and begin < one[1] for begin, end in others)


@given(st.lists(st.tuples(PLACES, HOW), max_size=4), OTHERS, OTHERS)
def test_they_overlap_if_and_only_if_the_order_matters(
    arrays: list[tuple[Range, str]], written: list[Range], read: list[Range]
) -> None:
    places = [place for place, _ in arrays]
    expected = any(
        (how != "in place" and meet(place, written))
        or (how == "written" and meet(place, read + places[:number] + places[number + 1 :]))
        for number, (place, how) in enumerate(arrays)
    )
    assert entry([how for _, how in arrays], written, read).overlap_at(places) == expected


def test_where_there_are_not_all_arrays_nothing_is_said_of_their_order() -> None:
    assert entry(["read"], [], []).overlap_at([])
