"""Which values of two results differ, and the error for a replay that does."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

import gpuprof


def test_plain_values_of_a_result_must_be_the_same(cupy: Any) -> None:
    plain: list[Any] = [(1.5, math.nan, None), {"n": 3}]
    fast = gpuprof.make_graphed_callable(lambda x: (x, *plain), (cupy.array([1.0]),), verify=1)
    fast(cupy.array([2.0]))
    plain[:] = [(1.5, math.nan, None), {"n": 4}]
    with pytest.raises(gpuprof.GraphMismatchError) as caught:
        fast(cupy.array([2.0]))
    assert caught.value.problems == ("result[2]['n']: 3 replayed, 4 by the function",)
    assert (caught.value.expected, caught.value.found) == (4, 3)


def wrong(cupy: Any, before: list[Any], now: list[Any]) -> gpuprof.GraphMismatchError:
    """The error for a replay of a function that has other values meanwhile."""
    values = list(before)
    fast = gpuprof.make_graphed_callable(
        lambda x: (x, *(value.copy() if hasattr(value, "copy") else value for value in values)),
        (cupy.array([1.0]),),
        name="step",
        verify=1,
    )
    values[:] = now
    with pytest.raises(gpuprof.GraphMismatchError) as caught:
        fast(cupy.array([2.0]))
    return caught.value


def test_the_error_lists_the_first_problems_and_the_usual_causes(cupy: Any) -> None:
    error = wrong(cupy, [0.0] * 11, [1.0] * 11)
    text = str(error)
    assert text.startswith("step: ")
    assert "result[8]" in text
    assert "result[9]" not in text
    assert "and 3 more" in text
    assert all(word in text for word in ("guards=", "writes=", 'verify="off"', "frozen"))
    assert len(error.problems) == 11
    assert (error.path, error.expected, error.found) == ("result[1]", 1.0, 0.0)
    eight = str(wrong(cupy, [0.0] * 8, [1.0] * 8))
    assert "and " not in eight.partition("Usual")[0].splitlines()[-1]


def test_the_error_pickles_with_what_it_says(cupy: Any) -> None:
    before = wrong(cupy, [cupy.array([1.0, 2.0])], [cupy.array([1.0, 7.0])])
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is gpuprof.GraphMismatchError
    assert isinstance(after, gpuprof.GpuprofError)
    assert (str(after), vars(after)) == (str(before), vars(before))
    assert (after.path, after.index, after.expected, after.found) == ("result[1]", (1,), 7.0, 2.0)
