"""Settings of a graphed callable, and which arguments are named as written."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from gpuprof._callable.settings import Writes, check_settings
from tests.support.callables import twice

GIVEN = {
    "compile": False,
    "warmup": None,
    "mode": "thread_local",
    "stream": None,
    "pool": None,
    "outputs": "clone",
    "on_new_shape": "capture",
    "max_graphs": 8,
    "buckets": None,
    "on_capture_error": "raise",
    "writes": "auto",
    "guards": None,
    "check": "strict",
    "verify": "capture",
    "param_grads": "autograd",
    "timers": "last",
    "name": None,
}


def step(x: Any, state: dict[str, Any], *rest: Any, out: Any = None) -> None: ...


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


def test_what_is_used_where_nothing_is_given() -> None:
    settings = check_settings(step, None, GIVEN)
    assert (settings.warmup, settings.check, settings.verify) == (3, "strict", "capture")
    assert (settings.verify_every, settings.guards, settings.shares_pool) == (0, (), False)
    assert settings.writes.numbers(["args[0]"]) is None
    assert check_settings(step, None, {**GIVEN, "verify": 7}).verify_every == 7
    assert check_settings(step, None, {**GIVEN, "verify": "off"}).verify_every == 0
    assert check_settings(step, None, {**GIVEN, "pool": gpuprof.CapturePool()}).shares_pool


PATHS = ["args[0]", "args[1]['a']", "args[1]['b'].x", "args[2]", "kwargs['out'][0]"]


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
    ],
)
def test_arguments_are_named_by_parameter_or_path(names: Any, numbers: set[int]) -> None:
    writes = check_settings(step, None, {**GIVEN, "writes": names}).writes
    assert writes.numbers(PATHS) == numbers


@pytest.mark.parametrize("name", ["y", "args[9]", "args[1]['c']", "stat", ""])
def test_a_name_of_no_array_is_an_error_that_lists_those_there_are(name: str) -> None:
    writes = check_settings(step, None, {**GIVEN, "writes": (name,)}).writes
    with pytest.raises(ValueError, match=r"^writes: no array at ") as caught:
        writes.numbers(PATHS)
    assert str(caught.value).endswith(f"{name!r}; the call has arrays at {', '.join(PATHS)}")
    with pytest.raises(ValueError, match="the call has arrays at nowhere"):
        writes.numbers([])


def test_a_function_that_tells_no_parameters_takes_paths_alone() -> None:
    writes = check_settings(dict.fromkeys, None, {**GIVEN, "writes": ("args[0]",)}).writes
    assert writes.numbers(PATHS) == {0}
    assert Writes(None, {}).numbers(PATHS) is None
