"""What `make_graphed_callables` does as torch's: modules keep their place, and inputs are used."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from gpuprof._callable.state import requires_grad
from gpuprof._frameworks import loaded
from gpuprof._frameworks.torch import leaves_of
from gpuprof._frameworks.torch_hooks import replace
from gpuprof.errors import InvalidStateError

__all__ = ["graphed"]


class _Forward:
    """The ``forward`` of a module; it is in place before the capture, which guards it."""

    def __init__(self, module: Any) -> None:
        self.original = self.run = module.forward
        self.put_back = replace(module, "forward", self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)


def graphed(callables: Any, make: Callable[[Any], Any], *, allow_unused_input: bool) -> Any:
    """Return what `make` makes of functions, and modules themselves, whose ``forward`` it is."""
    several = callables if isinstance(callables, tuple) else (callables,)
    forwards = {n: _Forward(each) for n, each in enumerate(several) if loaded.is_module(each)}
    functions = [forwards[n].original if n in forwards else each for n, each in enumerate(several)]
    if not allow_unused_input and loaded.whole_torch() is not None:
        functions = list(map(_checked, functions, several))
    try:
        made = make(tuple(functions) if several is callables else functions[0])
    except BaseException:
        for forward in forwards.values():
            forward.put_back()
        raise
    result = list(made if several is callables else (made,))
    for n, forward in forwards.items():
        forward.run, result[n] = result[n], several[n]
    return tuple(result) if several is callables else result[0]


def _checked(function: Callable[..., Any], owner: Any) -> Callable[..., Any]:
    """Return the function; its first run refuses inputs that the results do not depend on."""
    todo = [owner]

    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        results = function(*args, **kwargs)
        while todo:
            _refuse_unused(todo.pop(), args, results)
        return results

    return run


def _refuse_unused(owner: Any, args: tuple[Any, ...], results: Any) -> None:
    leaves_in = importlib.import_module("torch.utils._pytree").tree_leaves
    differentiable = [each for each in leaves_in(results) if requires_grad(each)]
    if not differentiable:
        return
    used = {id(each) for each in leaves_of(differentiable)[0]}
    inputs = [(f"args[{n}]", each) for n, arg in enumerate(args) for each in leaves_in(arg)]
    if loaded.is_module(owner):
        inputs += [(f"parameter {name!r}", each) for name, each in owner.named_parameters()]
    unused = [name for name, each in inputs if requires_grad(each) and id(each) not in used]
    if unused:
        message = (
            f"the results do not depend on {', '.join(unused)}; pass allow_unused_input=True, or "
            "tensors that require no gradient"
        )
        raise InvalidStateError(message)
