"""Calls that are compared with the function itself: when, what they cost, and what they leave."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import GraphMismatchError
from tests.support.callables import Counted, counts, twice
from tests.support.stand_in_cupy import ndarray
from tests.support.structures import Batch, Output, Pair

STRUCTURES = Batch.__module__
ARRAY = f"{ndarray.__module__}.ndarray of shape"
ONE = f"a float32 {ARRAY} (1,)"


def make(fn: Any, *args: Any, **options: Any) -> gpuprof.GraphedCallable:
    return gpuprof.make_graphed_callable(fn, args, **options)


class Choosing:
    """A function that adds nothing up: it copies one of two arrays to its argument and a result.

    Which one is an attribute, which a graph freezes.
    """

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.arrays = cupy.array([1.0, 2.0]), cupy.array([1.0, 7.0])
        self.number = 0
        self.runs = Counted()

    def __call__(self, x: Any) -> Any:
        self.runs.note()
        chosen = self.arrays[self.number]
        x[...] = chosen
        return {"chosen": chosen.copy()}


@pytest.fixture
def choosing(cupy: Any) -> Choosing:
    return Choosing(cupy)


# When.


@pytest.mark.parametrize(("verify", "more"), [("capture", 1), ("off", 0), (5, 1)])
@pytest.mark.parametrize("warmup", [0, 2])
def test_a_capture_of_samples_is_compared_at_once(
    cupy: Any, verify: Any, more: int, warmup: int
) -> None:
    runs, x = Counted(), cupy.array([3.0])
    fast = make(twice(cupy, runs), x, verify=verify, warmup=warmup, writes=())
    assert runs() == warmup + 1 + more
    assert fast.generation == more, "the replay that was compared"
    assert counts(fast, "replays", "hits", "misses", "eager_calls") == (0, 0, 0, 0)
    assert x.tolist() == [3]
    assert fast(cupy.array([4.0])).tolist() == [4, 4]
    assert counts(fast, "replays", "hits") == (1, 1)
    assert runs() == warmup + 1 + more


@pytest.mark.torch
def test_where_code_may_be_compiled_one_more_capture_is_observed_and_thrown_away(
    cupy: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof._callable.capture.may_run_compiled_code", lambda: True)
    runs = Counted()
    fast = make(twice(cupy, runs), cupy.array([3.0]), verify="off", warmup=2)
    assert runs() == 4
    assert fast(cupy.array([4.0])).tolist() == [4, 4]
    assert counts(fast, "captures", "replays", "failures") == (1, 1, 0)


def test_a_later_capture_is_compared_in_its_call(cupy: Any) -> None:
    runs = Counted()

    def body(x: Any) -> Any:
        runs.note()
        return x  # no work but the graph's own copies

    fast = make(body, cupy.array([1.0]), warmup=1)
    ran = runs()
    result = fast(cupy.array([1.0, 2.0]))
    assert result.tolist() == [1, 2]
    assert runs() == ran + 3, "a warm-up, the capture, the comparison"
    fast(cupy.array([1.0, 2.0]))
    assert runs() == ran + 3
    assert counts(fast, "captures", "replays", "eager_calls") == (2, 2, 0)


def test_work_that_may_write_anywhere_is_not_run_twice_to_compare(cupy: Any) -> None:
    runs = Counted()
    fast = make(twice(cupy, runs), cupy.array([1.0]), warmup=1)
    assert (runs(), fast.generation) == (2, 0), "a warm-up and the capture"
    fast(cupy.array([1.0, 2.0]))
    assert runs() == 4


def test_every_nth_call_is_compared(cupy: Any) -> None:
    runs = Counted()
    fast = make(twice(cupy, runs), cupy.array([1.0]), verify=3)
    compared = []
    for call in range(1, 10):
        ran = runs()
        assert fast(cupy.array([float(call)])).tolist() == [call, call]
        compared += [call] * (runs() - ran)
    assert compared == [3, 6, 9]
    assert counts(fast, "replays", "eager_calls") == (9, 0)


# What is found.


def test_a_call_that_differs_is_an_error_and_later_ones_run_the_function(
    cupy: Any, choosing: Choosing
) -> None:
    fast = make(choosing, cupy.array([0.0, 0.0]), verify=1, name="step")
    x = cupy.array([0.0, 0.0])
    assert fast(x)["chosen"].tolist() == x.tolist() == [1, 2]
    choosing.number = 1
    with pytest.raises(GraphMismatchError, match="step: a replay of the graph differs") as caught:
        fast(x)
    error = caught.value
    assert (error.path, error.index) == ("result['chosen']", (1,))
    assert (error.expected, error.found) == (7.0, 2.0)
    assert [problem.partition(":")[0] for problem in error.problems] == [
        "result['chosen']",
        "args[0]",
    ]
    assert x.tolist() == [1, 7], "as the function leaves it"
    del caught, error
    ran, choosing.number = choosing.runs(), 0
    assert fast(x)["chosen"].tolist() == x.tolist() == [1, 2]
    assert choosing.runs() == ran + 1
    assert (fast.graphs, *counts(fast, "eager_calls")) == ((), 1)


def test_samples_that_differ_are_an_error_when_it_is_made(cupy: Any) -> None:
    runs, arrays = Counted(), (cupy.array([1.0]), cupy.array([2.0]))

    def body(x: Any) -> None:
        runs.note()
        x[...] = arrays[runs() > 2]

    x = cupy.array([0.0])
    with pytest.raises(GraphMismatchError, match=r"args\[0\]: 1 of 1 elements differ"):
        make(body, x, warmup=1, writes=("x",))
    assert (runs(), x.tolist()) == (3, [0])


@pytest.mark.torch
@pytest.mark.usefixtures("tapes")
@pytest.mark.parametrize("options", [{}, {"verify": "off", "buckets": {0: (4,)}}])
def test_a_result_of_torch_s_own_tuples_is_compared_and_cut(
    torch: Any, options: dict[str, Any]
) -> None:
    fast = gpuprof.make_graphed_callable(lambda x: x.topk(2), warmup=0, **options)
    for _ in range(3):
        x = torch.rand(3, 4)
        found, expected = fast(x), x.topk(2)
        assert type(found) is type(expected)
        assert found.values.equal(expected.values)
        assert found.indices.equal(expected.indices)
    assert fast.stats().captures == 1


def mismatch(cupy: Any, captured: Any, now: Any) -> GraphMismatchError:
    """Return the error for a replay of a function that gives another result meanwhile."""
    results = [now, captured]
    x, y = cupy.array([1.0]), cupy.array([2.0])
    fast = make(lambda x, y: results[-1](x.copy(), y.copy()), x, y, verify=1, name="step")
    results.pop()
    with pytest.raises(GraphMismatchError) as caught:
        fast(x, y)
    return caught.value


@pytest.mark.parametrize(
    ("captured", "now", "problems"),
    [
        (
            lambda x, _: [x],
            lambda x, _: [[x]],
            [f"result[0]: {ONE} replayed, a list by the function"],
        ),
        (lambda x, _: [x], lambda *_: [5], [f"result[0]: {ONE} replayed, 5 by the function"]),
        (
            lambda x, _: [x],
            lambda *_: (5,),
            ["result: a list replayed, a tuple by the function"],
        ),
        (
            lambda x, _: [x],
            lambda x, _: [x, x],
            [f"result[1]: nothing replayed, {ONE} by the function"],
        ),
        (
            lambda x, _: [x],
            lambda x, _: [x[:0]],
            [f"result[0]: a f4 {ARRAY} (1,) replayed, a f4 {ARRAY} (0,) by the function"],
        ),
        (
            lambda x, _: (x, (1.5, math.nan, None), {"n": 3}),
            lambda x, _: (x, (1.5, math.nan, None), {"n": 4}),
            ["result[2]['n']: 3 replayed, 4 by the function"],
        ),
        (
            lambda x, y: {"y": y, "x": x},
            lambda x, y: {"x": x, "y": y},
            ["result: the order ['y'], ['x'] replayed, the order ['x'], ['y'] by the function"],
        ),
        (
            lambda x, _: {"x": x},
            lambda x, _: {"y": x},
            [
                f"result['y']: nothing replayed, {ONE} by the function",
                f"result['x']: {ONE} replayed, nothing by the function",
            ],
        ),
        (
            lambda x, y: [x, y, y],
            lambda x, y: [x, y, x],
            [
                "result[2]: the same array as result[1] replayed, the same array as result[0] by "
                "the function"
            ],
        ),
        (
            lambda x, y: [1, x, y],
            lambda x, y: [y, x, y],
            [
                f"result[0]: 1 replayed, {ONE} by the function",
                f"result[2]: {ONE} replayed, the same array as result[0] by the function",
            ],
        ),
        (
            lambda x, y: [Batch(x, 1), Pair(y, None)],
            lambda x, y: [Batch(x, 2), Pair(y, 3)],
            [
                "result[0].scale: 1 replayed, 2 by the function",
                "result[1].right: None replayed, 3 by the function",
            ],
        ),
        (
            lambda x, _: Pair(x, 1),
            lambda x, _: Batch(x, 1),
            [f"result: a {STRUCTURES}.Pair replayed, a {STRUCTURES}.Batch by the function"],
        ),
        (
            Output,
            lambda x, _: Output(x),
            [
                "result.hidden: nothing replayed, None by the function",
                f"result['hidden']: {ONE} replayed, nothing by the function",
            ],
        ),
    ],
    ids=[
        *("a list", "a value", "a tuple", "one more", "another size", "a plain value", "order"),
        *("other keys", "shared", "shared_elsewhere", "names", "classes", "keys"),
    ],
)
def test_what_differs_in_results_is_told_by_itself(
    cupy: Any, captured: Any, now: Any, problems: list[str]
) -> None:
    assert [*mismatch(cupy, captured, now).problems] == problems


def test_the_error_lists_the_first_problems_and_the_usual_causes(cupy: Any) -> None:
    def differing(count: int) -> GraphMismatchError:
        return mismatch(cupy, lambda x, _: (x, *[0.0] * count), lambda x, _: (x, *[1.0] * count))

    error = differing(11)
    text = str(error)
    assert text.startswith("step: ")
    assert "result[8]" in text
    assert "result[9]" not in text
    assert "and 3 more" in text
    assert all(word in text for word in ("guards=", "writes=", 'verify="off"', "frozen"))
    assert len(error.problems) == 11
    assert (error.path, error.expected, error.found) == ("result[1]", 1.0, 0.0)
    assert "and " not in str(differing(8)).partition("Usual")[0].splitlines()[-1]


def test_the_error_pickles_with_what_it_says(cupy: Any) -> None:
    one, other = cupy.array([1.0, 2.0]), cupy.array([1.0, 7.0])
    before = mismatch(cupy, lambda x, _: (x, one.copy()), lambda x, _: (x, other.copy()))
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is GraphMismatchError
    assert isinstance(after, gpuprof.GpuprofError)
    assert (str(after), vars(after)) == (str(before), vars(before))
    assert (after.path, after.index, after.expected, after.found) == ("result[1]", (1,), 7.0, 2.0)


def test_a_change_between_the_comparisons_is_not_found(cupy: Any, choosing: Choosing) -> None:
    fast = make(choosing, cupy.array([0.0, 0.0]))
    x = cupy.array([0.0, 0.0])
    choosing.number = 1
    for _ in range(3):
        assert fast(x)["chosen"].tolist() == x.tolist() == [1, 2]


# What helps.


def test_what_is_frozen_may_be_named_by_guards(cupy: Any, choosing: Choosing) -> None:
    fast = make(choosing, cupy.array([0.0, 0.0]), guards=lambda: choosing.number, verify=1)
    x = cupy.array([0.0, 0.0])
    for number, last in ((0, 2), (1, 7), (0, 2), (1, 7)):
        choosing.number = number
        assert fast(x)["chosen"].tolist() == x.tolist() == [1, last]
    assert counts(fast, "captures", "replays", "eager_calls") == (2, 4, 0)
    assert len(fast.graphs) == 2


def test_a_closure_s_variable_and_a_global_are_frozen_until_they_are_named(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = 1

    def body(x: Any) -> Any:
        return x.copy(), scale, SCALE

    x = cupy.array([1.0])
    frozen, named = make(body, x), make(body, x, guards=lambda: (scale, SCALE))
    checked = make(body, x, verify=1, name="step")
    scale = 2
    monkeypatch.setitem(globals(), "SCALE", 20)
    assert (frozen(x)[1:], named(x)[1:]) == ((1, 10), (2, 20))
    with pytest.raises(GraphMismatchError, match="step: a replay") as caught:
        checked(x)
    assert caught.value.problems == (
        "result[1]: 1 replayed, 2 by the function",
        "result[2]: 10 replayed, 20 by the function",
    )
    assert checked(x)[1:] == (2, 20)


SCALE = 10


def test_with_raise_another_key_of_the_callers_own_is_told(cupy: Any, choosing: Choosing) -> None:
    fast = make(
        choosing, cupy.array([0.0, 0.0]), guards=lambda: choosing.number, on_new_shape="raise"
    )
    choosing.number = 1
    with pytest.raises(gpuprof.errors.InvalidStateError, match="guards: 1, captured 0"):
        fast(cupy.array([0.0, 0.0]))


def test_strides_that_matter_are_told(cupy: Any) -> None:
    fast = make(lambda x: x.copy(), cupy.array([0.0, 0.0]), on_new_shape="raise")
    with pytest.raises(
        gpuprof.errors.InvalidStateError, match="strides of arguments: others than captured"
    ):
        fast(cupy.array([0.0] * 4)[::2])


def test_padding_that_changes_a_result_is_refused(cupy: Any) -> None:
    x = cupy.array([1.0, 2.0, 3.0, 4.0])
    options: dict[str, Any] = {"buckets": {0: (4,)}, "warmup": 0, "writes": ()}
    fast = gpuprof.make_graphed_callable(twice(cupy), (x,), **options)
    short = cupy.array([5.0, 6.0, 7.0])
    for _ in range(2):  # the second copy begins behind the padding
        with pytest.raises(ValueError, match=r"^buckets: padding changes .*result: .* first at"):
            fast(short)
    assert fast(x).tolist() == [1, 2, 3, 4] * 2
    unchecked = gpuprof.make_graphed_callable(twice(cupy), (x,), **options, verify="off")
    assert unchecked(short).tolist() == [5, 6, 7] * 2, "this call is the function's"
