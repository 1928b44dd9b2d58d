"""Checks of arguments and of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuprof._common import checks


@pytest.mark.parametrize(
    ("check", "value", "text"),
    [
        (checks.text, 1, "x: expected a str, got 1"),
        (checks.text, b"a" * 200, r"x: expected a str, got b'a{95}\.\.\.$"),
        (lambda n, v: checks.choice(n, v, ("a", "b")), "c", "x: expected one of 'a', 'b', got 'c'"),
        (
            lambda n, v: checks.choice(n, v, ("a", "b")),
            ["a"],
            r"x: expected one of 'a', 'b', got \['a'\]",
        ),
        (checks.whole, 0, "x: expected a whole number of at least 1, got 0"),
        (checks.whole, True, "x: expected a whole number of at least 1, got True"),
        (
            lambda n, v: checks.whole(n, v, 1, 9),
            10,
            "x: expected a whole number from 1 to 9, got 10",
        ),
        (checks.number, "1", "x: expected a finite number, got '1'"),
        (checks.number, 10**400, "expected a finite number"),
        (lambda n, v: checks.number(n, v, 0, 1e12), float("nan"), "from 0 to 1e\\+12"),
        (checks.sequence, "abc", "x: expected a list, got 'abc'"),
        (checks.mapping, {1: 2}, "x: expected a mapping of text to values, got {1: 2}"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_expected(
    check: Callable[[str, Any], object], value: object, text: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        check("x", value)


@pytest.mark.parametrize(
    ("check", "of_a_wrong_type", "wrong"),
    [
        (lambda v: checks.text("x", v, empty=False), 1, ""),
        (lambda v: checks.choice("x", v, ("a", "b")), 1, "c"),
        (lambda v: checks.whole("x", v), 1.0, 0),
        (lambda v: checks.whole("x", v), True, -1),
        (lambda v: checks.number("x", v, 0), "1", float("nan")),
        (lambda v: checks.number("x", v, 0, above=True), None, 0),
    ],
)
def test_a_wrong_type_is_a_type_error_and_a_wrong_value_a_value_error(
    check: Callable[[Any], object], of_a_wrong_type: object, wrong: object
) -> None:
    with pytest.raises(TypeError, match=r"^x: expected "):
        check(of_a_wrong_type)
    with pytest.raises(ValueError, match=r"^x: expected "):
        check(wrong)


def test_all_that_is_wrong_with_data_is_a_value_error() -> None:
    @checks.damaged("the thing")
    def read(data: Any) -> int:
        return checks.whole("x", data["x"])

    assert read({"x": 1}) == 1
    for data, said in (
        ({}, "the thing: 'x' is missing"),
        ({"x": "a"}, "the thing: damaged: x: expected a whole number of at least 1, got 'a'"),
        ({"x": 0}, "^x: expected a whole number"),
        (3, "the thing: damaged: 'int' object"),
    ):
        with pytest.raises(ValueError, match=said):
            read(data)


def test_what_is_not_plain_is_shown_by_its_type() -> None:
    class Array:
        def __repr__(self) -> str:
            raise RuntimeError

    for value in (Array(), [Array()], {"a": (Array(),)}):
        assert checks.shortened(value).startswith("a ")
    assert checks.shortened(10**5000) == "an int of very many digits"


def test_what_is_right_is_returned() -> None:
    assert checks.text("x", "") == ""
    assert checks.whole("x", 3) == 3
    assert checks.number("x", 3) == 3.0
    assert checks.mapping("x", {"a": 1}) == {"a": 1}
