"""Settings of a graphed callable, and which arguments are named as written."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from tests.support.callables import twice
from tests.support.structures import Batch


@pytest.mark.parametrize(
    ("option", "value", "error", "text"),
    [
        ("writes", "x", TypeError, r"expected 'auto' or a tuple of names.*got 'x'"),
        ("writes", 5, TypeError, r"expected 'auto' or a tuple of names.*got 5"),
        ("writes", (1,), TypeError, r"expected 'auto' or a tuple of names.*got \(1,\)"),
        ("guards", 5, TypeError, r"expected a function that returns.*hashable, got 5"),
        ("verify", "always", ValueError, r"expected 'capture', 'off' or a number.*'always'"),
        ("verify", 0, ValueError, r"expected a whole number of at least 1, got 0"),
        ("verify", True, TypeError, r"expected a whole number of at least 1, got True"),
        ("verify", None, TypeError, r"expected a whole number of at least 1, got None"),
        ("compile", 1, TypeError, r"expected True or False, got 1"),
        ("compile", "yes", TypeError, r"expected True or False, got 'yes'"),
        ("param_grads", "sum", ValueError, r"expected one of 'autograd', 'accumulate', got 'sum'"),
        ("param_grads", None, TypeError, r"expected one of 'autograd', 'accumulate', got None"),
        ("check", "never", ValueError, r"expected one of 'strict', 'sweep', got 'never'"),
        ("outputs", "fresh", ValueError, "expected one of"),
        ("on_new_shape", None, TypeError, "expected one of"),
        ("on_capture_error", "ignore", ValueError, "expected one of"),
        ("warmup", -1, ValueError, "expected"),
        ("warmup", 1.0, TypeError, "expected"),
        ("max_graphs", 0, ValueError, "expected"),
        ("max_graphs", True, TypeError, "expected"),
        ("pool", object(), TypeError, "expected"),
        ("mode", "local", ValueError, "expected"),
    ],
)
def test_a_wrong_setting_is_named_with_what_was_expected(
    cupy: Any, option: str, value: object, error: type[Exception], text: str
) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(error, match=f"^{option}: {text}"):
        gpuprof.make_graphed_callable(twice(cupy), **options)


class Call:
    """A function that writes to all its arrays, by work that torch does not know."""

    def __init__(self, cupy: Any) -> None:
        self.one = cupy.array([1.0])
        arrays = [cupy.array([0.0]) for _ in range(5)]
        self.arrays = arrays
        self.args = (arrays[0], {"a": arrays[1], "b": Batch(arrays[2])}, arrays[3])
        self.kwargs = {"out": [arrays[4]]}

    def step(self, x: Any, state: dict[str, Any], *rest: Any, out: Any = None) -> None:
        for each in (x, state["a"], state["b"].x, *rest, *out):
            each[...] = self.one

    def graphed(self, names: Any) -> gpuprof.GraphedCallable:
        options: dict[str, Any] = {"writes": names, "verify": "off"}
        return gpuprof.make_graphed_callable(self.step, self.args, self.kwargs, **options)

    def written(self, names: Any) -> set[int]:
        """Return the numbers of the arrays that a replay writes to."""
        fast = self.graphed(names)
        fast(*self.args, **self.kwargs)
        assert fast.stats().replays == 1
        return {number for number, each in enumerate(self.arrays) if each.tolist() == [1]}


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        ((), set()),
        (("x",), {0}),
        (("args[0]",), {0}),
        (("state",), {1, 2}),
        (("args[1]",), {1, 2}),
        (("args[1]['b']",), {2}),
        (("args[1]['b'].x",), {2}),
        (("out",), {4}),
        (("kwargs['out']",), {4}),
        (["args[2]", "x", "x"], {0, 3}),
        ("auto", {0, 1, 2, 3, 4}),
    ],
)
def test_arguments_are_named_by_parameter_or_path(cupy: Any, names: Any, numbers: set[int]) -> None:
    assert Call(cupy).written(names) == numbers


@pytest.mark.parametrize("name", ["y", "args[9]", "args[1]['c']", "stat", ""])
def test_a_name_of_no_array_is_an_error_that_lists_those_there_are(cupy: Any, name: str) -> None:
    with pytest.raises(ValueError, match=r"^writes: no array at ") as caught:
        Call(cupy).graphed((name,))
    paths = "args[0], args[1]['a'], args[1]['b'].x, args[2], kwargs['out'][0]"
    assert str(caught.value).endswith(f"{name!r}; the call has arrays at {paths}")
    with pytest.raises(ValueError, match="the call has arrays at nowhere"):
        gpuprof.make_graphed_callable(lambda: None, (), writes=(name,))


def test_a_function_that_tells_no_parameters_takes_paths_alone(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Call(cupy)
    monkeypatch.setattr(Call.step, "__signature__", "none", raising=False)
    assert call.written(("args[0]",)) == {0}
    with pytest.raises(ValueError, match="writes: no array at 'x'"):
        call.graphed(("x",))
