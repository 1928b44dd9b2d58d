"""What is frozen at the capture of a graphed callable: no fuzzer looks there, `verify` finds it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import gpuprof
from gpuprof.errors import GraphMismatchError

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("tapes")]


class Frozen(NamedTuple):
    """Python code: of what the function has, what it returns for `x`, and how that changes."""

    setup: str
    expression: str
    change: str


_TENSOR = "torch.full((4,), 2.0)"
FROZEN = {
    "a number in a closure": Frozen("by = 2.0", "x * by", "nonlocal by; by = 3.0"),
    "a number in a global": Frozen("global g; g = 2.0", "x * g", "global g; g = 3.0"),
    "a rebound closure variable": Frozen(f"w = {_TENSOR}", "x * w", "nonlocal w; w = w + 1"),
    "a rebound global": Frozen(f"global g; g = {_TENSOR}", "x * g", "global g; g = g + 1"),
    "a number in an object": Frozen("o = Plain(by=2.0)", "x * o.by", "o.by = 3.0"),
    "a flag in an object": Frozen("o = Plain(on=True)", "x * 2 if o.on else x", "o.on = False"),
    "a tensor in an object": Frozen(f"o = Plain(w={_TENSOR})", "x * o.w", "o.w = o.w + 1"),
    "an object in an object": Frozen("o = Plain(p=Plain(by=2))", "x * o.p.by", "o.p = Plain(by=3)"),
    "a deleted attribute": Frozen("o = Plain(by=2.0)", "x * getattr(o, 'by', 1.0)", "del o.by"),
    "a number in a list": Frozen("given = [2.0]", "x * given[0]", "given[0] = 3.0"),
    "a tensor in a list": Frozen(f"given = [{_TENSOR}]", "x * given[0]", "given[0] = given[0] + 1"),
    "the length of a list": Frozen("given = [2.0]", "x * len(given)", "given.append(3.0)"),
    "a number in a dict": Frozen("given = {'by': 2.0}", "x * given['by']", "given['by'] = 3.0"),
    "a key of a dict": Frozen("given = {}", "x * given.get('by', 1)", "given['by'] = 3.0"),
    "a set": Frozen("given = {1}", "x * 2 if 1 in given else x", "given.clear()"),
    "numbers in a tensor": Frozen("given = [2.0] * 4", "x * torch.tensor(given)", "given[0] = 3.0"),
    "an attribute of a class": Frozen("Plain.by = 2.0", "x * Plain().by", "Plain.by = 3.0"),
    "a method of a class": Frozen(
        "Plain.run = lambda self, x: x * 2", "Plain().run(x)", "Plain.run = lambda self, x: x * 3"
    ),
    "a helper function": Frozen(
        "helper = lambda x: x * 2", "helper(x)", "nonlocal helper; helper = lambda x: x * 3"
    ),
    "a default of a helper": Frozen(
        "helper = lambda x, by=2.0: x * by", "helper(x)", "helper.__defaults__ = (3.0,)"
    ),
    "a number in a partial": Frozen(
        "helper = partial(lambda x, by: x * by, by=2.0)", "helper(x)", "helper.keywords['by'] = 3.0"
    ),
}
_TEXT = """
from functools import partial
class Plain:
    def __init__(self, **given):
        self.__dict__.update(given)
def make(torch):
    {setup}
    def function(x):
        return {expression}
    def change():
        {change}
    return function, change
"""


def frozen(name: str) -> tuple[Callable[[Any], Any], Callable[[], None]]:
    """Return a function, and what changes what it returns."""
    namespace: dict[str, Any] = {}
    text = textwrap.dedent(_TEXT).format(**FROZEN[name]._asdict())
    exec(compile(text, f"<{name}>", "exec"), namespace)
    function, change = namespace["make"](torch)
    return function, change


@pytest.mark.parametrize("name", FROZEN)
def test_a_change_of_what_is_frozen_is_found_where_a_call_is_verified(name: str) -> None:
    function, change = frozen(name)
    x = torch.arange(1.0, 5.0)
    fast: Any = gpuprof.make_graphed_callable(function, (torch.zeros(4),), warmup=0)
    before = function(x)
    assert torch.equal(fast(x), before)
    change()
    wanted = function(x)
    assert not torch.equal(wanted, before)
    assert torch.equal(fast(x), before)
    for entry in fast._entries:
        entry.runs = 0  # to be verified like the first one
    with pytest.raises(GraphMismatchError):
        fast(x)
    assert torch.equal(fast(x), wanted)  # eagerly
