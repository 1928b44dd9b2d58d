"""One model in one world, eager or graphed, and what two worlds have in common.

A use is written once, as a function of a world, and run in several. Each world has a copy of the
model of its own, equal seeds and equal batches. What it `see`s is compared step by step.

Worlds are compared bit by bit first. Where they differ, the numerics of the model are measured, as
gpuprof does it to verify: three more eager worlds start from weights and batches that are moved at
random by a relative 2^-22, or by the last bit of the type that is computed in, and one from the
same. What changes most in a tensor by that is its unit. So a training run may drift later as far as
a moved one drifts, and the first step may not, and a gradient that is zero but for rounding counts
as nothing.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree

Snapshot = dict[str, Any]

FLOAT32 = 2.0**-22
# How far a moved world starts from the others, and how many of its units, or last bits of a
# tensor's largest value, are numerics. What the last bit of a half type does is much already.
UNITS = {FLOAT32: 16.0, 2.0**-11: 4.0, 2.0**-8: 4.0}


class NotApplicable(Exception):
    """Raised by a use that a model has nothing for."""


Draw = Callable[[torch.Generator, int], Any]


@dataclass(frozen=True)
class Model:
    """How to make a module, and what draws its arguments, by name, for a number of rows."""

    make: Callable[[], Any]
    arguments: Mapping[str, Draw]
    compiles: bool = False  # one of the few that are compiled, because that is slow
    loss: float = 1.0  # what losses are multiplied by, for models that training blows up


def numbers(*shape: int) -> Draw:
    """Return what draws an array of this shape for each row."""
    return lambda generator, rows: torch.randn(rows, *shape, generator=generator)


def words(*shape: int, of: int = 96) -> Draw:
    """Return what draws indices of this shape for each row, of so many words."""
    return lambda generator, rows: torch.randint(3, of, (rows, *shape), generator=generator)


def is_trained(leaf: Any) -> bool:
    """Return whether a leaf of a result leads back to parameters."""
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


class World:
    """A copy of a model, batches, and a way to graph it; keeps what is seen in each step."""

    def __init__(
        self, model: Model, net: Any, graph: Any, device: str, *, moved: float = 0.0, noise: int = 0
    ) -> None:
        self.model, self.device, self.moved = model, device, moved
        self.seen: list[Snapshot] = []
        self.callables: list[Any] = []
        self._graph = graph
        self.net = copy.deepcopy(net).to(device)
        self._noise = torch.Generator(device).manual_seed(noise)
        for each in (*self.net.parameters(), *self.net.buffers()):
            if moved and each.is_floating_point():
                each.data.copy_(self._moved(each.data))

    def _moved(self, values: Any) -> Any:
        if not self.moved or not values.is_floating_point():
            return values
        noise = torch.rand(values.shape, generator=self._noise, device=values.device)
        return values * (1 + self.moved * (2 * noise - 1))

    def batch(self, seed: int, rows: int = 2, dtype: torch.dtype = torch.float32) -> Any:
        """Return a batch, the same in every world but for what is moved; floats are of `dtype`."""
        generator = torch.Generator().manual_seed(seed)
        given = {name: draw(generator, rows) for name, draw in self.model.arguments.items()}

        def arrived(each: Any) -> Any:
            moved = self._moved(each.to(self.device))
            return moved.to(dtype) if each.is_floating_point() else moved

        return _pytree.tree_map_only(torch.Tensor, arrived, given)

    def graph(self, fn: Any, sample: dict[str, Any] | None = None, **options: Any) -> Any:
        """Return what is called in place of `fn`."""
        samples = () if sample is None else ((), sample)
        self.callables.append(self._graph(fn, *samples, **options))
        return self.callables[-1]

    def loss(self, result: Any, first_only: bool = False) -> Any:
        """Return the distance of all results that require gradients from something fixed."""
        found = [each for each in _pytree.tree_leaves(result) if is_trained(each)]
        losses = []
        for each in found[:1] if first_only else found:
            wanted = torch.arange(each.numel(), device=each.device).cos().view(each.shape)
            losses.append((each.float() - wanted).square().mean() * self.model.loss)
        return sum(losses[1:], losses[0])

    def call(self, run: Any, batch: Any, seed: int = 0) -> Any:
        """Call with these random numbers, see the result, and return it."""
        torch.manual_seed(seed)
        result = run(**batch)
        self.see(result)
        return result

    def see(self, result: Any) -> None:
        """Keep a copy of a result, of parameters, their gradients, and buffers."""
        leaves, _ = _pytree.tree_flatten_with_path(result)
        seen: Snapshot = {f"result{_pytree.keystr(path)}": leaf for path, leaf in leaves}
        requires = [name for name, leaf in seen.items() if is_trained(leaf)]
        for name, each in self.net.named_parameters():
            seen[f"parameter {name}"], seen[f"gradient {name}"] = each, each.grad
        seen |= {f"buffer {name}": each for name, each in self.net.named_buffers()}
        seen = {
            name: each.detach().clone() if isinstance(each, torch.Tensor) else each
            for name, each in seen.items()
            if each is None or isinstance(each, (torch.Tensor, int, float, str))
        }
        self.seen.append({**seen, "what requires gradients": str(requires)})


def is_same(found: Any, wanted: Any) -> bool:
    """Return whether two parts of snapshots are the same, bit by bit."""
    if not isinstance(wanted, torch.Tensor) or not isinstance(found, torch.Tensor):
        return type(found) is type(wanted) and found == wanted
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return False
    return bool(((found == wanted) | (found.isnan() & wanted.isnan())).all())


def differences(found: list[Snapshot], wanted: list[Snapshot]) -> list[tuple[int, str]]:
    """Return steps and names of what is not the same, also of what one of them has not."""
    return [
        (step, name)
        for step, (mine, theirs) in enumerate(itertools.zip_longest(found, wanted, fillvalue={}))
        for name in {**theirs, **mine}
        if name not in mine or name not in theirs or not is_same(mine[name], theirs[name])
    ]


def apart(found: Any, wanted: Any) -> float:
    """Return the largest difference of two tensors, infinite where no number tells it."""
    if not isinstance(wanted, torch.Tensor) or not isinstance(found, torch.Tensor):
        return 0.0 if is_same(found, wanted) else math.inf
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return math.inf
    if not wanted.numel():
        return 0.0
    found, wanted = found.double(), wanted.double()
    error = torch.where(found == wanted, 0.0, (found - wanted).abs()).max().item()
    return math.inf if math.isnan(error) else error


def _kind(name: str) -> str:
    """Return whether a name is of a result, a parameter, a gradient or a buffer."""
    return name.partition(" ")[0].partition("[")[0]


def relative(found: list[Snapshot], wanted: list[Snapshot]) -> float:
    """Return the largest difference, relative to the largest result, gradient and so on of a step.

    Of its own tensor's largest value, a gradient that is zero but for rounding is far away.
    """
    largest: dict[tuple[int, str], float] = {}
    for step, each in enumerate(wanted):
        for name, values in each.items():
            of = step, _kind(name)
            largest[of] = max(largest.get(of, 0.0), _largest(values))
    furthest = 0.0
    for step, name in differences(found, wanted):
        scale = largest[step, _kind(name)] or 1.0
        furthest = max(furthest, apart(found[step][name], wanted[step][name]) / scale)
    return furthest


@dataclass
class Verdict:
    """What became of a use: equal, close, refused, wrong, or n/a, and why."""

    status: str
    why: str = ""
    relative: float = 0.0
    operator: str = ""  # the one that was named by a refusal
    notes: dict[str, Any] = field(default_factory=dict)


def judge(
    found: list[Snapshot],
    wanted: list[Snapshot],
    moved: list[list[Snapshot]],
    moved_by: float,
    floor: float,
) -> Verdict:
    """Return whether what differs from what is wanted is no more than moved worlds differ."""
    nearest, told = 0.0, ""
    for step, name in differences(found, wanted):
        if not all(step < len(each) and name in each[step] for each in (found, wanted)):
            return Verdict("wrong", f"{name} at step {step} is not in both worlds", math.inf)
        mine, theirs = found[step][name], wanted[step][name]
        error, largest = apart(mine, theirs), _largest(theirs)
        unit = max(apart(each[step].get(name), theirs) for each in moved)
        least = max(floor, UNITS[moved_by] * _eps(theirs)) if _eps(theirs) else 0.0
        allowed = max(UNITS[moved_by] * unit, least * largest)
        text = f"{name} at step {step}: {error:.3g} apart, {unit:.3g} is its unit"
        if not error <= allowed or math.isinf(error):
            text += f", {largest:.3g} its largest value"
            return Verdict("wrong", text, error / (largest or 1.0))
        if error / allowed >= nearest:
            nearest, told = error / allowed, text
    return Verdict("close", told, relative(found, wanted))


def _largest(values: Any) -> float:
    if not isinstance(values, torch.Tensor) or not values.numel():
        return 0.0
    return float(values.double().nan_to_num(0.0, 0.0, 0.0).abs().max().item())


def _eps(values: Any) -> float:
    is_float = isinstance(values, torch.Tensor) and values.is_floating_point()
    return float(torch.finfo(values.dtype).eps) if is_float else 0.0


def eager(fn: Any, *_samples: Any, **_options: Any) -> Any:
    """Return the function itself, as `make_graphed_callable` does in the eager world."""
    return fn


@contextlib.contextmanager
def as_if_captured() -> Iterator[Any]:
    """Give a stand-in for `eager` whose functions are told that a capture is under way.

    Some models take other branches then, with other kernels. As in a callable without samples, the
    first three calls are told the truth. So is code of torch, other than `torch.nn`, and gpuprof.
    """
    truth = torch.cuda.is_current_stream_capturing
    captured = False

    def told() -> bool:
        asking = str(sys._getframe(1).f_globals.get("__name__"))
        is_told_the_truth = asking.startswith(("torch.", "gpuprof.")) and "torch.nn" not in asking
        return bool(truth()) if is_told_the_truth else captured

    def graph(fn: Any, *samples: Any, **_options: Mapping[str, Any]) -> Any:
        calls = 3 if samples else 0

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls, captured
            calls += 1
            captured = calls > 3
            return fn(*args, **kwargs)

        return run

    torch.cuda.is_current_stream_capturing = told
    try:
        yield graph
    finally:
        torch.cuda.is_current_stream_capturing = truth
