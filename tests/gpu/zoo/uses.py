"""What people do with a model, each as a function of the world in which it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

import gpuprof
from tests.gpu.zoo.world import FLOAT32, NotApplicable, World, is_trained

Use = Callable[[World], None]

USES: dict[str, Use] = {}
# What a use computes in, where that is a half type; and how far other kernels may be apart.
PRECISION: dict[str, float] = {
    "half": 2.0**-11,
    "bfloat16": 2.0**-8,
    "autocast": 2.0**-8,
    "grad scaler": 2.0**-11,
}
FLOORS: dict[str, float] = {"compile=True": 1e-4}


def precision(use: str) -> float:
    """Return by how much a moved world of a use starts from elsewhere."""
    return PRECISION.get(use, FLOAT32)


def use(name: str) -> Callable[[Use], Use]:
    """Register a use by its name."""

    def register(function: Use) -> Use:
        USES[name] = function
        return function

    return register


def inference(name: str, **options: Any) -> Callable[[Callable[[World, Any], None]], Any]:
    """Register a use of a graphed model in evaluation mode and without gradients."""

    def register(function: Callable[[World, Any], None]) -> Use:
        def run(world: World) -> None:
            world.net.eval()
            with torch.no_grad():
                function(world, world.graph(world.net, world.batch(0), **options))

        return use(name)(run)

    return register


def calls(world: World, run: Any, *seeds: int, **options: Any) -> None:
    """Call with the batches of these seeds."""
    for seed in seeds:
        world.call(run, world.batch(seed, **options), seed)


@inference("evaluation")
def _(world: World, run: Any) -> None:
    calls(world, run, 1, 2, 3)


@inference("new shapes")
def _(world: World, run: Any) -> None:
    for rows in (3, 2, 1, 3):
        calls(world, run, rows, rows=rows)


def _scaled_state(world: World, factor: float) -> dict[str, Any]:
    state = world.net.state_dict().items()
    return {name: each * factor if each.is_floating_point() else each + 0 for name, each in state}


@inference("load_state_dict")
def _(world: World, run: Any) -> None:
    for factor in (0.75, 1.5):
        world.net.load_state_dict(_scaled_state(world, factor))
        calls(world, run, 1, 2)


@inference("load_state_dict(assign=True)")
def _(world: World, run: Any) -> None:
    calls(world, run, 0)
    world.net.load_state_dict(_scaled_state(world, 0.75), assign=True)
    calls(world, run, 1, 2)


@inference("half")
def _(world: World, run: Any) -> None:
    calls(world, run, 0)
    world.net.half()
    calls(world, run, 1, 2, dtype=torch.float16)


@use("bfloat16")
def _(world: World) -> None:
    world.net.eval().bfloat16()
    with torch.no_grad():
        run = world.graph(world.net, world.batch(0, dtype=torch.bfloat16))
        calls(world, run, 1, 2, dtype=torch.bfloat16)


@inference("switched modes")
def _(world: World, run: Any) -> None:
    for training in (False, True, False, True):
        world.net.train(training)
        calls(world, run, 1, 2)


@use("inference mode")
def _(world: World) -> None:
    world.net.eval()
    with torch.inference_mode():
        calls(world, world.graph(world.net, world.batch(0)), 1, 2)


@inference("autocast")
def _(world: World, run: Any) -> None:
    for enabled in (True, False, True):
        with torch.autocast(world.device, dtype=torch.bfloat16, enabled=enabled):
            calls(world, run, 1, 2)


@inference("hook registered later")
def _(world: World, run: Any) -> None:
    calls(world, run, 0)
    layers = [each for each in world.net.modules() if isinstance(each, (nn.Linear, nn.Conv2d))]
    if not layers:
        raise NotApplicable("no linear layer and no convolution")
    handle = layers[0].register_forward_hook(lambda _module, _given, result: result * 0.5)
    calls(world, run, 1, 2)
    handle.remove()
    calls(world, run, 3)


@inference("parameter replaced")
def _(world: World, run: Any) -> None:
    names = [name for name, _ in world.net.named_parameters()]
    for name in (names[0], names[-1]):
        calls(world, run, 0)
        owner, _, own = name.rpartition(".")
        module = world.net.get_submodule(owner)
        setattr(module, own, nn.Parameter(getattr(module, own).detach() * 1.5))
        calls(world, run, 1, 2)


@inference('outputs="static"', outputs="static")
def _(world: World, run: Any) -> None:
    calls(world, run, 1, 2, 3)


@use("watch")
def _(world: World) -> None:
    world.net.eval()
    run = world.graph(world.net, world.batch(0))
    calls(world, run, 0)
    with gpuprof.watch(world.net):
        calls(world, run, 1, 2)
    calls(world, run, 3)


def _sgd(world: World) -> Any:
    return torch.optim.SGD(world.net.parameters(), lr=0.02, momentum=0.9)


def train(
    world: World,
    run: Any,
    optimizer: Any,
    *,
    steps: int = 3,
    batches: int = 1,
    set_to_none: bool = True,
    first_only: bool = False,
) -> None:
    """Train some steps; see the result and the gradients of each batch, and the last weights."""
    for step in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        for part in range(batches):
            torch.manual_seed(step * batches + part)
            result = run(**world.batch(step * batches + part))
            world.loss(result, first_only).backward()
            world.see(result)
        optimizer.step()
    world.see(None)


def training(name: str, *, graph: Mapping[str, Any] | None = None, **options: Any) -> None:
    """Register a use that trains, with options of the graphed callable and of `train`."""

    def run(world: World) -> None:
        world.net.train()
        run = world.graph(world.net, world.batch(0), **(graph or {}))
        train(world, run, _sgd(world), **options)

    use(name)(run)


training("training", steps=5)
training("training with accumulation", batches=2)
training(
    'param_grads="accumulate"',
    graph={"param_grads": "accumulate"},
    batches=2,
    set_to_none=False,
)


@use("unused result")
def _(world: World) -> None:
    world.net.train()
    run = world.graph(world.net, world.batch(0))
    torch.manual_seed(0)
    result = run(**world.batch(0))
    leaves = _pytree.tree_leaves(result)
    if sum(map(is_trained, leaves)) < 2:
        raise NotApplicable("one result alone")
    train(world, run, _sgd(world), first_only=True)
    train(world, run, _sgd(world), steps=1)


@use("frozen parameters")
def _(world: World) -> None:
    world.net.train()
    some = list(world.net.parameters())[::2]
    run = world.graph(world.net, world.batch(0))
    for frozen in (True, False):
        for each in some:
            each.requires_grad_(not frozen)
            each.grad = None
        if not any(each.requires_grad for each in world.net.parameters()):
            raise NotApplicable("one parameter alone")
        train(world, run, _sgd(world), steps=2)


@use("grad scaler")
def _(world: World) -> None:
    world.net.train()
    run = world.graph(world.net, world.batch(0))
    optimizer = _sgd(world)
    scaler = torch.amp.GradScaler(world.device, init_scale=1024.0)
    for step in range(3):
        optimizer.zero_grad()
        torch.manual_seed(step)
        with torch.autocast(world.device, dtype=torch.float16):
            result = run(**world.batch(step))
        scaler.scale(world.loss(result)).backward()
        world.see(result)
        scaler.step(optimizer)
        scaler.update()
    world.see(scaler.get_scale())


def _chances(net: Any) -> list[tuple[Any, str]]:
    """Return the attributes that are chances of dropout, of modules and of their configurations."""
    owners = {id(each): each for each in net.modules()}
    owners |= {id(c): c for m in net.modules() if (c := getattr(m, "config", None)) is not None}
    return [
        (owner, name)
        for owner in owners.values()
        for name, value in vars(owner).items()
        if ("drop" in name or (name == "p" and "Drop" in type(owner).__name__))
        and isinstance(value, float)
        and value > 0
    ]


@use("dropout")
def _(world: World) -> None:
    if not _chances(world.net):
        raise NotApplicable("no dropout")
    world.net.train()
    run = world.graph(world.net, world.batch(0))
    for seed in (1, 2, 1):
        world.net.zero_grad()
        world.loss(world.call(run, world.batch(0), seed)).backward()
        world.see(None)


@use("checkpointing")
def _(world: World) -> None:
    enable = getattr(world.net, "gradient_checkpointing_enable", None)
    if enable is None or not world.net.supports_gradient_checkpointing:
        raise NotApplicable("no checkpointing")
    for owner, name in _chances(world.net):  # the state of a generator is none of a capture's
        setattr(owner, name, 0.0)
    enable({"use_reentrant": False, "preserve_rng_state": False})
    world.net.train()
    train(world, world.graph(world.net, world.batch(0)), _sgd(world))


def _whole_steps(world: World, optimizer: Any) -> None:
    world.net.train()

    def step(batch: Any) -> Any:
        optimizer.zero_grad()
        loss = world.loss(world.net(**batch))
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = world.graph(step)
    for seed in range(6):
        world.call(run, {"batch": world.batch(seed)}, seed)


@use("whole step, AdamW")
def _(world: World) -> None:
    options = {"fused": True, "capturable": world.device == "cuda"}
    _whole_steps(world, torch.optim.AdamW(world.net.parameters(), lr=1e-3, **options))


@use("whole step, SGD")
def _(world: World) -> None:
    _whole_steps(world, _sgd(world))


# The last one, because what is compiled in a process changes how others are captured.
@use("compile=True")
def _(world: World) -> None:
    if not world.model.compiles:
        raise NotApplicable("compiled for a few models only, because that is slow")
    world.net.eval()
    with torch.no_grad():
        calls(world, world.graph(world.net, world.batch(0), compile=True), 1, 2)
