"""What of torch's state gpuprof reads, and what it puts back after a block that it runs.

Nothing here imports torch or initialises CUDA. Any thread; bytes.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypedDict

from gpuprof._frameworks import loaded


class TorchMemory(TypedDict):
    """The caching allocator of one device: its peak, and what was added since the last reset."""

    device: str
    peak_bytes: int
    delta_bytes: int


_allocated_at_reset: dict[int, int] = {}
# By device: the highest peak that gpuprof has set back, and what torch's peak was when it was last
# looked at. Written by `gpuprof._frameworks.memory`.
overwritten_peaks: dict[int, tuple[int, int]] = {}


def note_reset() -> None:
    """Remember what is allocated now: later deltas count from here."""
    _allocated_at_reset.clear()
    try:
        cuda = loaded.torch_cuda()
        if cuda is not None:
            for index in range(cuda.device_count()):
                _allocated_at_reset[index] = int(cuda.memory_allocated(index))
    except Exception:  # a report must not fail for what torch could not tell
        _allocated_at_reset.clear()


def torch_memory() -> list[TorchMemory]:
    """Return peak and change of allocated bytes for each device that torch allocated on.

    The peak is torch's own, since the process began or the user called ``reset_peak_memory_stats``;
    resets by gpuprof do not change it. The change is since the last ``gpuprof.reset()``, or since
    the process began.
    """
    try:
        cuda = loaded.torch_cuda()
        if cuda is None:
            return []
        found: list[TorchMemory] = []
        for index in range(cuda.device_count()):
            peak = int(cuda.max_memory_allocated(index))
            hidden, seen = overwritten_peaks.get(index, (0, 0))
            if peak >= seen:  # else somebody has reset it since
                peak = max(peak, hidden)
            delta = int(cuda.memory_allocated(index)) - _allocated_at_reset.get(index, 0)
            if peak or delta:
                found.append({"device": f"cuda:{index}", "peak_bytes": peak, "delta_bytes": delta})
    except Exception:  # a report without memory is better than none
        return []
    return found


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put back the generators of Python, and of NumPy and torch where they are imported.

    Torch's are the CPU's and the current device's. CuPy's live on the GPU and are left alone.
    """
    with ExitStack() as undo:
        undo.callback(random.setstate, random.getstate())
        numpy = loaded.numpy()
        if getattr(numpy, "random", None) is not None:
            undo.callback(numpy.random.set_state, numpy.random.get_state(legacy=False))
        torch, cuda = loaded.torch(), loaded.torch_cuda()
        if getattr(torch, "get_rng_state", None) is not None:
            undo.callback(torch.set_rng_state, torch.get_rng_state())
            if cuda is None:
                undo.callback(_reseed_cuda)
            else:
                device = cuda.current_device()
                undo.callback(cuda.set_rng_state, cuda.get_rng_state(device), device)
        yield


def _reseed_cuda() -> None:
    """Put the current device's generator, which was initialised in a block, back to its seed."""
    cuda = loaded.torch_cuda()
    if cuda is not None:
        cuda.manual_seed(cuda.initial_seed())


def random_state(device: int) -> Callable[[], None]:
    """Return what puts torch's generator of one CUDA device back to where it is now."""
    cuda = None if loaded.whole_torch() is None else loaded.torch_cuda()
    if cuda is None:
        return lambda: None
    generator = cuda.default_generators[device]
    seed, offset = generator.initial_seed(), generator.get_offset()

    def rewind() -> None:
        if generator.initial_seed() != seed:
            generator.manual_seed(seed)
        generator.set_offset(offset)

    return rewind


@contextmanager
def fresh_autocast_cache() -> Iterator[None]:
    """Clear autocast's cache of cast weights before and after the block.

    A weight that was cast before a capture would be missing from it, and one that was cast inside
    lies in the memory of the graph.
    """
    torch = loaded.whole_torch()
    with ExitStack() as undo:
        if torch is not None and torch.is_autocast_enabled():
            torch.clear_autocast_cache()
            undo.callback(torch.clear_autocast_cache)
        yield


@contextmanager
def own_parameters(modules: Iterable[Any]) -> Iterator[dict[int, Any]]:
    """Put others into the place of the parameters of modules that require gradients, for the block.

    They have the same memory, and nodes of their own in autograd's graph. They replace parameters
    by name and in lists of modules, as recurrent layers keep of their weights. Yields whom they
    stand in for, by their ids.
    """
    owners: dict[int, Any] = {}
    stand_ins: dict[int, Any] = {}
    replaced: list[tuple[Any, Any, Any, Any]] = []  # in what and where, what was there, what is
    parameter_type = loaded.torch().nn.Parameter

    def stand_in(held: Any) -> Any:
        """Return what replaces a parameter or a weak reference to one; None for anything else."""
        is_weak = type(held) is weakref.ref
        parameter = held() if is_weak else held
        if type(parameter) is not parameter_type or not parameter.requires_grad:
            return None
        if id(parameter) not in stand_ins:
            own = stand_ins[id(parameter)] = parameter_type(parameter.detach())
            vars(own).update(vars(parameter))
            owners[id(own)] = parameter
        own = stand_ins[id(parameter)]
        return weakref.ref(own) if is_weak else own

    for part in (part for module in modules for part in module.modules()):
        own = vars(part)
        # The parameters of a scripted module are in C++.
        for held in (own, *(each for each in own.values() if isinstance(each, (dict, list)))):
            items = held.items() if isinstance(held, dict) else enumerate(held)
            replaced += [
                (held, key, value, new)
                for key, value in items
                if (new := stand_in(value)) is not None
            ]
    try:
        for held, key, _, new in replaced:
            held[key] = new
        yield owners
    finally:
        for held, key, value, new in replaced:
            if (held.get(key) if isinstance(held, dict) else held[key]) is new:
                held[key] = value


def leaves_of(results: Iterable[Any]) -> tuple[list[Any], bool]:
    """Return the tensors that a backward pass ends in, and whether compiled code is part of it."""
    edge_of = loaded.torch().autograd.graph.get_gradient_edge
    seen: dict[int, Any] = {}
    todo = [edge_of(each).node for each in results if getattr(each, "requires_grad", False)]
    while todo:
        node = todo.pop()
        if node is not None and id(node) not in seen:
            seen[id(node)] = node
            todo += [following for following, _ in node.next_functions]
    kinds = {type(each).__name__ for each in seen.values()}
    leaves = [each.variable for each in seen.values() if type(each).__name__ == "AccumulateGrad"]
    return leaves, "CompiledFunctionBackward" in kinds


@contextmanager
def at_versions(versions: Mapping[Any, int]) -> Iterator[None]:
    """Set the version counters of tensors for the block.

    Autograd refuses a backward pass where one has moved on, although a graph's memory has not.
    """
    tensors = tuple(versions)
    set_to = loaded.torch()._C._autograd._unsafe_set_version_counter
    now = tuple(each._version for each in tensors)
    set_to(tensors, tuple(versions.values()))
    try:
        yield
    finally:
        set_to(tensors, now)


@contextmanager
def without_hooks(tensors: Iterable[Any]) -> Iterator[None]:
    """Run none of the hooks of these tensors in backward passes of the block.

    `torch.autograd.grad` runs those of the tensors that it is asked for, as `backward` does.
    """
    with ExitStack() as undo:
        for hooks in (each._backward_hooks for each in tensors):
            if hooks:
                undo.callback(hooks.update, dict(hooks))
                hooks.clear()
        yield


def has_ddp(parameters: Iterable[Any]) -> bool:
    """Return whether a DistributedDataParallel averages the gradients of one of `parameters`."""
    kind = loaded.torch().nn.parallel.DistributedDataParallel
    numbers = {id(each) for each in parameters}
    return any(
        id(parameter) in numbers
        for each in gc.get_objects()
        if type(each) is kind
        for parameter in each.parameters()
    )


def in_ddp_forward() -> bool:
    kind = loaded.torch().nn.parallel.DistributedDataParallel
    return getattr(kind, "_active_ddp_module", None) is not None


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as `torch.compile` makes it, for one shape of its arguments."""
    import torch

    found: Callable[..., Any] = torch.compile(function, dynamic=False)
    return found


def pytree_node(kind: type) -> Any:
    """Return how ``torch.utils._pytree`` takes objects of a class apart; None if it does not."""
    return getattr(loaded.torch_part("utils._pytree"), "SUPPORTED_NODES", {}).get(kind)
