"""Torch's modes, which a call depends on besides its arguments.

Gradients, inference mode, autocast and the default dtype of new tensors are compared at each call.
Two more are taken as they are at the capture and not looked at again: whether algorithms have to be
deterministic, and the precision of float32 matrix products.

Without torch a state is the one that torch begins with, and has no guards.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuprof._frameworks import loaded
from gpuprof._frameworks.arrays import copied, put_back
from gpuprof._frameworks.torch import random_state

if TYPE_CHECKING:
    from gpuprof._callable.leaves import Leaf

_NO_LEVEL = -1  # of forward-mode differentiation
_REQUIRES_GRAD = operator.attrgetter("requires_grad")

StateGuard = tuple[Callable[[], object], object]


class State(NamedTuple):
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
        return [
            f"{name}: {words.get(now, now)}, captured {words.get(then, then)}"
            for (name, words), now, then in zip(_IN_WORDS, self, captured, strict=True)
            if now != then
        ]


_ON_OFF = {True: "on", False: "off"}
_IN_WORDS: tuple[tuple[str, dict[Any, str]], ...] = (
    ("grad mode", _ON_OFF),
    ("inference mode", _ON_OFF),
    ("autocast", {None: "off"}),
    ("autocast's cache of weights", _ON_OFF),
    ("default dtype", {None: "torch.float32"}),
)


def current() -> State:
    """Return this thread's state."""
    torch = loaded.whole_torch()
    if torch is None:
        return State()
    casts = torch.is_autocast_enabled()
    dtype = torch.get_default_dtype()
    return State(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_autocast_dtype("cuda") if casts else None,
        torch.is_autocast_cache_enabled() if casts else True,
        None if dtype is torch.float32 else dtype,
    )


def state_guards() -> tuple[StateGuard, ...]:
    """Return functions without arguments, with what each is to return on this thread in a call.

    They are of torch's own, take some 50 ns each, and return shared objects: True, False, dtypes.
    """
    torch = loaded.whole_torch()
    if torch is None:
        return ()
    asks: list[Callable[[], object]] = [
        torch.is_grad_enabled,
        torch.is_inference_mode_enabled,
        torch.is_autocast_enabled,  # without an argument it tells of the GPU, in half the time
        torch.get_default_dtype,
    ]
    if torch.is_autocast_enabled():
        asks += [
            functools.partial(torch.get_autocast_dtype, "cuda"),
            torch.is_autocast_cache_enabled,
        ]
    return (
        *((ask, ask()) for ask in asks),
        # Inside of transforms, which a capture may be in, tensors stand for others.
        (torch._C._functorch.maybe_current_level, None),
        (functools.partial(getattr, torch.autograd.forward_ad, "_current_level"), _NO_LEVEL),
    )


def transform_of_torch() -> str | None:
    """Return what this code runs inside of by name: a transform of torch.func, or forward mode."""
    torch = loaded.whole_torch()
    if torch is None:
        return None
    transforms = torch._C._functorch
    if transforms.maybe_current_level() is not None:
        key = transforms.peek_interpreter_stack().key()
        return f"torch.func ({str(key).rpartition('.')[2].lower()})"
    in_forward_mode = torch.autograd.forward_ad._current_level != _NO_LEVEL
    return "torch.autograd.forward_ad" if in_forward_mode else None


def modes_of(
    leaves: Iterable[Leaf], modules: Iterable[Any]
) -> tuple[State, tuple[bool, ...], tuple[bool, ...]]:
    """Return the state, which modules train, and what requires gradients if they are recorded."""
    state, modules = current(), list(modules)
    training = tuple(part.training for module in modules for part in module.modules())
    require: tuple[bool, ...] = ()
    if state.records_gradients:
        parameters = (each for module in modules for each in module.parameters())
        require = (*map(_REQUIRES_GRAD, leaves), *map(_REQUIRES_GRAD, parameters))
    return state, training, require


def requires_grad(array: object) -> bool:
    """Return whether an array is a tensor that requires a gradient."""
    return bool(getattr(array, "requires_grad", False))


def tensor_guards(state: State, tensors: Sequence[Any]) -> list[StateGuard]:
    """Return what says that tensors require gradients, and hold on the CPU, as they did."""
    found: list[StateGuard] = [  # a graph has inside what it reads of the CPU
        (functools.partial(getattr, tensor, "_version"), tensor._version)
        for tensor in tensors
        if tensor.device.type == "cpu" and not tensor.is_pinned() and not tensor.is_inference()
    ]
    if not state.records_gradients:
        return found
    floating = [each for each in tensors if each.is_floating_point() or each.is_complex()]
    without = [each for each in floating if not each.requires_grad]
    with_ = [each for each in floating if each.requires_grad]
    if without:
        any_requires = loaded.torch()._C._any_requires_grad
        found.append((functools.partial(any_requires, *without), False))
    if with_:
        found.append((lambda: all(map(_REQUIRES_GRAD, with_)), True))
    return found


def training_flags(modules: Iterable[Any]) -> list[StateGuard]:
    """Return what says that modules are in training or evaluation as they were."""
    modules = list(modules)
    inner = {id(part) for each in modules for part in each.modules() if part is not each}
    outer = [each for each in modules if id(each) not in inner]  # `train` of these changes the rest
    return [(functools.partial(getattr, each, "training"), each.training) for each in outer]


class GradientFields:
    """The ``.grad`` of the parameters of modules, and of what a run has shown.

    Made before the function is captured. It says what the capture found there, which a call must
    find as well, and what a call leaves there.
    """

    def __init__(self, modules: Iterable[Any] = ()) -> None:
        self._before: dict[int, tuple[Any, Any]] = {}
        for each in (each for module in modules for each in module.parameters()):
            self.add(each)

    def add(self, tensor: Any) -> None:
        """Add a tensor with the ``.grad`` that it has now, if it is not known."""
        self._before.setdefault(id(tensor), (tensor, tensor.grad))

    def changed(self) -> list[tuple[Any, Any]]:
        """Return the parameters whose ``.grad`` the function has set, with what it has set."""
        pairs = self._before.values()
        return [(each, each.grad) for each, before in pairs if each.grad is not before]

    def restore(self) -> None:
        set_gradients(self._before.values())

    def guards(self, used: Collection[int]) -> list[StateGuard]:
        """Return what says that a call finds there what the capture found, as far as it matters."""
        expected = [  # where there was none, or the function `used` the memory of what was there
            (each, before)
            for each, before in self._before.values()
            if (before is None and each.grad is not None)
            or (before is not None and before.untyped_storage()._cdata in used)
        ]
        return [(lambda: all(each.grad is one for each, one in expected), True)] if expected else []


class Snapshot:
    """Torch's generator of a device, what tensors hold, and the ``.grad`` of parameters."""

    def __init__(self, device: int, tensors: Sequence[Any], parameters: Iterable[Any]) -> None:
        self.copies = copied(tensors)
        self._tensors = tensors
        self._gradients = [(each, each.grad) for each in parameters]
        self._rewind = random_state(device)

    def put_back(self) -> None:
        put_back(self._tensors, self.copies)
        set_gradients(self._gradients)
        self._rewind()


def set_gradients(gradients: Iterable[tuple[Any, Any]]) -> None:
    for parameter, gradient in gradients:
        parameter.grad = gradient
