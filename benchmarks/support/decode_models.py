"""A transformer that decodes a batch of sequences, and the ways to run its step; needs torch.

The cache is static: a row for each sequence, and row 0 for what is padding. A result depends on the
arguments of its call alone, so that every way can be compared with the eager one.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import gpuprof
from support.loops import BenchmarkError
from support.transformer import TransformerBlock

DEVICE = "cuda"
SIZES = (1, 2, 4, 8, 16, 32, 64)
EAGER, BY_HAND, OWN = "eager", "torch.cuda.graph by hand", "gpuprof"

_WIDTH = 512
_HEADS = 8
_LENGTH = 256  # of the cache
_POSITION = 128
_VOCABULARY = 1_000
_ARGUMENTS = 16  # how many sets alternate, so that a call never meets the address of the last one
_WARM_CALLS = 3
_CLOSE = 1e-2  # of the largest value: a padded batch may run other kernels

Arguments = tuple[torch.Tensor, ...]


class _Block(TransformerBlock):
    """A transformer's block that keeps the keys and values of earlier tokens."""

    def __init__(self) -> None:
        super().__init__(_WIDTH)
        kept = (2, SIZES[-1] + 1, _LENGTH, _HEADS, _WIDTH // _HEADS)
        self.register_buffer("cache", torch.zeros(kept))

    def forward(
        self, given: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the block's result for a token of each sequence, and keep its key and value."""
        parts = self.mixed(self.first_norm(given)).view(-1, 3, _HEADS, _WIDTH // _HEADS)
        query, key, value = parts.unbind(1)
        self.cache[0, rows, positions] = key
        self.cache[1, rows, positions] = value
        keys, values = self.cache[:, rows].transpose(2, 3)
        attended = functional.scaled_dot_product_attention(
            query[:, :, None], keys, values, attn_mask=mask
        )
        return self.after(given, attended.flatten(1))


class Decoder(nn.Module):
    """A small transformer that takes a token of each sequence and scores the next ones."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.positions = nn.Embedding(_LENGTH, _WIDTH)
        self.blocks = nn.ModuleList(_Block() for _ in range(layers))
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, _VOCABULARY)
        self.register_buffer("steps", torch.arange(_LENGTH))

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        """Return the scores of all tokens to follow, of shape (batch, vocabulary)."""
        hidden = self.tokens(tokens) + self.positions(positions)
        mask = (self.steps <= positions[:, None])[:, None, None]
        for block in self.blocks:
            hidden = block(hidden, positions, rows, mask)
        scores: torch.Tensor = self.head(self.norm(hidden))
        return scores


class ByHand:
    """A graph of torch's for each batch size, with static inputs that each call fills."""

    def __init__(self, module: nn.Module, samples: Arguments) -> None:
        self._module = module  # whose weights the graphs read
        self._inputs = tuple(each.clone() for each in samples)
        self._graphs: dict[int, tuple[Any, torch.Tensor]] = {}
        pool = torch.cuda.graph_pool_handle()
        for size in reversed(SIZES):
            given = tuple(each[:size] for each in self._inputs)
            stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(_WARM_CALLS):
                    module(*given)
            current.wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                result = module(*given)
            self._graphs[size] = graph, result

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        """Return the scores of a batch, cut from those of the next size."""
        batch = args[0].shape[0]
        size = SIZES[bisect_left(SIZES, batch)]
        for own, given in zip(self._inputs, args, strict=True):
            own[:batch].copy_(given)
            if batch < size:
                own[batch:size].zero_()
        graph, result = self._graphs[size]
        graph.replay()
        return result[:batch].clone()


def arguments(batch: int) -> tuple[Arguments, ...]:
    """Return sets of arguments for a batch: tokens, positions, and rows of the cache."""
    rows = torch.arange(1, batch + 1, device=DEVICE)
    return tuple(
        (
            torch.randint(_VOCABULARY, (batch,), device=DEVICE),
            torch.full((batch,), _POSITION, device=DEVICE),
            rows.clone(),
        )
        for _ in range(_ARGUMENTS)
    )


def ways() -> dict[str, Callable[..., Any]]:
    """Return the step by the way in which it runs, each with a module and caches of its own."""
    module = Decoder().to(DEVICE).eval().requires_grad_(False)
    samples = tuple(torch.zeros(SIZES[-1], dtype=torch.long, device=DEVICE) for _ in range(3))
    return {
        EAGER: module,
        BY_HAND: ByHand(copy.deepcopy(module), samples),
        OWN: _decode_graphs(copy.deepcopy(module), samples),
    }


def _decode_graphs(step: Callable[..., Any], samples: tuple[Any, ...]) -> Callable[..., Any]:
    """Capture a graph for each size, as docs/integrations/decode.md does."""
    settings: dict[str, Any] = {"max_graphs": 2 * len(SIZES), "verify": "off", "warmup": 1}
    graphs = gpuprof.make_graphed_callable(step, buckets={0: SIZES}, **settings)
    below = dict(zip(SIZES, (0, *SIZES), strict=False))
    for size in reversed(SIZES):
        for batch in (size, below[size] + 1):
            for _ in range(4):
                graphs(*(sample[:batch] for sample in samples))
    return graphs


def check(calls: dict[str, Callable[..., Any]], sets: tuple[Arguments, ...]) -> None:
    """Raise BenchmarkError if a way computes something else than the eager step."""
    for given in sets[:_WARM_CALLS]:
        wanted = calls[EAGER](*given)
        for name, call in calls.items():
            worst = (call(*given) - wanted).abs().max().item()
            if not worst <= _CLOSE * wanted.abs().max().item():
                raise BenchmarkError(f"the result of {name} is wrong, by up to {worst:g}")
    torch.cuda.synchronize()
