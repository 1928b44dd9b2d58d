"""In words: how a call of a graphed callable differs from those that were captured."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpuprof._callable.leaves import same_value, value_key
from gpuprof._callable.pytree import Flat, Pattern, flatten_arguments
from gpuprof._common.text import a_type, plural, shown_value, type_name
from gpuprof._frameworks.array_facts import Facts, device_name, dtype_name, type_text

if TYPE_CHECKING:
    from gpuprof._callable.entry import CapturedCall


def describe_mismatch(flat: Flat, captured: Flat) -> list[str]:
    """Say in which ways the arguments of a call differ from captured ones.

    Each text begins with its path, as in "args[0]['x']: shape (1, 8), captured (4, 8)". There is
    none if and only if their keys are equal.
    """
    args, kwargs = flat.pattern[1]
    captured_args, captured_kwargs = captured.pattern[1]
    walk = _Comparison(flat, captured)
    return [
        *walk.differences(args, captured_args, "args"),
        *walk.differences(kwargs, captured_kwargs, "kwargs"),
    ]


def check_made(args: tuple[Any, ...], kwargs: dict[str, Any], arrays: Sequence[Any]) -> None:
    """Refuse arguments of registered classes that were made around others than `arrays`."""
    _check_arrays(
        flatten_arguments(args, kwargs),
        arrays,
        "another array than was given to make the object with, so that what the function writes to "
        "it would be lost; the unflatten function that its class was registered with "
        "(register_pytree_node) must keep arrays as they are",
    )


def check_unchanged(
    args: tuple[Any, ...], kwargs: dict[str, Any], captured: Flat, arrays: Sequence[Any]
) -> None:
    """Refuse a function that puts something else into its arguments: a replay would not.

    They were `captured` with `arrays` when they were given to it. TypeError names what it is.
    """
    does = "and a replay leaves lists, dicts and objects as they are; return the new value instead"
    after = flatten_arguments(args, kwargs)
    _check_arrays(after, arrays, f"the function replaces it, {does}")
    if after.key != captured.key:
        change = describe_mismatch(after, captured)[0]
        message = f"the function changes its arguments, {does}: {change}"
        raise TypeError(message)


def _check_arrays(found: Flat, arrays: Sequence[Any], wrong: str) -> None:
    for leaf, now, array in zip(found.leaves, found.arrays, arrays, strict=False):
        if now is not array:
            message = f"{leaf.path}: {wrong}"
            raise TypeError(message)


def describe_call(flat: Flat, key: Any, captured: Sequence[CapturedCall]) -> list[str]:
    """Say how a call differs from the captured one that is closest, in a text for each difference.

    With ``on_new_shape="raise"`` there is one, unless two threads began to capture at once.
    """
    same = [each for each in captured if each.kind.key[0] == key[0]]
    if not same:
        return min((describe_mismatch(flat, each.flat) for each in captured), key=len)
    theirs = same[0].kind.key
    lines: list[str] = key[1].describe_difference(theirs[1])
    if key[2] != theirs[2]:
        lines.append("training mode: another than captured")
    if key[3] != theirs[3]:
        lines.append("requires_grad: of other arguments or parameters than captured")
    if key[5:] != theirs[5:]:
        lines.append("strides of arguments: others than captured")
    if key[4] != theirs[4]:
        lines.append(f"guards: {key[4][0]!r}, captured {theirs[4][0]!r}")
    return lines


_OF_ARRAYS: dict[str, Callable[[Facts], Any]] = {
    "shape": operator.attrgetter("shape"),
    "dtype": dtype_name,
    "device": device_name,
}


class _Comparison:
    def __init__(self, flat: Flat, captured: Flat) -> None:
        self._flat = flat
        self._captured = captured

    def differences(self, pattern: Pattern, captured: Pattern, path: str) -> Iterator[str]:
        kind = pattern[0]
        if kind != captured[0]:
            yield self._other_thing(pattern, captured, path)
        elif kind == "array":
            yield from self._of_arrays(pattern[1], captured[1], path)
        elif kind == "value":
            if not same_value(pattern[1], captured[1]):
                yield f"{path}: {_values(pattern[1], captured[1])}"
        elif kind in {"tuple", "list"}:
            mine, theirs = pattern[1], captured[1]
            if len(mine) != len(theirs):
                yield f"{path}: {plural(len(mine), 'item')}, captured {len(theirs)}"
            for place, pair in enumerate(zip(mine, theirs, strict=False)):
                yield from self.differences(*pair, f"{path}[{place}]")
        elif kind in {"object", "mapping", "registered"} and pattern[1] is not captured[1]:
            yield self._other_thing(pattern, captured, path)
        elif kind == "registered":
            yield from self.differences(pattern[3][0], captured[3][0], path)
            yield from self.differences(pattern[3][1], captured[3][1], f"{path} (context)")
        else:
            yield from self._of_names(pattern, captured, path)

    def _of_names(self, pattern: Pattern, captured: Pattern, path: str) -> Iterator[str]:
        by_key = pattern[0] != "object"
        mine, theirs = _by_name(pattern), _by_name(captured)
        for key, (name, child) in (mine | theirs).items():
            at = f"{path}[{shown_value(name)}]" if by_key else f"{path}.{name}"
            if key not in theirs:
                yield f"{at}: {_thing(self._flat, child)}, captured without it"
            elif key not in mine:
                yield f"{at}: missing, captured {_thing(self._captured, child)}"
            else:
                yield from self.differences(mine[key][1], child, at)
        if mine.keys() == theirs.keys() and [*mine] != [*theirs]:
            order = ", ".join(shown_value(name) for name, _ in theirs.values())
            yield f"{path}: the order of its keys, captured {order}"

    def _of_arrays(self, number: int, captured_number: int, path: str) -> Iterator[str]:
        mine, theirs = self._flat.leaves[number], self._captured.leaves[captured_number]
        if mine.key == theirs.key:
            return
        found = []
        if mine.framework.types != theirs.framework.types:
            names = [type_text(each.framework.types[0]) for each in (mine, theirs)]
            found.append(f"{path}: a {names[0]}, captured a {names[1]}")
        for what, tell in _OF_ARRAYS.items():
            own, other = tell(mine.facts), tell(theirs.facts)
            if own != other:
                found.append(f"{path}: {what} {own}, captured {other}")
        # An array that is used in place is told from others by these as well.
        yield from found or [f"{path}: another address or other strides than captured"]

    def _other_thing(self, pattern: Pattern, captured: Pattern, path: str) -> str:
        mine, theirs = _thing(self._flat, pattern), _thing(self._captured, captured)
        return f"{path}: {mine}, captured {theirs}"


def _by_name(pattern: Pattern) -> dict[Hashable, tuple[Any, Pattern]]:
    pairs = zip(pattern[-2], pattern[-1], strict=True)
    return {value_key(name): (name, child) for name, child in pairs}


def _thing(flat: Flat, pattern: Pattern) -> str:
    """Write what is at a place in few words."""
    kind = pattern[0]
    if kind == "array":
        return str(flat.leaves[pattern[1]])
    if kind == "value":
        return shown_value(pattern[1])
    return a_type(pattern[1]) if isinstance(pattern[1], type) else f"a {kind}"


def _values(value: object, captured: object) -> str:
    own, other = shown_value(value), shown_value(captured)
    if type(value) is not type(captured):
        own, other = f"{own} ({type_name(type(value))})", f"{other} ({type_name(type(captured))})"
    if own != other:
        return f"{own}, captured {other}"
    return f"{own}, captured another that looks the same"
