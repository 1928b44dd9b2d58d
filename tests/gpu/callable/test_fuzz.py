"""Random functions of arguments and state give as graphed callables what they give eagerly.

`python -m tests.gpu.support.fuzz_callables SEED` shows the scenario of a failure and does it again.
"""

from __future__ import annotations

import collections
import functools
import importlib.util
import itertools
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.frameworks import torch_or_skip
from tests.gpu.support.fuzz import is_same
from tests.gpu.support.fuzz_arrays import check_arrays
from tests.gpu.support.fuzz_callables import check, graphed
from tests.gpu.support.fuzz_scenarios import KINDS, Scenario, make_scenario
from tests.gpu.support.fuzz_state import LAYOUTS, laid_out, values
from tests.support.threads import in_threads

FUNCTIONS = 2_000
AT_ONCE = 50
NEW = 50


@pytest.fixture
def torch() -> Iterator[Any]:
    torch = torch_or_skip()
    with torch.no_grad():
        yield torch
    torch.cuda.synchronize()


def fuzz(torch: Any, seeds: Any) -> None:
    """Do the scenarios of some seeds; most calls must have been replays."""
    counted: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        if seed % 10 == 0 and importlib.util.find_spec("cupy"):
            check_arrays(torch, seed, "cuda")
            continue
        scenario = make_scenario(torch, seed, "cuda")
        world = check(scenario, graphed)
        fast = world.fast
        seen = fast.stats()
        counted["calls"] += sum(step.name == "call" for step in scenario.steps)
        counted["replays"] += seen.replays
        counted["captures"] += seen.captures
        assert seen.failures <= world.refused, f"{seen}\n{scenario}"
        fast.reset()
    assert counted["replays"] > 0.25 * counted["calls"], counted


@pytest.mark.parametrize("first", range(0, FUNCTIONS, AT_ONCE))
def test_functions_give_what_they_give_eagerly(torch: Any, first: int) -> None:
    fuzz(torch, range(first, first + AT_ONCE))


def test_functions_of_new_seeds_give_what_they_give_eagerly(torch: Any) -> None:
    first = random.SystemRandom().randrange(FUNCTIONS, 1 << 30)
    print(f"seeds {first} to {first + NEW - 1}")
    fuzz(torch, range(first, first + NEW))


def test_threads_call_one_callable_at_once(torch: Any) -> None:
    made = (make_scenario(torch, seed, "cuda", "torch") for seed in range(1_000))
    pure = (one for one in made if not (one.written or one.draws or one.sees_strides))
    for scenario in itertools.islice(pure, 20):
        world = scenario.world()
        options = {**scenario.options, "outputs": "clone", "on_new_shape": "capture"}
        fast = gpuprof.make_graphed_callable(world.function, **options)
        torch.cuda.synchronize()

        def work(
            first: int,
            scenario: Scenario = scenario,
            function: Any = world.function,
            fast: Any = fast,
        ) -> None:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for step in range(10):
                    given = []
                    for each in scenario.samples:
                        dtype = getattr(torch, each.dtype)
                        new = values(torch, first + step, each.shape, dtype, "cuda")
                        given.append(laid_out(torch, new, LAYOUTS[step % 5]))
                    found, wanted = fast(*given), function(*given)
                    for one, other in zip(found or (), wanted or (), strict=True):
                        assert is_same(torch, one, other), f"call {step}\n{scenario}"
                torch.cuda.current_stream().synchronize()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            in_threads(*(functools.partial(work, first) for first in (100, 200, 300)))
        assert fast.stats().replays > 0


@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_each_kind_is_replayed(torch: Any, kind: str) -> None:
    replays = 0
    for seed in range(10):
        scenario = make_scenario(torch, seed, "cuda", kind)
        replays += check(scenario, graphed).fast.stats().replays
    assert replays >= 10
