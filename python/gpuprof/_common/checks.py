"""Checks of arguments and of data: a ValueError says what is wrong, and what is expected.

Values come from files as well as from callers, so they are shortened in the text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

_MAX_SHOWN = 100


def shortened(value: object) -> str:
    """Write a value for the text of an error."""
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[: _MAX_SHOWN - 3]}..."


def wrong(value: object, what: str, expected: str) -> ValueError:
    """Return the error for a value that is not what is expected."""
    return ValueError(f"{what} is {shortened(value)}; expected {expected}")


def text(name: str, value: object) -> str:
    """Return `value` if it is text."""
    if not isinstance(value, str):
        raise wrong(value, name, "text")
    return value


def choice(name: str, value: object, known: Collection[str]) -> str:
    """Return `value` if it is one of the known texts."""
    if not isinstance(value, str) or value not in known:
        raise wrong(value, name, f"one of {', '.join(map(repr, known))}")
    return value


def whole(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """Return `value` if it is an int from `least` to `most`; bools are refused."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < least
        or (most is not None and value > most)
    ):
        within = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise wrong(value, name, f"a whole number {within}")
    return value


def number(name: str, value: object) -> float:
    """Return `value` as a float if it is an int or a float, also NaN; bools are refused."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(value, name, "a number")
    try:
        return float(value)
    except OverflowError:
        raise wrong(value, name, "a finite number") from None


def number_within(name: str, value: object, least: float, most: float) -> float:
    """Return `value` as a float if it is a number from `least` to `most`."""
    found = number(name, value)
    if not least <= found <= most:
        raise wrong(value, name, f"a number from {least:g} to {most:g}")
    return found


def sequence(name: str, value: object) -> Sequence[Any]:
    """Return `value` if it is a sequence, but not text or bytes."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise wrong(value, name, "a list")
    return value


def mapping(name: str, value: object) -> dict[str, Any]:
    """Return `value` as a dict if it is a mapping whose keys are text."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise wrong(value, name, "a mapping of text to values")
    return dict(value)


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
    except ValueError as error:
        message = f"the text is no JSON: {error}"
        raise ValueError(message) from None
    except TypeError:
        message = f"text is {shortened(text)}; expected what to_json() returns"
        raise ValueError(message) from None
    if not isinstance(data, Mapping):
        message = f"the text holds {shortened(data)}; expected an object, as to_json() writes one"
        raise ValueError(message)
    return data
