"""What a call depends on besides its arguments under torch: its modes, and what a warm-up moves.

Gradients, inference mode, autocast and the default dtype of new tensors are compared at each call.
Two more are taken as they are at the capture and not looked at again: whether algorithms have to be
deterministic, and the precision of float32 matrix products.

Torch is never imported from here. Without it a state is the one that torch begins with, and has no
probes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuprof._callable.pytree import Leaf

Probe = tuple[Callable[[], object], object]


@dataclass(frozen=True)
class State:
    """Torch's modes on this thread, as far as a graph has them inside.

    Attributes
    ----------
    grad, inference : bool
        Whether gradients are recorded, and whether inference mode is on.
    autocast : torch.dtype or None
        What work on the GPU is cast to; None where autocast is off.
    autocast_cache : bool
        Whether autocast keeps the weights that it has cast; True where autocast is off.
    default_dtype : torch.dtype or None
        What tensors are made of by default; None is float32.
    """

    grad: bool = True
    inference: bool = False
    autocast: Any = None
    autocast_cache: bool = True
    default_dtype: Any = None

    def describe_difference(self, captured: State) -> list[str]:
        """Return what is not as it was when `captured` was noted, in words."""
        rows = [
            ("grad mode", _on_off(self.grad), _on_off(captured.grad)),
            ("inference mode", _on_off(self.inference), _on_off(captured.inference)),
            ("autocast", _or(self.autocast, "off"), _or(captured.autocast, "off")),
            (
                "autocast's cache of weights",
                _on_off(self.autocast_cache),
                _on_off(captured.autocast_cache),
            ),
            (
                "default dtype",
                _or(self.default_dtype, "torch.float32"),
                _or(captured.default_dtype, "torch.float32"),
            ),
        ]
        return [f"{name}: {now}, captured {then}" for name, now, then in rows if now != then]


def _on_off(is_on: bool) -> str:
    return "on" if is_on else "off"


def _or(value: object, neutral: str) -> str:
    return neutral if value is None else str(value)


def _torch() -> Any:
    """Return torch if it is imported, all of it."""
    torch: Any = sys.modules.get("torch")
    return torch if hasattr(torch, "get_default_dtype") and hasattr(torch, "nn") else None


def current() -> State:
    """Return this thread's state."""
    torch = _torch()
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


def probes(state: State) -> tuple[Probe, ...]:
    """Return functions without arguments, with what each returns in this state.

    They are of torch's own, take some 50 ns each, and return shared objects: True, False, dtypes.
    """
    torch = _torch()
    if torch is None:
        return ()
    found: list[Probe] = [
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
    result_arrays: Iterable[Leaf] = (),
    modules: Iterable[Any] = (),
) -> list[str]:
    """Return what of a call asks for gradients, by name; nothing where they are not recorded.

    Parameters
    ----------
    state : State
    leaves : iterable of Leaf
        The arrays of the call.
    result_arrays : iterable of Leaf, optional
        Those of what an eager run has returned.
    modules : iterable of torch.nn.Module, optional
        Whose parameters may be the reason.
    """
    if not state.grad or state.inference:
        return []
    found = [leaf.path for leaf in leaves if getattr(leaf.array, "requires_grad", False)]
    results = [leaf.path for leaf in result_arrays if getattr(leaf.array, "requires_grad", False)]
    if not results:
        return found
    return found + (_parameters(modules) or results)


def asks_for_gradients(state: State, leaves: Iterable[Leaf]) -> bool:
    """Return whether an array of a call asks for gradients that are recorded."""
    return (
        state.grad
        and not state.inference
        and any(getattr(leaf.array, "requires_grad", False) for leaf in leaves)
    )


def gradient_probes(state: State, modules: Iterable[Any]) -> tuple[Probe, ...]:
    """Return what says, a few parameters a call, that none has come to require a gradient."""
    if not state.grad or state.inference:
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


@contextlib.contextmanager
def fresh_autocast_cache() -> Iterator[None]:
    """Let the block see none of the weights that autocast has cast, and leave none of its own.

    A weight that was cast before would be missing from the capture, and one that was cast in it
    lies in memory that the graph writes.
    """
    torch = _torch()
    clear = getattr(torch, "clear_autocast_cache", None)
    if clear is None or not torch.is_autocast_enabled():
        yield
        return
    clear()
    try:
        yield
    finally:
        clear()


@contextlib.contextmanager
def kept_random_state(device: int) -> Iterator[None]:
    """Put torch's default generator of one CUDA device back after the block."""
    cuda: Any = getattr(_torch(), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        yield
        return
    generator = cuda.default_generators[device]
    seed, offset = generator.initial_seed(), generator.get_offset()
    try:
        yield
    finally:
        if generator.initial_seed() != seed:
            generator.manual_seed(seed)
        generator.set_offset(offset)


@contextlib.contextmanager
def kept_buffers(modules: Iterable[Any]) -> Iterator[None]:
    """Put the buffers of modules in training mode back after the block, in place.

    A batch norm counts and averages what it sees, and what it sees in a warm-up is not to count.
    The copies are enqueued on the current stream.

    Parameters
    ----------
    modules : iterable of torch.nn.Module
        With all that is in them.
    """
    torch = _torch()
    places: list[tuple[Any, str, Any]] = []
    before: dict[int, Any] = {}
    for part in (part for module in modules for part in module.modules() if part.training):
        for name, buffer in part._buffers.items():
            if buffer is not None:
                places.append((part._buffers, name, buffer))
                if id(buffer) not in before:
                    before[id(buffer)] = buffer.detach().clone()
    try:
        yield
    finally:
        if places:
            with torch.inference_mode():  # in which tensors made in it can be written to as well
                for buffers, name, buffer in places:
                    if buffers[name] is not buffer:
                        buffers[name] = buffer
                    if id(buffer) in before:
                        buffer.copy_(before.pop(id(buffer)))
