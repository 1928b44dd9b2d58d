"""What `gpuprof.watch` costs a training step, compared with hooks by hand and torch.profiler.

Nanoseconds per step of forward and backward pass, best and median of several rounds, all ways in
one process: a model like a transformer of 29 modules, on the GPU where there is one, and one of 86
modules on the CPU. Hooks by hand are torch's: around the forward and the full backward pass of each
module that is watched, once empty, and once with a pair of events around each pass. Events need a
GPU. The GPU is waited for at the end of each round, and its steps are small, so the host is what
they wait for.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import nn
from torch.nn import functional

import gpuprof
from support import measure
from support.measure import Contender, Rounds
from support.results import Row
from support.transformer import TransformerBlock

_STEPS = 10
_WIDTH, _HEADS, _TOKENS = 128, 4, 64
_PLAIN = "plain step"
_WATCH = "watch(depth=2)"
_EVENTS = "event pairs in hooks by hand"
_EMPTY = "empty hooks by hand"
_PROFILER = "torch.profiler"
# The share of the time of hooks by hand on the GPU, and of the plain step on the CPU.
_THAN_EVENTS, _THAN_PLAIN = 0.8, 1.1

Hook = Callable[..., None]
Way = Callable[[nn.Module], AbstractContextManager[object]]


class _Block(TransformerBlock):
    def forward(self, given: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = given.shape
        mixed = self.mixed(self.first_norm(given)).view(batch, tokens, 3, _HEADS, -1)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value)
        return self.after(given, attended.transpose(1, 2).reshape(batch, tokens, width))


def _model(blocks: int, *more: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(_Block(_WIDTH) for _ in range(blocks)), *more)


@contextlib.contextmanager
def _hooked(model: nn.Module, make: Callable[[], tuple[Hook, Hook]]) -> Iterator[None]:
    """Put hooks around the forward and the backward pass of each module."""
    handles = []
    for module in model.modules():
        (before, after), (before_backward, after_backward) = make(), make()
        handles += [
            module.register_forward_pre_hook(before),
            module.register_forward_hook(after),
            module.register_full_backward_pre_hook(before_backward),
            module.register_full_backward_hook(after_backward),
        ]
    yield
    for handle in handles:
        handle.remove()


def _empty_hooks() -> tuple[Hook, Hook]:
    def hook(*_arguments: object) -> None:
        return None

    return hook, hook


def _event_hooks() -> tuple[Hook, Hook]:
    pairs: list[list[torch.cuda.Event]] = []

    def record(pair: list[torch.cuda.Event]) -> None:
        pair.append(torch.cuda.Event(enable_timing=True))
        pair[-1].record()

    def before(*_arguments: object) -> None:
        pairs.append([])
        record(pairs[-1])

    def after(*_arguments: object) -> None:
        record(pairs[-1])

    return before, after


def _steps(model: nn.Module, given: torch.Tensor, way: Way) -> Callable[[int], int]:
    def wait() -> None:
        if given.is_cuda:
            torch.cuda.synchronize()

    def run(count: int) -> int:
        with way(model):
            model(given).sum().backward()
            wait()
            began = time.perf_counter_ns()
            for _ in range(count):
                model(given).sum().backward()
            wait()
            return time.perf_counter_ns() - began

    return run


def _profiled(device: str) -> Way:
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    return lambda _model: torch.profiler.profile(activities=kinds)


def _measured(model: nn.Module, device: str, rounds: int) -> list[Row]:
    model.to(device)
    given = torch.randn(1, _TOKENS, _WIDTH, device=device)
    of = f", {sum(1 for _ in model.modules())} modules, {device}"
    ways: dict[str, Way] = {
        _PLAIN: lambda _model: contextlib.nullcontext(),
        _WATCH: lambda model: gpuprof.watch(model, depth=2),
        _EMPTY: lambda model: _hooked(model, _empty_hooks),
        _PROFILER: _profiled(device),
    }
    if device == "cuda":
        ways[_EVENTS] = lambda model: _hooked(model, _event_hooks)
    measured = Rounds()
    measured.measure(
        [Contender(name + of, _steps(model, given, way), _STEPS) for name, way in ways.items()],
        rounds,
    )
    plain = _PLAIN + of
    target = _THAN_PLAIN if device == "cpu" else None
    rows = [measured.row(plain)]
    rows += [
        measured.row(name + of, to=plain, target=target if name == _WATCH else None)
        for name in ways
        if name != _PLAIN
    ]
    added = {name: measured.excess(name + of, over=plain) for name in ways if name != _PLAIN}
    if _EVENTS in added and added[_EVENTS].value:
        share = added[_WATCH].value / added[_EVENTS].value
        rows.append(Row(f"what watch adds, in shares of {_EVENTS}", share, "", target=_THAN_EVENTS))
    return [*rows, *added.values()]


def main() -> int:
    """Measure, print the table, and write it with ``--json``."""
    options = measure.arguments(__doc__)
    rounds = 4 if options.quick else 12
    torch.set_num_threads(1)
    notes = [
        f"width {_WIDTH}, {_TOKENS} tokens; torch on one thread; gradients are added up",
        "ratio is best over best; 'beyond' is best less best",
    ]
    # The CPU first: once the GPU is in use, it is the clock of all scopes.
    rows = _measured(_model(12, nn.Linear(_WIDTH, _WIDTH)), "cpu", rounds)
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        notes.append("without a GPU: no event pairs, and 29 modules on the CPU")
    rows += _measured(_model(4), "cuda" if on_gpu else "cpu", rounds)
    measure.report("watch_overhead", rows, notes, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
