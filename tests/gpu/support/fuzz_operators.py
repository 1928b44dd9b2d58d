"""The operators of the fuzzer's programs.

Each gives the same bits wherever its tensors lie and in whatever order sums are made: what is
multiplied as matrices or summed are small whole numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

TYPES = ("float32", "float32", "float16", "bfloat16", "int64", "bool")


class Op(NamedTuple):
    """What a step does.

    Attributes
    ----------
    run : callable
        Takes torch, so many tensors and the arguments. What it does not allow raises.
    num_operands : int
    choose : callable
        Takes a random generator and the tensors, and returns the arguments.
    writes : bool
        Whether it writes to the first tensor, and makes nothing.
    """

    run: Callable[..., Any]
    num_operands: int = 1
    choose: Callable[[random.Random, Sequence[Any]], tuple[Any, ...]] = lambda _chance, _given: ()
    writes: bool = False


def memory(tensor: Any) -> int:
    """Return what tells the memory of living tensors apart; 0 is none."""
    return int(tensor.untyped_storage().data_ptr())


def _dim(chance: random.Random, given: Sequence[Any]) -> tuple[int]:
    return (chance.randrange(given[0].dim()),)


def _two_dims(chance: random.Random, given: Sequence[Any]) -> tuple[int, int]:
    return (*_dim(chance, given), *_dim(chance, given))


def _number(chance: random.Random, given: Sequence[Any]) -> tuple[float]:
    whole = not given[0].is_floating_point()
    return (chance.randrange(-3, 4) if whole else chance.choice((-1.5, -0.5, 0.25, 1.0, 2.0)),)


def _part(chance: random.Random, given: Sequence[Any]) -> tuple[int, int, int]:
    """Return a dimension, where a part of it begins, and its length."""
    dim = _dim(chance, given)[0]
    size = given[0].shape[dim]
    begin = chance.randrange(size)
    return dim, begin, chance.randrange(1, size - begin + 1)


def _other_type(chance: random.Random, given: Sequence[Any]) -> tuple[str]:
    own = str(given[0].dtype).removeprefix("torch.")
    return (chance.choice([each for each in TYPES if each != own]),)


def _order(chance: random.Random, given: Sequence[Any]) -> tuple[tuple[int, ...]]:
    return (tuple(chance.sample(range(given[0].dim()), given[0].dim())),)


def _whole(x: Any) -> Any:
    """Return small whole numbers, whose sums and products are exact in every type and order."""
    return x.nan_to_num(0, 0, 0).round().clamp(-4, 4) if x.is_floating_point() else x.clamp(-4, 4)


def _as_type(torch: Any, x: Any, name: str) -> Any:
    if x.is_floating_point() and name == "int64":
        x = x.nan_to_num(0, 0, 0).clamp(-1000, 1000)
    return x.to(getattr(torch, name))


def _index(index: Any, size: int) -> Any:
    """Return valid indices of a dimension: a GPU would not survive others."""
    if size == 0:
        message = "there is nothing to point at"
        raise IndexError(message)
    return index.contiguous().view(-1)[:16].long().abs().remainder(size)


def _product(torch: Any, x: Any, y: Any) -> Any:
    """Return a product of small matrices, of the first's type if that is a floating one."""
    dtype = x.dtype if x.is_floating_point() else torch.float32
    one, other = (_whole(each.to(dtype)).reshape(-1, each.shape[-1])[:16] for each in (x, y))
    depth = min(16, one.shape[1], other.shape[1])
    return torch.matmul(one[:, :depth], other[:, :depth].t())


def _assign(_: Any, x: Any, y: Any, dim: int, begin: int, length: int) -> None:
    x.narrow(dim, begin, length)[...] = y.narrow(dim, 0, length)


def _add_into(torch: Any, x: Any, y: Any) -> None:
    if x.shape != y.shape:
        message = "torch would give it another shape"
        raise ValueError(message)
    torch.add(y, 1, out=x)


def _floats(x: Any) -> Any:
    if not x.is_floating_point():
        message = "not a floating type"
        raise TypeError(message)
    return x


_FRESH = {
    "abs": Op(lambda torch, x: torch.abs(x)),
    "relu": Op(lambda torch, x: torch.relu(x)),
    "tanh": Op(lambda torch, x: torch.tanh(x)),
    "sigmoid": Op(lambda torch, x: torch.sigmoid(x)),
    "exp": Op(lambda torch, x: torch.exp(x.clamp(-4, 4))),
    "neg": Op(lambda torch, x: torch.neg(x)),
    "clone": Op(lambda _, x: x.clone()),
    "dense": Op(lambda torch, x: x.clone(memory_format=torch.contiguous_format)),
    "channels_last": Op(lambda torch, x: x.clone(memory_format=torch.channels_last)),
    "logical_not": Op(lambda torch, x: torch.logical_not(x)),
    "to": Op(_as_type, choose=_other_type),
    "add_number": Op(lambda torch, x, number: torch.add(x, number), choose=_number),
    "mul_number": Op(lambda torch, x, number: torch.mul(x, number), choose=_number),
    "add": Op(lambda torch, x, y: torch.add(x, y), 2),
    "sub": Op(lambda torch, x, y: torch.sub(x, y), 2),
    "mul": Op(lambda torch, x, y: torch.mul(x, y), 2),
    "maximum": Op(lambda torch, x, y: torch.maximum(x, y), 2),
    "lerp": Op(lambda torch, x, y: torch.lerp(x, y, 0.25), 2),
    "greater": Op(lambda torch, x, y: torch.gt(x, y), 2),
    "where": Op(lambda torch, x, y, z: torch.where(x > 0, y, z), 3),
    "product": Op(_product, 2),
    "sum": Op(lambda _, x, dim: _whole(x).sum(dim), choose=_dim),
    "sum_all": Op(lambda _, x: _whole(x).sum()),
    "amax": Op(lambda torch, x, dim: torch.amax(x, dim), choose=_dim),
    "argmax": Op(lambda torch, x, dim: torch.argmax(_whole(x), dim, keepdim=True), choose=_dim),
    "cumsum": Op(lambda _, x, dim: _whole(x).cumsum(dim), choose=_dim),
    "sort": Op(lambda torch, x, dim: torch.sort(x, dim).values, choose=_dim),
    "softmax": Op(lambda torch, x, dim: torch.softmax(x.contiguous().clone(), dim), choose=_dim),
    "flip": Op(lambda torch, x, dim: torch.flip(x, (dim,)), choose=_dim),
    "roll": Op(lambda torch, x, dim: torch.roll(x, 1, dim), choose=_dim),
    "cat": Op(lambda torch, x, y, dim: torch.cat((x, y), dim), 2, _dim),
    "stack": Op(lambda torch, x, y: torch.stack((x, y)), 2),
    "index_select": Op(
        lambda torch, x, index, dim: torch.index_select(x, dim, _index(index, x.shape[dim])),
        2,
        _dim,
    ),
}
_VIEWS = {
    "permute": Op(lambda _, x, order: x.permute(order), choose=_order),
    "transpose": Op(lambda _, x, one, other: x.transpose(one, other), choose=_two_dims),
    "unsqueeze": Op(lambda _, x, dim: x.unsqueeze(dim), choose=_dim),
    "squeeze": Op(lambda _, x: x.squeeze()),
    "narrow": Op(lambda _, x, *part: x.narrow(*part), choose=_part),
    "select": Op(lambda _, x, dim, at, _length: x.select(dim, at), choose=_part),
    "step": Op(lambda _, x: x[..., ::2]),
    "view": Op(lambda _, x: x.view(-1)),
    "diagonal": Op(lambda _, x: x.diagonal(0, -2, -1)),
    "expand": Op(lambda _, x: x.expand(2, *x.shape)),
    "detach": Op(lambda _, x: x.detach()),
}
_WRITES = {
    "add_": Op(lambda _, x, y: x.add_(y), 2, writes=True),
    "mul_": Op(lambda _, x, y: x.mul_(y), 2, writes=True),
    "copy_": Op(lambda _, x, y: x.copy_(y), 2, writes=True),
    "add_number_": Op(lambda _, x, number: x.add_(number), 1, _number, writes=True),
    "fill_": Op(lambda _, x, number: x.fill_(number), 1, _number, writes=True),
    "zero_": Op(lambda _, x: x.zero_(), writes=True),
    "relu_": Op(lambda _, x: x.relu_(), writes=True),
    "clamp_": Op(lambda _, x: x.clamp_(-2, 2), writes=True),
    "assign": Op(_assign, 2, _part, writes=True),
    "masked_fill_": Op(
        lambda _, x, y, number: x.masked_fill_(y > 0, number), 2, _number, writes=True
    ),
    "index_fill_": Op(
        lambda _, x, index, dim: x.index_fill_(dim, _index(index, x.shape[dim]), 1),
        2,
        _dim,
        writes=True,
    ),
    "add_out": Op(_add_into, 2, writes=True),
}
_DRAWS = {
    "rand_like": Op(lambda torch, x: torch.rand_like(x)),
    "randn_like": Op(lambda torch, x: torch.randn_like(x)),
    "randint_like": Op(lambda torch, x: torch.randint_like(x, 0, 10)),
    "rand": Op(lambda torch, x: torch.rand(x.shape, device=x.device)),
    "dropout": Op(lambda torch, x: torch.dropout(_floats(x).contiguous().clone(), 0.4, True)),
    "bernoulli": Op(lambda torch, x: torch.bernoulli(torch.full_like(x, 0.5))),
    "normal_": Op(lambda _, x: x.normal_(), writes=True),
    "uniform_": Op(lambda _, x: x.uniform_(-1, 1), writes=True),
    "bernoulli_": Op(lambda _, x: x.bernoulli_(0.3), writes=True),
    "random_": Op(lambda _, x: x.random_(0, 10), writes=True),
}
# With how often a step is one of them.
KINDS = ((_FRESH, 8), (_VIEWS, 4), (_WRITES, 5), (_DRAWS, 2))
OPS: dict[str, Op] = _FRESH | _VIEWS | _WRITES | _DRAWS
