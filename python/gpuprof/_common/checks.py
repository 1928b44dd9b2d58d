"""Checks of arguments and of data, in one form: ``name: expected X, got Y``.

A value of a wrong type is a TypeError, a wrong value of the right type a ValueError. Data that was
read goes through the same checks inside `damaged`, where all that is wrong is a ValueError.
"""

from __future__ import annotations

import json
import math
import numbers
import operator
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

MOST_S = 86_400.0  # a day: no time to wait or to measure is longer
_MAX_SHOWN = 100
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def shortened(value: object) -> str:
    """Write a plain value for an error's text, or a type: the `repr` of an array may wait."""
    if isinstance(value, type):
        return f"the class {_name_of(value)}"
    if not _is_plain(value):
        return f"a {_name_of(type(value))}"
    try:
        shown = repr(value)
    except ValueError:  # an int of more digits than Python writes
        return "an int of very many digits"
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[: _MAX_SHOWN - 3]}..."


def _name_of(kind: type) -> str:  # as text.type_name, which a start of pytest does not load
    builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if builtin else f"{kind.__module__}.{kind.__qualname__}"


def _is_plain(value: object, depth: int = 3) -> bool:
    if type(value) in _PLAIN:
        return True
    if depth == 0:
        return False
    if type(value) is dict:
        items: Collection[Any] = [*value.keys(), *value.values()]
    elif type(value) in (list, tuple, set, frozenset):
        items = value  # type: ignore[assignment]
    else:
        return False
    return len(items) <= _MAX_SHOWN and all(_is_plain(item, depth - 1) for item in items)


def type_error(value: object, name: str, expected: str) -> TypeError:
    return TypeError(f"{name}: expected {expected}, got {shortened(value)}")


def value_error(value: object, name: str, expected: str) -> ValueError:
    return ValueError(f"{name}: expected {expected}, got {shortened(value)}")


def text(name: str, value: object, *, empty: bool = True) -> str:
    """Return `value` if it is text; without `empty` only if there is something in it."""
    if isinstance(value, str) and (value or empty):
        return value
    wrong = value_error if isinstance(value, str) else type_error
    raise wrong(value, name, "a str" if empty else "a non-empty str")


def choice(name: str, value: object, known: Collection[str]) -> str:
    if isinstance(value, str) and value in known:
        return value
    wrong = value_error if isinstance(value, str) else type_error
    raise wrong(value, name, f"one of {', '.join(map(repr, known))}")


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise type_error(value, name, "True or False")
    return value


def whole(
    name: str, value: object, least: int = 1, most: int | None = None, *, unit: str = ""
) -> int:
    """Return `value` as an int if it is an integer from `least` to `most`; bools are refused."""
    if type(value) is int and value >= least and (most is None or value <= most):
        return value
    within = f"of at least {least}" if most is None else f"from {least} to {most}"
    expected = f"a whole number{unit and f' of {unit}'} {within}"
    try:
        found = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise type_error(value, name, expected) from None
    if isinstance(value, bool):
        raise type_error(value, name, expected)
    if found < least or (most is not None and found > most):
        raise value_error(value, name, expected)
    return found


def number(
    name: str,
    value: object,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: bool = False,
    unit: str = "",
) -> float:
    """Return `value` as a float if it is a finite number from `least`, or `above` it, to `most`.

    Scalars of other libraries are numbers too; bools are not.
    """
    if type(value) is float and least < value < most:
        return value
    expected = f"{_kind_of(least, most, above)}{unit and f' of {unit}'}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise type_error(value, name, expected)
    try:
        found = float(value)
    except OverflowError:
        raise value_error(value, name, expected) from None
    if not math.isfinite(found) or not least <= found <= most or (above and found == least):
        raise value_error(value, name, expected)
    return found


def _kind_of(least: float, most: float, above: bool) -> str:
    if least == -math.inf:
        return "a finite number"
    low = f"{'above' if above else 'from'} {least:g}"
    high = f" {'and up ' if above else ''}to {most:g}"
    return f"a finite number {low}" if most == math.inf else f"a number {low}{high}"


def share(text: str) -> float:
    """Return what a text as 5% or 0.05 says; ValueError of another one."""
    number = text.strip()
    return float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)


def path(name: str, value: object) -> str:
    """Return the path as text; a path of bytes is refused."""
    try:
        found = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        raise type_error(value, name, "a str or os.PathLike") from None
    if not isinstance(found, str):
        raise type_error(value, name, "a str or os.PathLike of text (os.fsdecode makes one)")
    return found


def function(name: str, value: object, expected: str = "a callable") -> Callable[..., Any]:
    if not callable(value):
        raise type_error(value, name, expected)
    return value


def sequence(name: str, value: object) -> Sequence[Any]:
    """Return `value` if it is a sequence, but not text or bytes."""
    if type(value) in {list, tuple}:
        return value  # type: ignore[return-value]
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise type_error(value, name, "a list")
    return value


def mapping(name: str, value: object) -> dict[str, Any]:
    """Return `value` as a dict if it is a mapping whose keys are text."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise type_error(value, name, "a mapping of text to values")
    return dict(value)


@contextmanager
def damaged(what: str) -> Iterator[None]:
    """Turn what damaged data raises into a ValueError; usable as a decorator."""
    try:
        yield
    except KeyError as error:
        message = f"{what}: {error} is missing"
        raise ValueError(message) from None
    except (TypeError, AttributeError, IndexError, OverflowError) as error:
        message = f"{what}: damaged: {error}"
        raise ValueError(message) from None


def not_pickled(message: str) -> Callable[[Any], NoReturn]:
    """Return the ``__reduce__`` of what cannot be pickled and copied; the text says why."""

    def refuse(_self: Any) -> NoReturn:
        raise TypeError(message)

    return refuse


def warn(text: str, level: int = 3) -> None:
    """Warn, at a ``stacklevel`` of the caller; where warnings are errors nothing is raised."""
    with suppress(RuntimeWarning):
        warnings.warn(text, RuntimeWarning, stacklevel=level + 1)


def warn_outside(text: str) -> None:
    """Warn, at the first frame around the call that is not gpuprof's."""
    warnings.warn(text, RuntimeWarning, stacklevel=level_outside())


def level_outside() -> int:
    """Return the ``stacklevel`` of the caller's first frame that is not gpuprof's."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(
        "gpuprof."
    ):
        frame = frame.f_back
        level += 1
    return level


def json_object(text: str | bytes) -> Mapping[str, Any]:
    """Return the object that JSON text holds; ValueError says what it is instead."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise value_error(text, "text", "JSON that is not nested as deep") from None
    except ValueError as error:
        message = f"text: expected JSON, got {shortened(text)}: {error}"
        raise ValueError(message) from None
    except TypeError:
        raise type_error(text, "text", "what to_json() returns") from None
    if not isinstance(data, Mapping):
        raise value_error(data, "text", "an object, as to_json() writes one")
    return data
