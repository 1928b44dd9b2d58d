"""Which calls of a graphed callable are alike, and how a difference is told."""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpuprof._callable.mismatch import describe_mismatch
from tests.support.stand_in_arrays import FLOAT16, MANAGED, PINNED, Array, OtherArray
from tests.support.structures import Batch, Color, Frozen, Named, Output, Pair, Slotted, flat, same

pytestmark = pytest.mark.usefixtures("arrays")

STAND_INS = "tests.support.stand_in_arrays"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: Array(4, 8), lambda: Array(4, 8, address=8192)),
        (lambda: Array(2, kind=MANAGED), lambda: Array(2)),
        (lambda: math.nan, lambda: float("nan")),
        (lambda: complex(math.nan, 1), lambda: complex(math.nan, 1)),
        (lambda: np.float32("nan"), lambda: np.float32("nan")),
        (lambda: slice(1, None, 2), lambda: slice(1, None, 2)),
        (lambda: Named("a"), lambda: Named("a")),
        (lambda: Color.RED, lambda: Color.RED),
        (lambda: Frozen(Array(1)), lambda: Frozen(Array(1))),
        (lambda: Slotted(Array(1)), lambda: Slotted(Array(1))),
        (lambda: Output(Array(1)), lambda: Output(Array(1))),
        (lambda: time.struct_time(range(9)), lambda: time.struct_time(range(9))),
    ],
)
def test_calls_that_one_graph_serves(one: Callable[[], Any], other: Callable[[], Any]) -> None:
    assert same(flat(one()), flat(other()))
    assert same(flat(k=[one()]), flat(k=[other()]))


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (lambda: Array(1, 8), lambda: Array(4, 8), "shape (1, 8), captured (4, 8)"),
        (lambda: Array(8), lambda: Array(8, 1), "shape (8,), captured (8, 1)"),
        (lambda: Array(2, dtype=FLOAT16), lambda: Array(2), "dtype float16, captured float32"),
        (
            lambda: Array(2, dtype=(4, 16, 1)),
            lambda: Array(2, dtype=(6, 8, 1)),
            "dtype bfloat16, captured bool",
        ),
        (lambda: Array(2, device=1), lambda: Array(2), "device cuda:1, captured cuda:0"),
        (
            lambda: Array(2, kind=PINNED),
            lambda: Array(2),
            "device pinned host memory, captured cuda:0",
        ),
        (
            lambda: OtherArray(2),
            lambda: Array(2),
            f"a {STAND_INS}.OtherArray, captured a {STAND_INS}.Array",
        ),
        (
            lambda: 3,
            lambda: Array(4, 8),
            "3, captured a float32 tests.support.stand_in_arrays.Array of shape (4, 8)",
        ),
        (lambda: 1, lambda: True, "1 (int), captured True (bool)"),
        (lambda: 1, lambda: 1.0, "1 (int), captured 1.0 (float)"),
        (lambda: 0.0, lambda: -0.0, "0.0, captured -0.0"),
        (lambda: 1j, lambda: complex(-0.0, 1), "1j, captured (-0+1j)"),
        (lambda: "a", lambda: b"a", "'a' (str), captured b'a' (bytes)"),
        (lambda: np.float32(0), lambda: np.float32(-0.0), ", captured "),
        (lambda: np.float32(1), lambda: np.float64(1), ", captured "),
        (lambda: frozenset({1}), lambda: frozenset({True}), "captured frozenset({True})"),
        (lambda: slice(1), lambda: slice(True), "captured slice(None, True, None)"),
        (lambda: Color.RED, lambda: Color.GREEN, "captured <Color.GREEN: 2>"),
        (lambda: None, list, "None, captured a list"),
        (lambda: [1], lambda: (1,), "a list, captured a tuple"),
        (dict, Output, "a dict, captured a tests.support.structures.Output"),
        (lambda: Pair(1, 2), lambda: (1, 2), "captured a tuple"),
        (lambda: Batch(2), lambda: Frozen(2), "captured a tests.support.structures.Frozen"),
    ],
)
def test_calls_that_need_another_graph(
    one: Callable[[], Any], other: Callable[[], Any], text: str
) -> None:
    assert not same(flat(one()), flat(other()))
    (found,) = describe_mismatch(flat([one()]), flat([other()]))
    assert found.startswith("args[0][0]: ")
    assert text in found


def test_objects_that_look_alike_but_are_not_are_told_so() -> None:
    class Quiet:
        def __repr__(self) -> str:
            return "quiet"

    (found,) = describe_mismatch(flat(Quiet()), flat(Quiet()))
    assert found == "args[0]: quiet, captured another that looks the same"


def test_keys_that_are_equal_and_not_the_same_are_others() -> None:
    assert not same(flat({1: 2}), flat({True: 2}))


def test_every_difference_is_listed_with_its_path() -> None:
    captured = flat({"x": Array(4, 8), "y": 1}, Batch(Array(2)), mask=Array(3), flag=True)
    call = flat({"x": Array(1, 8, dtype=FLOAT16), "z": 2}, Batch(Array(2), 3), 7, flag=False)
    assert describe_mismatch(call, captured) == [
        "args[0]['x']: shape (1, 8), captured (4, 8)",
        "args[0]['x']: dtype float16, captured float32",
        "args[0]['z']: 2, captured without it",
        "args[0]['y']: missing, captured 1",
        "args[1].scale: 3 (int), captured 1.0 (float)",
        "args[2]: 7, captured without it",
        "kwargs['flag']: False, captured True",
        f"kwargs['mask']: missing, captured a float32 {STAND_INS}.Array of shape (3,)",
    ]


def test_a_long_value_is_cut_and_an_object_without_text_named() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    (found,) = describe_mismatch(flat("x" * 500), flat(Silent()))
    assert found.startswith("args[0]: 'xxx")
    assert "... (str), captured a " in found
    assert found.endswith("Silent)")


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_the_order_of_keys_counts_and_is_told(kind: Callable[..., Any]) -> None:
    one, other = flat(kind(a=1, b=Array(1))), flat(kind(b=Array(1), a=1))
    assert not same(one, other)
    assert describe_mismatch(one, other) == ["args[0]: the order of its keys, captured 'b', 'a'"]
