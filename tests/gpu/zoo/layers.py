"""Models of torch's own layers, and by hand what libraries build of them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from tests.gpu.zoo.world import Model, numbers, words
from tests.support import small_networks

WIDTH, LENGTH, HEADS = 32, 12, 4


def _tokens(rows: int) -> int:
    return max(rows - 1, 1)


# The cache has two rows, so that more rows are more tokens.
CACHED = {
    "words": lambda generator, rows: torch.randint(40, (2, _tokens(rows)), generator=generator),
    "place": lambda generator, rows: torch.randperm(16, generator=generator)[: _tokens(rows)],
}
SEQUENCE, VECTOR, PICTURE = numbers(LENGTH, WIDTH), numbers(WIDTH), numbers(3, 16, 16)


class UNetBlock(nn.Module):  # type: ignore[misc]
    """Down, attention and up again, told of the time by its sines, as in a diffusion model."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(WIDTH, 64), nn.SiLU(), nn.Linear(64, WIDTH))
        self.into, self.out = nn.Conv2d(4, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, 4, 3, padding=1)
        self.down = nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.norm, self.last = nn.GroupNorm(4, WIDTH), nn.GroupNorm(4, 2 * WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.up = nn.Conv2d(2 * WIDTH, WIDTH, 3, padding=1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Any, time: Any) -> Any:
        scale = torch.exp(torch.arange(WIDTH // 2, device=x.device) * (-math.log(1e4) / 16))
        angles = time[:, None] * scale
        told = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype))
        first = functional.silu(self.into(x)) + told[:, :, None, None]
        hidden = self.norm(self.down(first))
        tokens = hidden.flatten(2).transpose(1, 2)
        tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        hidden = tokens.transpose(1, 2).reshape(hidden.shape)
        wide = functional.interpolate(hidden, scale_factor=2.0, mode="nearest")
        joined = self.last(torch.cat([wide, first], 1))
        return self.out(self.dropout(functional.silu(self.up(joined))))


class Adapted(nn.Module):  # type: ignore[misc]
    """A frozen layer with low-rank adapters, by name in dicts, as PEFT has them."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.base_layer = layer.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(layer.in_features, 4, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(4, layer.out_features, bias=False)})
        self.lora_dropout = nn.ModuleDict({"default": nn.Dropout(0.1)})
        self.scaling, self.active_adapters = {"default": 2.0}, ["default"]

    def forward(self, x: Any) -> Any:
        result = self.base_layer(x)
        for name in self.active_adapters:
            low = self.lora_A[name](self.lora_dropout[name](x))
            result = result + self.lora_B[name](low) * self.scaling[name]
        return result


class Quantised(nn.Module):  # type: ignore[misc]
    """A linear layer with weights of 8 bits, a scale for each row, and a bias that trains."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(WIDTH, WIDTH)
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("scale", scale)
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Any) -> Any:
        return functional.linear(x, self.weight.to(x.dtype) * self.scale.to(x.dtype), self.bias)


def rotated(x: Any, places: Any) -> Any:
    """Return queries or keys turned by the angles of their places."""
    half = x.shape[-1] // 2
    rates = 1e4 ** (-torch.arange(half, device=x.device) / half)
    angles = places[:, None] * rates
    sin, cos = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Decoder(nn.Module):  # type: ignore[misc]
    """A decoder with rotated places; with a cache for one token, or of all, in a window."""

    def __init__(self, cached: bool = False, window: int = 16) -> None:
        super().__init__()
        self.window, self.cached = window, cached
        self.words, self.norm = nn.Embedding(40, WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        if cached:
            self.register_buffer("keys", torch.zeros(2, HEADS, 16, WIDTH // HEADS))
            self.register_buffer("values", torch.zeros(2, HEADS, 16, WIDTH // HEADS))

    def _stored(self, cache: Any, new: Any, place: Any) -> Any:
        with torch.no_grad():
            cache.index_copy_(2, place, new.to(cache.dtype))
        return cache.index_copy(2, place, new.to(cache.dtype)).to(new.dtype)

    def forward(self, words: Any, place: Any = None) -> Any:
        hidden = self.words(words)
        mixed = self.mixed(self.norm(hidden)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = mixed.unbind(0)
        mine = torch.arange(words.shape[1], device=words.device) if place is None else place
        query, key, theirs = rotated(query, mine), rotated(key, mine), mine
        if self.cached:
            key = self._stored(self.keys, key, place)
            value = self._stored(self.values, value, place)
            theirs = torch.arange(16, device=words.device)
        behind = mine[:, None] - theirs
        seen = (behind >= 0) & (behind < self.window)
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        hidden = hidden + self.joined(found.transpose(1, 2).flatten(2))
        return functional.linear(hidden, self.words.weight)


class Mixture(nn.Module):  # type: ignore[misc]
    """Experts of which each token takes two, computed for all, so that the host need not know."""

    def __init__(self, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, experts)
        self.into = nn.Parameter(torch.randn(experts, WIDTH, 64) / 6)
        self.out = nn.Parameter(torch.randn(experts, 64, WIDTH) / 8)

    def forward(self, x: Any) -> Any:
        chosen, which = self.router(x).softmax(-1).topk(2, dim=-1)
        share = torch.zeros(*x.shape[:-1], len(self.into), device=x.device, dtype=chosen.dtype)
        share = share.scatter(-1, which, chosen / chosen.sum(-1, keepdim=True))
        hidden = functional.gelu(torch.einsum("btw,ewh->bteh", x, self.into))
        return x + torch.einsum("bteh,ehw,bte->btw", hidden, self.out, share), which


def _transformer() -> Any:
    return nn.Transformer(WIDTH, HEADS, 1, 1, 64, batch_first=True)


def _autoencoder() -> Any:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, inplace=True)),
        *(nn.Conv2d(16, WIDTH, 4, 2, 1), nn.Hardswish()),
        *(nn.ConvTranspose2d(WIDTH, 16, 4, 2, 1), nn.InstanceNorm2d(16, affine=True), nn.ReLU()),
        *(nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Sigmoid()),
    )


def _normed(norm: Any) -> Any:
    return nn.Sequential(
        *(norm(nn.Conv2d(3, 16, 3, padding=1)), nn.ReLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), norm(nn.Linear(64, 10))),
    )


def _encoder() -> Any:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


def _temporal() -> Any:
    return nn.Sequential(
        *(nn.Conv1d(8, 16, 3, padding=2, dilation=2), nn.BatchNorm1d(16), nn.PReLU()),
        *(nn.Conv1d(16, 16, 3, padding=1, groups=4), nn.GLU(dim=1), nn.AvgPool1d(2)),
        *(nn.Flatten(), nn.Linear(8 * 8, 10)),
    )


TORCH = {
    "TransformerEncoder": Model(_encoder, {"src": SEQUENCE}, compiles=True),
    "Transformer": Model(_transformer, {"src": SEQUENCE, "tgt": numbers(5, WIDTH)}),
    "MultiheadAttention": Model(
        lambda: nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True),
        {"query": SEQUENCE, "key": SEQUENCE, "value": SEQUENCE},
    ),
    "LSTM": Model(
        lambda: nn.LSTM(WIDTH, 16, 2, bidirectional=True, batch_first=True), {"input": SEQUENCE}
    ),
    "LSTM with dropout": Model(
        lambda: nn.LSTM(WIDTH, 16, 2, dropout=0.1, batch_first=True), {"input": SEQUENCE}
    ),
    "GRU": Model(lambda: nn.GRU(WIDTH, 16, 2, batch_first=True), {"input": SEQUENCE}),
    "RNN": Model(lambda: nn.RNN(WIDTH, 16, 2, batch_first=True), {"input": SEQUENCE}),
    "EmbeddingBag": Model(
        lambda: nn.EmbeddingBag(40, WIDTH, mode="mean"), {"input": words(LENGTH, of=40)}
    ),
    "temporal convolutions": Model(_temporal, {"input": numbers(8, 16)}),
}

BY_HAND = {
    "UNet block": Model(
        UNetBlock, {"x": numbers(4, 16, 16), "time": words(of=1000)}, compiles=True
    ),
    "low-rank adapters": Model(
        lambda: nn.Sequential(Adapted(nn.Linear(WIDTH, 64)), nn.GELU(), Adapted(nn.Linear(64, 8))),
        {"input": VECTOR},
    ),
    "weights of 8 bits": Model(
        lambda: nn.Sequential(Quantised(), nn.GELU(), Quantised()), {"input": VECTOR}
    ),
    "rotary decoder, static cache": Model(lambda: Decoder(cached=True), CACHED),
    "rotary decoder, sliding window": Model(
        lambda: Decoder(window=4), {"words": words(LENGTH, of=40)}
    ),
    "dense mixture of experts": Model(Mixture, {"x": SEQUENCE}),
    "autoencoder": Model(_autoencoder, {"input": PICTURE}),
    "spectral norm": Model(lambda: _normed(parametrizations.spectral_norm), {"input": PICTURE}),
    "weight norm": Model(lambda: _normed(parametrizations.weight_norm), {"input": PICTURE}),
    "tied weights": Model(small_networks.Tied, {"values": numbers(small_networks.WIDTH)}),
    "checkpointed blocks": Model(
        small_networks.Checkpointed, {"values": numbers(small_networks.WIDTH)}
    ),
}
