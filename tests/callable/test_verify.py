"""Which values of two results differ, and the error for a replay that does."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

import gpuprof
from gpuprof._callable.verify import mismatch
from gpuprof._frameworks.compare import Difference


def test_plain_values_of_a_result_must_be_the_same(cupy: Any) -> None:
    plain: list[Any] = [(1.5, math.nan, None), {"n": 3}]
    fast = gpuprof.make_graphed_callable(lambda x: (x, *plain), (cupy.array([1.0]),), verify=1)
    fast(cupy.array([2.0]))
    plain[:] = [(1.5, math.nan, None), {"n": 4}]
    with pytest.raises(gpuprof.GraphMismatchError) as caught:
        fast(cupy.array([2.0]))
    assert caught.value.problems == ("result[2]['n']: 3 replayed, 4 by the function",)
    assert (caught.value.expected, caught.value.found) == (4, 3)


def test_the_error_lists_the_first_problems_and_the_usual_causes() -> None:
    found = [Difference(f"result[{i}]", (i,), 0.0, 1.0, 1, 10, 1.0) for i in range(11)]
    error = mismatch("step", found)
    text = str(error)
    assert text.startswith("step: ")
    assert "result[7]" in text
    assert "result[8]" not in text
    assert "and 3 more" in text
    assert all(word in text for word in ("guards=", "writes=", 'verify="off"', "frozen"))
    assert error.problems == tuple(map(str, found))
    assert (error.path, error.index, error.expected, error.found) == ("result[0]", (0,), 0.0, 1.0)
    assert "and " not in str(mismatch("step", found[:8])).partition("Usual")[0].splitlines()[-1]


def test_the_error_pickles_with_what_it_says() -> None:
    before = mismatch("step", [Difference("result", (2,), 1 + 2j, math.inf, 1, 10, math.inf)])
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is gpuprof.GraphMismatchError
    assert isinstance(after, gpuprof.GpuprofError)
    assert (str(after), vars(after)) == (str(before), vars(before))
    assert (after.path, after.index, after.found) == ("result", (2,), math.inf)
