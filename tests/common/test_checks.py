"""Checks of arguments and of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuprof._common import checks


@pytest.mark.parametrize(
    ("check", "value", "text"),
    [
        (checks.text, 1, "x is 1; expected text"),
        (checks.text, b"a" * 200, r"x is b'a{95}\.\.\.; expected text"),
        (lambda n, v: checks.choice(n, v, ("a", "b")), "c", "x is 'c'; expected one of 'a', 'b'"),
        (lambda n, v: checks.choice(n, v, ("a", "b")), ["a"], r"x is \['a'\]; expected one of"),
        (checks.whole, 0, "x is 0; expected a whole number of at least 1"),
        (checks.whole, True, "x is True; expected a whole number"),
        (lambda n, v: checks.whole(n, v, 1, 9), 10, "x is 10; expected a whole number from 1 to 9"),
        (checks.number, "1", "x is '1'; expected a number"),
        (checks.number, 10**400, "expected a finite number"),
        (lambda n, v: checks.number_within(n, v, 0, 1e12), float("nan"), "from 0 to 1e\\+12"),
        (checks.sequence, "abc", "x is 'abc'; expected a list"),
        (checks.mapping, {1: 2}, "x is {1: 2}; expected a mapping of text to values"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_expected(
    check: Callable[[str, Any], object], value: object, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        check("x", value)


def test_what_is_right_is_returned() -> None:
    assert checks.text("x", "") == ""
    assert checks.whole("x", 3) == 3
    assert checks.number("x", 3) == 3.0
    assert checks.mapping("x", {"a": 1}) == {"a": 1}
