"""In words: how a call of a graphed callable differs from those that were captured."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from gpuprof._callable.leaves import Leaf, same_value, value_key
from gpuprof._callable.pytree import Flat, Pattern, flatten_arguments
from gpuprof._common.containers import made_by
from gpuprof._common.text import a_type, shown_value, type_name
from gpuprof._frameworks.array_facts import device_name, dtype_name, type_text

_OF_RESULT = 3  # parts of the pattern of an object in a result


def describe_mismatch(flat: Flat, captured: Flat) -> list[str]:
    """Say in which ways the arguments of a call differ from captured ones.

    Each text begins with its path, as in "args[0]['x']: shape (1, 8), captured (4, 8)". There is
    none if and only if their keys are equal.
    """
    pairs = zip(flat.pattern[1], captured.pattern[1], ("args", "kwargs"), strict=True)
    places = [place for pair in pairs for place in unlike(*pair)]
    return [text for place in places for text in _texts(flat, captured, *place)]


def unlike(
    pattern: Pattern | None, other: Pattern | None, path: str
) -> Iterator[tuple[str, Pattern | None, Pattern | None]]:
    """Yield where two structures are not the same or have arrays, by path, with what is there.

    That is two patterns, of which one is None where only the other has something at the path. Of a
    container that has the same keys in another order it is the container.
    """
    if pattern is None or other is None or "array" in (pattern[0], other[0]):
        yield path, pattern, other
    elif pattern[0] == other[0] == "value":
        if not same_value(pattern[1], other[1]):
            yield path, pattern, other
    elif _head(pattern) != _head(other):
        yield path, pattern, other
    else:
        mine, theirs = _children(pattern), _children(other)
        if mine.keys() == theirs.keys() and [*mine] != [*theirs]:
            yield path, pattern, other
        for step in mine | theirs:
            yield from unlike(mine.get(step), theirs.get(step), path + step[0])


def other_parts(result: Flat, other: Flat) -> Iterator[tuple[str, Any, Any]]:
    """Yield where two results differ besides what their arrays hold: the path, and both parts.

    Constants are as they are, other parts in words.
    """
    reordered = False
    for path, mine, theirs in unlike(result.pattern, other.pattern, "result"):
        if mine is not None and theirs is not None and mine[0] == theirs[0] == "value":
            yield path, mine[1], theirs[1]
        elif mine is None or theirs is None or _head(mine) != _head(theirs):
            told = _thing(result, mine), _thing(other, theirs)
            yield path, told[0], told[1] if told[0] != told[1] else f"{told[1]} with other parts"
        elif mine[0] != "array":
            order = [", ".join(step for step, _ in _children(each)) for each in (mine, theirs)]
            yield path, f"the order {order[0]}", f"the order {order[1]}"
            reordered = True
        else:  # by where an array is first: numbers shift with what is missing or elsewhere
            first = result.leaves[mine[1]].path, other.leaves[theirs[1]].path
            if first[0] != first[1] and not reordered:
                yield path, _shared(result, mine, path), _shared(other, theirs, path)


def _shared(flat: Flat, pattern: Pattern, path: str) -> str:
    first = flat.leaves[pattern[1]].path
    return _thing(flat, pattern) if first == path else f"the same array as {first}"


def _head(pattern: Pattern) -> Hashable:
    """Return what a container is, whatever is inside."""
    kind, what = pattern[:2]
    if kind == "object" and len(pattern) == _OF_RESULT:
        return kind, made_by(what)[0], getattr(what, "factory", None)
    if kind == "registered":
        return pattern[:3]
    return (kind, what) if kind in {"object", "mapping"} else kind


def _children(pattern: Pattern) -> dict[tuple[str, Hashable], Pattern]:
    """Return what is in a container, by the step in the path that leads there and its key."""
    kind, inside = pattern[0], pattern[-1]
    if kind == "registered":
        steps: list[tuple[str, Hashable]] = [("", 0), (" (context)", 1)]
    elif kind in {"dict", "mapping"}:
        steps = [(f"[{shown_value(key)}]", value_key(key)) for key in pattern[-2]]
    elif kind == "object" and len(pattern) == _OF_RESULT:
        _, names, paths = made_by(pattern[1])
        steps = list(zip(paths, map(value_key, names), strict=True))
    elif kind == "object":
        steps = [(f".{name}", name) for name in pattern[-2]]
    else:
        steps = [(f"[{number}]", number) for number in range(len(inside))]
    return dict(zip(steps, inside, strict=True))


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
    """Refuse a function that puts something else into its arguments: a replay would not."""
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


def describe_call(flat: Flat, key: Any, captured: Sequence[tuple[Any, Flat]]) -> list[str]:
    """Say how a call differs from the closest of the captured ones, which are keys and arguments.

    There is a text, unless two threads began to capture at once.
    """
    same = [each for each in captured if each[0][0] == key[0]]
    if not same:
        return min((describe_mismatch(flat, each) for _, each in captured), key=len)
    theirs, theirs_flat = same[0]
    lines: list[str] = key[1].describe_difference(theirs[1])
    if key[2] != theirs[2]:
        lines.append("training mode: another than captured")
    if key[3] != theirs[3]:
        lines.append("requires_grad: of other arguments or parameters than captured")
    if key[4] != theirs[4]:
        lines.append(f"guards: {key[4][0]!r}, captured {theirs[4][0]!r}")
    if not lines and flat.layout != theirs_flat.layout:
        lines.append("strides of arguments: others than captured")
    return lines


def _texts(
    flat: Flat, captured: Flat, path: str, pattern: Pattern | None, other: Pattern | None
) -> list[str]:
    """Write how what is at one path differs; nothing of arrays that one graph serves."""
    if pattern is None:
        return [f"{path}: missing, captured {_thing(captured, other)}"]
    if other is None:
        return [f"{path}: {_thing(flat, pattern)}, captured without it"]
    if pattern[0] == other[0] == "array":
        return _of_arrays(flat.leaves[pattern[1]], captured.leaves[other[1]], path)
    if pattern[0] == other[0] == "value":
        return [f"{path}: {_values(pattern[1], other[1])}"]
    if _head(pattern) == _head(other):
        order = ", ".join(map(shown_value, other[-2]))
        return [f"{path}: the order of its keys, captured {order}"]
    return [f"{path}: {_thing(flat, pattern)}, captured {_thing(captured, other)}"]


def _of_arrays(mine: Leaf, theirs: Leaf, path: str) -> list[str]:
    if mine.key == theirs.key:
        return []
    found = []
    if mine.framework.types != theirs.framework.types:
        names = [type_text(each.framework.types[0]) for each in (mine, theirs)]
        found.append(f"{path}: a {names[0]}, captured a {names[1]}")
    for what, now, then in (
        ("shape", mine.facts.shape, theirs.facts.shape),
        ("dtype", dtype_name(mine.facts), dtype_name(theirs.facts)),
        ("device", device_name(mine.facts), device_name(theirs.facts)),
    ):
        if now != then:
            found.append(f"{path}: {what} {now}, captured {then}")
    # An array that is used in place is told from others by these as well.
    return found or [f"{path}: another address or other strides than captured"]


def _thing(flat: Flat, pattern: Pattern | None) -> str:
    """Write what is at a place in few words."""
    if pattern is None:
        return "nothing"
    kind = pattern[0]
    if kind == "array":
        return str(flat.leaves[pattern[1]])
    if kind == "value":
        return shown_value(pattern[1])
    if kind == "object" and len(pattern) == _OF_RESULT:
        return a_type(made_by(pattern[1])[0])
    return a_type(pattern[1]) if isinstance(pattern[1], type) else f"a {kind}"


def _values(value: object, captured: object) -> str:
    own, other = shown_value(value), shown_value(captured)
    if type(value) is not type(captured):
        own, other = f"{own} ({type_name(type(value))})", f"{other} ({type_name(type(captured))})"
    if own != other:
        return f"{own}, captured {other}"
    return f"{own}, captured another that looks the same"
