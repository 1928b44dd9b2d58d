"""Random functions made of copies give as graphed callables what they give eagerly."""

from __future__ import annotations

import collections
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.callables import on_streams
from tests.support.fuzz_copies import Copies, Source, check_copies

FUNCTIONS = 200
AT_ONCE = 50


def fuzz(cupy: Any, seeds: Any) -> collections.Counter[str]:
    """Check the functions of some seeds, and return what their calls were."""
    counted: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        copies = Copies(cupy, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fast = check_copies(copies, copies.graphed)
        seen = fast.stats()
        counted["calls"] += sum(call.what == "call" for call in copies.calls)
        counted["replays"] += seen.replays
        counted["failures"] += seen.failures
        counted["eager"] += seen.eager_calls
    return counted


@pytest.mark.parametrize("first", range(0, FUNCTIONS, AT_ONCE))
def test_functions_give_what_they_give_eagerly(cupy: Any, first: int) -> None:
    counted = fuzz(cupy, range(first, first + AT_ONCE))
    assert counted["failures"] == 0
    assert counted["replays"] > 0.5 * counted["calls"], counted
    assert counted["eager"] > 0, "of arguments that overlap"


def test_functions_of_new_seeds_give_what_they_give_eagerly(cupy: Any) -> None:
    first = random.SystemRandom().randrange(FUNCTIONS, 1 << 30)
    print(f"seeds {first} to {first + AT_ONCE - 1}")
    fuzz(cupy, range(first, first + AT_ONCE))


def test_threads_call_one_callable_at_once(cupy: Any) -> None:
    reading = (copies for seed in range(FUNCTIONS) if not (copies := Copies(cupy, seed)).written)
    for copies, _ in zip(reading, range(8), strict=False):
        function = copies.function(copies.state())
        copies.options["outputs"] = "clone"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fast = copies.graphed(function)

            def work(
                first: int, copies: Copies = copies, function: Any = function, fast: Any = fast
            ) -> None:
                for step in range(10):
                    size = (6, *copies._sizes)[step % (1 + len(copies._sizes))]
                    sources = [Source("new", 0, size, "dense", first + step)] * copies.count
                    given = [copies.new(source) for source in sources]
                    found = [each.tolist() for each in fast(*given)]
                    assert found == [each.tolist() for each in function(*given)]

            on_streams(cupy, *(lambda first=first: work(first) for first in (100, 200, 300)))


# Worlds with a defect.


def loses_writes(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: function(*(each.copy() for each in given))


def takes_arguments_for_separate(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        inside = [each.copy() for each in given]
        result = function(*inside)
        for each, new in zip(given, inside, strict=True):
            each[...] = new
        return result

    return call


def reuses_the_memory_of_results(function: Callable[..., Any]) -> Callable[..., Any]:
    earlier: dict[Any, Any] = {}

    def call(*given: Any) -> Any:
        made = function(*given)
        old = earlier.setdefault(tuple(each.shape for each in given), made)
        for one, other in zip(old, made, strict=True):
            one[...] = other
        return old

    return call


@pytest.mark.parametrize(
    "defect", [loses_writes, takes_arguments_for_separate, reuses_the_memory_of_results]
)
def test_a_defect_is_found_and_told_with_its_function(cupy: Any, defect: Any) -> None:
    found = 0
    for seed in range(60):
        copies = Copies(cupy, seed)
        try:
            check_copies(copies, defect)
        except AssertionError as error:
            assert f"copies {seed}\n" in str(error)  # noqa: PT017
            found += 1
        if found == 5:
            return
    pytest.fail(f"found {found} times")


def test_two_eager_worlds_are_equal(cupy: Any) -> None:
    for seed in range(60):
        check_copies(Copies(cupy, seed), lambda function: function)
