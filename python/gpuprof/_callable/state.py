"""Torch's modes, which a call depends on besides its arguments.

Gradients, inference mode, autocast and the default dtype of new tensors are compared at each call.
Two more are taken as they are at the capture and not looked at again: whether algorithms have to be
deterministic, and the precision of float32 matrix products.

Without torch a state is the one that torch begins with, and has no guards.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gpuprof._callable.leaves import Leaf
from gpuprof._frameworks import loaded

StateGuard = tuple[Callable[[], object], object]


@dataclass(frozen=True)
class State:
    """Torch's modes on this thread, as far as a graph has them inside."""

    grad: bool = True
    inference: bool = False
    autocast: Any = None  # the dtype that work on the GPU is cast to; None where it is off
    autocast_cache: bool = True  # whether cast weights are kept; True where autocast is off
    default_dtype: Any = None  # of new tensors; None is float32

    @property
    def records_gradients(self) -> bool:
        return self.grad and not self.inference

    def describe_difference(self, captured: State) -> list[str]:
        """Return what is not as it was when `captured` was noted, in words."""
        mine, theirs = self._in_words(), captured._in_words()
        return [
            f"{name}: {now}, captured {theirs[name]}"
            for name, now in mine.items()
            if now != theirs[name]
        ]

    def _in_words(self) -> dict[str, str]:
        return {
            "grad mode": _on_off(self.grad),
            "inference mode": _on_off(self.inference),
            "autocast": "off" if self.autocast is None else str(self.autocast),
            "autocast's cache of weights": _on_off(self.autocast_cache),
            "default dtype": str(self.default_dtype or "torch.float32"),
        }


def _on_off(is_on: bool) -> str:
    return "on" if is_on else "off"


def current() -> State:
    """Return this thread's state."""
    torch = loaded.whole_torch()
    if torch is None:
        return State()
    autocast, cache = None, True
    if torch.is_autocast_enabled():
        autocast = _autocast_dtype(torch)()
        cache = torch.is_autocast_cache_enabled()
    dtype = torch.get_default_dtype()
    return State(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        autocast,
        cache,
        None if dtype is torch.float32 else dtype,
    )


def state_guards(state: State) -> tuple[StateGuard, ...]:
    """Return functions without arguments, with what each returns in this state.

    They are of torch's own, take some 50 ns each, and return shared objects: True, False, dtypes.
    """
    torch = loaded.whole_torch()
    if torch is None:
        return ()
    found: list[StateGuard] = [
        (torch.is_grad_enabled, state.grad),
        (torch.is_inference_mode_enabled, state.inference),
        # Without an argument it tells of the GPU, in half the time.
        (torch.is_autocast_enabled, state.autocast is not None),
        (torch.get_default_dtype, state.default_dtype or torch.float32),
    ]
    if state.autocast is not None:
        found.append((_autocast_dtype(torch), state.autocast))
        found.append((torch.is_autocast_cache_enabled, state.autocast_cache))
    return tuple(found)


def _autocast_dtype(torch: Any) -> Callable[[], Any]:
    if hasattr(torch, "get_autocast_dtype"):
        return functools.partial(torch.get_autocast_dtype, "cuda")
    dtype: Callable[[], Any] = torch.get_autocast_gpu_dtype
    return dtype


def needs_gradients(
    state: State,
    leaves: Iterable[Leaf],
    results: Iterable[Leaf] = (),
    modules: Iterable[Any] = (),
) -> list[str]:
    """Return what of a call asks for gradients, by name; nothing where they are not recorded.

    `results` are the arrays that a run has returned, of which parameters of `modules` may be the
    reason.
    """
    if not state.records_gradients:
        return []
    found, of_results = (
        [leaf.path for leaf in each if getattr(leaf.array, "requires_grad", False)]
        for each in (leaves, results)
    )
    return found + (_parameters(modules) or of_results) if of_results else found


def gradient_guards(state: State, modules: Iterable[Any]) -> tuple[StateGuard, ...]:
    """Return what says, a few parameters a call, that none has come to require a gradient."""
    if not state.records_gradients:
        return ()
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return ((_Sweep(parameters), False),) if parameters else ()


class _Sweep:
    """Looks at the next two of many parameters each time."""

    def __init__(self, parameters: list[Any]) -> None:
        self._next = itertools.cycle(parameters)

    def __call__(self) -> bool:
        return any(next(self._next).requires_grad for _ in range(2))


def _parameters(modules: Iterable[Any]) -> list[str]:
    """Return the first parameter that requires a gradient and how many do, in one text or none."""
    names = {
        id(parameter): name
        for module in modules
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }
    if not names:
        return []
    first = f"parameter '{next(iter(names.values()))}'"
    return [f"{first} and {len(names) - 1} more" if len(names) > 1 else first]
