"""Networks that train as they do eagerly: random and recurrent ones, attention with dropout."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError

both_ways = pytest.mark.parametrize("param_grads", ["autograd", "accumulate"])


@pytest.fixture
def networks(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the random networks, with backward passes of eager ones that are exact twice."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    from tests.support import small_networks

    return small_networks


def state(module: Any) -> dict[str, Any]:
    """Return parameters, buffers and gradients by name."""
    gradients = {f"gradient of {name}": each.grad for name, each in module.named_parameters()}
    return {**module.state_dict(), **gradients}


def assert_same(torch: Any, found: Any, wanted: Any, exact: bool, context: object) -> None:
    tolerance = 0.0 if exact else 1e-4
    for (name, mine), theirs in zip(state(found).items(), state(wanted).values(), strict=True):
        assert (mine is None) == (theirs is None), (name, context)
        if theirs is not None:
            torch.testing.assert_close(
                mine, theirs, rtol=tolerance, atol=tolerance / 100, msg=f"{name}, {context}"
            )


def is_exact(torch: Any, found: Any, wanted: Any) -> bool:
    pairs = zip(state(found).values(), state(wanted).values(), strict=True)
    return all(mine is theirs or torch.equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("seed", range(200))
def test_random_networks_train_as_they_do_eagerly(
    torch: Any, networks: Any, seed: int, kind: str
) -> None:
    module = networks.Network(seed).cuda()
    eager, again = copy.deepcopy(module), copy.deepcopy(module)
    generator = torch.Generator().manual_seed(seed)
    batches = torch.randn(6, networks.ROWS, networks.WIDTH, generator=generator).cuda()
    # An eager pass before the capture, whose graph of autograd's is kept or not.
    losses = []
    for each in (module, eager, again):
        torch.cuda.manual_seed(0)
        losses.append(networks.loss_of(each, batches[0], 0))
    if seed % 2:
        losses.clear()
    fast = gpuprof.make_graphed_callable(
        module,
        (batches[0],) if seed % 3 else None,
        verify="off",
        warmup=2,
        param_grads=("autograd", "accumulate")[seed % 2],
    )
    make = networks.OPTIMIZERS[kind]
    optimizers = [make(each.parameters()) for each in (module, eager, again)]
    exact = True
    for step in range(networks.STEPS):
        for run, optimizer in zip((fast, eager, again), optimizers, strict=True):
            optimizer.zero_grad()
            torch.cuda.manual_seed(step)  # of dropout
            networks.loss_of(run, batches[step], seed + step).backward()
            optimizer.step()
        exact = exact and is_exact(torch, again, eager)
        assert_same(torch, module, eager, exact, (seed, module.names, step))
    assert fast.stats().captures == 1


@both_ways
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("keeps", [False, True], ids=["", "beside an eager loss"])
def test_recurrent_layers_train_by_cudnn(
    torch: Any, training: Any, param_grads: Any, kind: str, keeps: bool
) -> None:
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(training.WIDTH, 16, num_layers=2).cuda()
    eager = copy.deepcopy(module)
    kept = [each(training.batch(9))[0].sum() for each in (module, eager)]
    if not keeps:
        kept.clear()
    fast = gpuprof.make_graphed_callable(module, (training.batch(0),), param_grads=param_grads)
    for step in range(3):
        for run in (fast, eager):
            run(training.batch(step))[0].square().mean().backward()
        training.assert_same_gradients(module, eager)
    assert all(each.grad is not None for each in module.parameters())
    for each in kept:
        each.backward()
    training.assert_same_gradients(module, eager)


def test_a_recurrent_layer_in_evaluation_mode_needs_no_backward_pass(
    torch: Any, training: Any
) -> None:
    module = torch.nn.LSTM(training.WIDTH, 16).cuda().eval()
    fast = gpuprof.make_graphed_callable(module, (training.batch(0),))
    result = fast(training.batch(1))[0]
    torch.testing.assert_close(result, module(training.batch(1))[0])
    with pytest.raises(InvalidStateError, match="cannot be captured"):
        result.sum().backward()


@both_ways
def test_attention_with_dropout_goes_backward_where_it_was_captured(
    torch: Any, training: Any, param_grads: Any
) -> None:
    # Its backward pass reads the seed from the GPU in a capture alone.
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True)
    module = layer.to("cuda", torch.float16)
    eager = copy.deepcopy(module)
    values = training.batch(0, 16, torch.float16)[None]
    fast = gpuprof.make_graphed_callable(module, (values,), param_grads=param_grads)
    for _ in range(3):
        for run in (fast, eager):
            torch.cuda.manual_seed(3)
            run(values).square().mean().backward()
        training.assert_same_gradients(module, eager)
