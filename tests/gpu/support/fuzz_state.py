"""What the fuzzer's functions read besides their arguments, and the functions as Python code.

Tensors lie in a module and its submodules, in a closure, in an object's attribute, in a dict, in a
list and in a global; some of them are views of one memory. Some functions have the module as an
attribute of that object.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

ROWS, COLUMNS = 4, 6
MATRIX, ROW = (ROWS, COLUMNS), (COLUMNS,)
_BESIDE = 0.5  # in the memory around a tensor

PARAMETERS = {
    "model.weight": MATRIX,
    "model.bias": ROW,
    "model.square": (COLUMNS, COLUMNS),
    "model.inner.weight": ROW,
}
BUFFERS = {"model.total": MATRIX, "model.count": ROW}
EXTERNAL = {
    "closure": MATRIX,
    "holder.cache": (ROWS + 1, COLUMNS),
    "table['row']": ROW,  # of the cache
    "items[0]": MATRIX,  # the last rows of the cache
    "kept": ROW,
}
# Expressions for arguments that are state, by shape.
VIEWS_OF_STATE = {
    MATRIX: (
        *("model.weight", "model.total", "closure", "items[0]", "holder.cache[:4]"),
        *("holder.cache[1:]", "model.square[:4]", "model.square[2:]"),
    ),
    ROW: (
        *("model.bias", "model.inner.weight", "table['row']", "kept", "holder.cache[2]"),
        *("model.total[0]", "closure[3]", "model.square[:, 1]"),
    ),
}
# What actions change as a whole, with what shares its memory.
MODULE_STATE = {**PARAMETERS, **BUFFERS}


def values(torch: Any, seed: int, shape: Sequence[int], dtype: Any, device: str) -> Any:
    """Return small quarters, which sums and products keep exact for a while; many are zero."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(-8, 9, tuple(shape), generator=generator)
    return (whole / 4 if dtype.is_floating_point else whole).to(dtype).to(device)


def laid_out(torch: Any, given: Any, layout: str) -> Any:
    """Return equal values in new memory of another layout, beside which there is more memory."""
    shape = given.shape
    if layout == "dense" or not shape:
        return given.clone(memory_format=torch.contiguous_format)
    if layout == "expanded":
        return given[:1].clone().expand(shape)
    if layout == "transposed":
        order = tuple(reversed(range(given.dim())))
        return given.permute(order).contiguous().permute(order)

    def base(*sizes: int) -> Any:
        return torch.full(sizes, _BESIDE, device=given.device).to(given.dtype)

    if layout == "sliced":
        place = base(*(size + 2 for size in shape))[tuple(slice(1, size + 1) for size in shape)]
    elif layout == "stepped":
        place = base(*shape[:-1], 2 * shape[-1])[..., ::2]
    elif layout == "roomy":  # more of the same behind it
        place = base(shape[0] + 1, *shape[1:])[:-1]
    else:
        place = base(given.numel() + 3)[3:].view(shape)
    place.copy_(given)
    return place


LAYOUTS = ("dense", "transposed", "sliced", "stepped", "roomy", "offset", "expanded")


def whole(torch: Any, tensor: Any) -> Any:
    """Return all of the memory that a tensor is in."""
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(tensor.detach().untyped_storage())


@functools.cache
def _classes(torch: Any) -> tuple[type, type]:
    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, scale: Any, shift: Any, trains: bool) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(scale, requires_grad=trains)
            self.register_buffer("shift", shift)

        def forward(self, x: Any) -> Any:
            return x * self.scale + self.shift

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *given: Any) -> Any:
            return self.body(*given)

    return Block, Model


class State:
    """All state of one world; equal seeds give equal states.

    Attributes
    ----------
    scope : dict
        What the names in the expressions for state stand for.
    """

    def __init__(self, torch: Any, seed: int, device: str, *, trains: bool) -> None:
        self.torch = torch
        self.device = device
        self.trains = trains
        self._block, model_type = _classes(torch)

        def new(number: int, shape: Sequence[int]) -> Any:
            return values(torch, seed * 97 + number, shape, torch.float32, device)

        self.model: Any = model_type()
        self.model.inner = torch.nn.Module()
        cache = new(50, EXTERNAL["holder.cache"])
        self.scope: dict[str, Any] = {
            "model": self.model,
            "closure": new(51, MATRIX).requires_grad_(trains),
            "holder": types.SimpleNamespace(cache=cache, net=self.model),
            "table": {"row": cache[1]},
            "items": [cache[1:]],
            "kept": new(52, ROW),
        }
        for number, (name, shape) in enumerate(PARAMETERS.items()):
            owner, leaf = self._owner(name)
            setattr(owner, leaf, torch.nn.Parameter(new(number, shape), requires_grad=trains))
        for number, (name, shape) in enumerate(BUFFERS.items()):
            owner, leaf = self._owner(name)
            owner.register_buffer(leaf, new(20 + number, shape))
        self.model.register_buffer("optional", None)
        self.model.drop = torch.nn.Dropout(0.5)
        self.model.blocks = torch.nn.ModuleList()
        for number in range(2):
            self.append_block(seed + number)
        self.model.train(seed % 2 == 0)

    def _owner(self, name: str) -> tuple[Any, str]:
        owner, _, leaf = name.rpartition(".")
        return eval(owner, self.scope), leaf

    def get(self, expression: str) -> Any:
        return eval(expression, dict(self.scope))

    def replace(self, name: str, tensor: Any) -> None:
        """Put another parameter or buffer into a module."""
        owner, leaf = self._owner(name)
        if name in PARAMETERS:
            tensor = self.torch.nn.Parameter(tensor, getattr(owner, leaf).requires_grad)
        setattr(owner, leaf, tensor)

    def append_block(self, seed: int) -> None:
        new = functools.partial(
            values, self.torch, shape=ROW, dtype=self.torch.float32, device=self.device
        )
        self.model.blocks.append(self._block(new(seed=seed), new(seed=seed + 1), self.trains))

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """All tensors, by name."""
        yield from self.model.named_parameters()
        yield from self.model.named_buffers()
        yield from ((name, self.get(name)) for name in EXTERNAL)


class Line(NamedTuple):
    """One line of a function: an operator on names and expressions for state.

    `result` is the name of what it makes; None for a write.
    """

    op: str
    operands: tuple[str, ...]
    arguments: tuple[Any, ...] = ()
    result: str | None = None

    def __str__(self) -> str:
        call = f"{self.op}({', '.join([*self.operands, *map(repr, self.arguments)])})"
        return call if self.result is None else f"{self.result} = {call}"


class Body(NamedTuple):
    """A function of tensors.

    Attributes
    ----------
    lines : tuple of Line
    results : tuple of str
        None of them is in memory of an argument, of state or of another one.
    num_arguments : int
    timed : int or None
        The line that is inside a scope of gpuprof's.
    model : str
        By which expression the function reads the module.
    """

    lines: tuple[Line, ...]
    results: tuple[str, ...]
    num_arguments: int
    timed: int | None = None
    model: str = "model"

    def __str__(self) -> str:
        names = ", ".join(f"a{number}" for number in range(self.num_arguments))
        text = [f"def function({names}):"]
        for number, line in enumerate(self.lines):
            scope = 'with timer("fuzz"): ' if number == self.timed else ""
            text.append(f"    {scope}{line}")
        results = ", ".join(self.results)
        text.append(f"    return ({results},)" if results else "    return None")
        return re.sub(r"\bmodel\b", self.model, "\n".join(text))

    def function(self, scope: dict[str, Any], operators: dict[str, Any]) -> Any:
        """Return the function over one world's state: a closure over all of it but a global."""
        inner = "\n".join(f"    {line}" for line in str(self).splitlines())
        namespace = {**operators, "kept": scope["kept"]}
        text = f"def make(model, closure, holder, table, items):\n{inner}\n    return function"
        exec(compile(text, "<fuzz>", "exec"), namespace)
        return namespace["make"](
            *(scope[name] for name in ("model", "closure", "holder", "table", "items"))
        )
