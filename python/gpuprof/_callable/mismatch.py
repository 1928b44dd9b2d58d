"""In words: how a call of a graphed callable differs from those that were captured."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gpuprof._callable.leaves import same_value, value_key
from gpuprof._callable.pytree import Flat, Pattern, flatten_arguments
from gpuprof._common.text import a_type, plural, shown_value, type_name
from gpuprof._frameworks.array_facts import SHAPE, device_name, dtype_name, type_text

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


def describe_closest(flat: Flat, captured: Sequence[Flat]) -> str:
    """Say how a call differs from the captured one that is closest, a line for each difference.

    One more line says how many other graphs there are.
    """
    if not captured:
        return "nothing was captured yet"
    found = min((describe_mismatch(flat, each) for each in captured), key=len)
    if not found:
        return "the arguments fit what was captured"
    others = len(captured) - 1
    if not others:
        return "\n".join(found)
    verb = "differs" if others == 1 else "differ"
    return "\n".join([*found, f"({plural(others, 'other captured graph')} {verb} no less)"])


def check_made(args: tuple[Any, ...], kwargs: dict[str, Any], arrays: Sequence[Any]) -> None:
    """Refuse arguments of registered classes that were made around others than `arrays`."""
    made = flatten_arguments(args, kwargs)
    for leaf, now, array in zip(made.leaves, made.arrays, arrays, strict=False):
        if now is not array:
            message = (
                f"{leaf.path}: another array than was given to make the object with, so that what "
                "the function writes to it would be lost; the unflatten function that its class "
                "was registered with (register_pytree_node) must keep arrays as they are"
            )
            raise TypeError(message)


def check_unchanged(
    args: tuple[Any, ...], kwargs: dict[str, Any], captured: Flat, arrays: Sequence[Any]
) -> None:
    """Refuse a function that puts something else into its arguments: a replay would not.

    They were `captured` with `arrays` when they were given to it. TypeError names what it is.
    """
    does = "and a replay leaves lists, dicts and objects as they are; return the new value instead"
    after = flatten_arguments(args, kwargs)
    for leaf, now, array in zip(after.leaves, after.arrays, arrays, strict=False):
        if now is not array:
            message = f"{leaf.path}: the function replaces it, {does}"
            raise TypeError(message)
    if after.key != captured.key:
        change = describe_mismatch(after, captured)[0]
        message = f"the function changes its arguments, {does}: {change}"
        raise TypeError(message)


def describe_call(flat: Flat, key: Any, captured: Sequence[CapturedCall]) -> list[str]:
    """Say how a call differs from those that were captured, in one text for each difference."""
    same = [each for each in captured if each.key[0] == key[0]]
    if not same:
        return describe_closest(flat, [each.flat for each in captured]).splitlines()
    theirs = same[0].key
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


class _Comparison:
    """Two calls, side by side."""

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
        for key, (name, child) in mine.items():
            at = f"{path}[{shown_value(name)}]" if by_key else f"{path}.{name}"
            if key in theirs:
                yield from self.differences(child, theirs[key][1], at)
            else:
                yield f"{at}: {_thing(self._flat, child)}, captured without it"
        if mine.keys() == theirs.keys() and [*mine] != [*theirs]:
            order = ", ".join(shown_value(name) for name, _ in theirs.values())
            yield f"{path}: the order of its keys, captured {order}"
        for key, (name, child) in theirs.items():
            if key not in mine:
                at = f"{path}[{shown_value(name)}]" if by_key else f"{path}.{name}"
                yield f"{at}: missing, captured {_thing(self._captured, child)}"

    def _of_arrays(self, number: int, captured_number: int, path: str) -> Iterator[str]:
        mine, theirs = self._flat.leaves[number], self._captured.leaves[captured_number]
        if mine.key == theirs.key:
            return
        names = [type_text(each.framework.types[0]) for each in (mine, theirs)]
        if mine.framework.types != theirs.framework.types:
            yield f"{path}: a {names[0]}, captured a {names[1]}"
        own, other = (
            {
                "shape": tuple(leaf.facts[SHAPE]),
                "dtype": dtype_name(leaf.facts),
                "device": device_name(leaf.facts),
            }
            for leaf in (mine, theirs)
        )
        for what in own:
            if own[what] != other[what]:
                yield f"{path}: {what} {own[what]}, captured {other[what]}"

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
