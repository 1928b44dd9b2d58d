"""Graphed callables beside the functions that they are made of, in two worlds.

Each step of a scenario is done in both: a call of the function in one, of the graphed callable in
the other. After each, results, the memory of arguments and of all state, kept results and the
random generator are equal; bit by bit, but for gradients.

`python -m tests.gpu.support.fuzz_callables SEED` shows a scenario and does it; on the GPU if there
is one, and in two eager worlds on the CPU otherwise. With a number after the seed it does so many
scenarios and shows those that fail.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.gpu.support.fuzz import is_same
from tests.gpu.support.fuzz_scenarios import Scenario, make_scenario
from tests.gpu.support.fuzz_world import Step, World, kept_generator, seed_generator

# Puts into a world what its calls call.
Make = Callable[[Scenario, World], None]
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5  # of gradients, after a few steps that build on each other


def check(scenario: Scenario, make: Make, *, shrinks: bool = True) -> World:
    """Fail unless a scenario does the same in a second world; return that one.

    The message has the seed, the scenario, and a smaller one that fails if there is any.
    """
    try:
        return _check(scenario, make)
    except Exception as error:
        rerun = f"python -m tests.gpu.support.fuzz_callables {scenario.seed}"
        text = f"{type(error).__name__}: {error}\n{scenario}\nagain: {rerun}"
        if shrinks:
            with contextlib.suppress(Exception):  # the first failure is what counts
                smaller, said = shrink(scenario, make)
                text += f"\n\nin short: {said}\n{smaller}"
        raise AssertionError(text) from error


def _check(scenario: Scenario, make: Make) -> World:
    torch = scenario.torch
    first, second = scenario.world(), scenario.world()
    with kept_generator(torch, scenario.device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make(scenario, second)
        for number, step in enumerate(scenario.steps):
            where = f"step {number}, {step}"
            states = []
            for world in (first, second):
                seed_generator(torch, scenario.device, step.seed)
                try:
                    world.run(step)
                except Exception as error:
                    raise _Failure(f"{where}: {type(error).__name__}: {error}") from error
                states.append(_generator(torch, scenario.device))
            if not torch.equal(*states):
                raise _Failure(f"{where}: the random generator is elsewhere")
            _compare(scenario, step, first, second, where)
    return second


class _Failure(AssertionError):
    pass


def _generator(torch: Any, device: str) -> Any:
    return torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state()


def _compare(scenario: Scenario, step: Step, first: World, second: World, where: str) -> None:
    torch = scenario.torch
    stale = scenario.stale_arguments(step)
    skip = [number for number in stale if not scenario.writes_to(stale)]
    wanted, found = (list(each.tensors(step, skip)) for each in (first, second))
    names, others = ([name for name, _ in each] for each in (wanted, found))
    if names != others:
        raise _Failure(f"{where}: there is {others}, and eagerly {names}")
    differs = [
        (name, one, other)
        for (name, one), (_, other) in zip(wanted, found, strict=True)
        if (one.shape, one.dtype) != (other.shape, other.dtype)
    ]
    if not differs and not _equal_bytes(torch, wanted, found):
        differs = [
            (name, one, other)
            for (name, one), (_, other) in zip(wanted, found, strict=True)
            if not _is_close(torch, scenario, one, other)
        ]
    if differs:
        text = "; ".join(f"{name} is\n{other}\nand eagerly\n{one}" for name, one, other in differs)
        raise _Failure(f"{where}: {text}")


def _equal_bytes(torch: Any, wanted: Sequence[Any], found: Sequence[Any]) -> bool:
    """Compare all at once: most steps end here, with one answer from the GPU."""
    one, other = (
        torch.cat([x.detach().contiguous().view(-1).view(torch.uint8) for _, x in each])
        for each in (wanted, found)
    )
    return bool(torch.equal(one, other))


def _is_close(torch: Any, scenario: Scenario, one: Any, other: Any) -> bool:
    if not scenario.trains:
        return is_same(torch, one, other)
    scale = one.nan_to_num(0, 0, 0).abs().max().item() if one.numel() else 0.0
    atol = _ABSOLUTE * max(1.0, scale)
    return bool(torch.allclose(one, other, rtol=_RELATIVE, atol=atol, equal_nan=True))


def graphed(scenario: Scenario, world: World) -> None:
    """Let a world call a graphed callable of its function."""
    import gpuprof
    import gpuprof.errors as errors

    torch, options = scenario.torch, scenario.options
    with torch.enable_grad() if scenario.trains else torch.no_grad():
        samples = world.take(scenario.samples) if scenario.takes_samples else None
        fast = gpuprof.make_graphed_callable(world.function, samples, **options)

    def call(*args: Any) -> Any:
        try:
            return fast(*args)
        except errors.GpuprofError as error:
            mismatch = isinstance(error, errors.GraphMismatchError)
            # A static result that is an argument of the next call may be refused, and a backward
            # pass while autograd's graph of an eager one is alive.
            by_name = "autograd's graph of an eager pass" in str(error)
            if mismatch or not (by_name or scenario.stale_arguments(world.step)):
                raise
            world.refused += 1
            return world.function(*args)

    world.fast = fast
    world.call_function = call
    world.after_reset = fast.reset


def eagerly(scenario: Scenario, world: World) -> None:
    """Leave a world as it is: its calls call the function."""


def shrink(scenario: Scenario, make: Make) -> tuple[Scenario, str]:
    """Return a scenario of fewer steps and lines that fails, too, and how."""
    said = _failure(scenario, make)
    if said is None:
        raise ValueError("it does not fail again")
    found = scenario
    while True:
        for smaller in _smaller(found):
            if _failure(smaller, eagerly) is None and (text := _failure(smaller, make)):
                found, said = smaller, text
                break
        else:
            return found, said


def _failure(scenario: Scenario, make: Make) -> str | None:
    try:
        _check(scenario, make)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    steps, body = scenario.steps, scenario.body
    for number in reversed(range(len(steps))):
        yield dataclasses.replace(scenario, steps=steps[:number] + steps[number + 1 :])
    for number in reversed(range(len(body.lines))):
        lines = body.lines[:number] + body.lines[number + 1 :]
        made = body.lines[number].result
        if made is None or not any(made in line.operands for line in lines):
            results = tuple(each for each in body.results if each != made)
            yield dataclasses.replace(
                scenario, body=body._replace(lines=lines, results=results, timed=None)
            )


def main(first: int, count: int = 1) -> None:
    """Do the scenarios of some seeds; show the one, or the failures among many."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    failed = []
    for seed in range(first, first + count):
        scenario = make_scenario(torch, seed, device)
        if count == 1:
            print(scenario)
        try:
            check(scenario, graphed if device == "cuda" else eagerly)
        except AssertionError as error:
            failed.append(seed)
            print(error, end="\n\n", flush=True)
    print(f"{count} done, {len(failed)} failed: {failed}")


if __name__ == "__main__":
    import sys

    main(*map(int, sys.argv[1:3]))
