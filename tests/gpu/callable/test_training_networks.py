"""Networks whose backward passes come later, from some of the results, or after their graph."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.gpu.support.frameworks import torch_or_skip

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::torch")]

both_ways = pytest.mark.parametrize("param_grads", ["autograd", "accumulate"])


@pytest.fixture
def torch() -> Any:
    return torch_or_skip()


@pytest.fixture
def networks(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the random networks, with backward passes of eager ones that are exact twice."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    from tests.support import small_networks

    return small_networks


def assert_same(torch: Any, module: Any, eager: Any, context: object = None) -> None:
    for (name, mine), theirs in zip(module.named_parameters(), eager.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None), (name, context)
        for found, wanted in ((mine, theirs), (mine.grad, theirs.grad)):
            if wanted is not None:
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6, msg=str(context))


@pytest.mark.parametrize("seed", range(24))
def test_random_networks_train_as_they_do_eagerly(torch: Any, networks: Any, seed: int) -> None:
    module = networks.Network(seed).cuda()
    eager = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(seed)
    batches = torch.randn(6, networks.ROWS, networks.WIDTH, generator=generator).cuda()
    # An eager pass before the capture, whose graph of autograd's is kept or not.
    losses = [networks.loss_of(each, batches[0], 0) for each in (module, eager)]
    if seed % 2:
        losses.clear()
    fast = gpuprof.make_graphed_callable(
        module,
        (batches[0],) if seed % 3 else None,
        verify="off",
        warmup=2,
        param_grads=("autograd", "accumulate")[seed % 2],
    )
    kind = ("SGD", "AdamW")[seed // 2 % 2]
    optimizers = [networks.OPTIMIZERS[kind](each.parameters()) for each in (module, eager)]
    for step in range(networks.STEPS):
        for run, optimizer in zip((fast, eager), optimizers, strict=True):
            optimizer.zero_grad()
            torch.cuda.manual_seed(step)  # of dropout
            networks.loss_of(run, batches[step], seed + step).backward()
            optimizer.step()
        assert_same(torch, module, eager, (seed, module.names, step))
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


@pytest.fixture
def heads(torch: Any, training: Any) -> tuple[Any, Any]:
    class Heads(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body, self.left, self.right = (
                torch.nn.Linear(training.WIDTH, training.WIDTH) for _ in range(3)
            )

        def forward(self, values: Any) -> Any:
            hidden = torch.nn.functional.dropout(self.body(values), 0.0).tanh()
            return self.left(hidden), hidden.argmax(dim=1), self.right(hidden)

    torch.manual_seed(0)
    module = Heads().cuda()
    return module, copy.deepcopy(module)


@both_ways
def test_what_no_used_result_leads_to_gets_no_gradient(
    torch: Any, training: Any, heads: Any, param_grads: Any
) -> None:
    module, eager = heads
    fast = gpuprof.make_graphed_callable(module, (training.batch(0),), param_grads=param_grads)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in heads]
    for step, used in enumerate([(0,), (0, 2), (2,), (0,), (2,), (0, 2)]):
        for run, optimizer in zip((fast, eager), optimizers, strict=True):
            optimizer.zero_grad()
            results = run(training.batch(step))
            sum(results[number].square().sum() for number in used).backward()
        assert_same(torch, module, eager, used)
        for optimizer in optimizers:
            optimizer.step()


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


@both_ways
@pytest.mark.parametrize("how", ["other shapes", "reset"])
@pytest.mark.parametrize("ran", [False, True], ids=["the first", "a later one"])
def test_a_backward_pass_comes_after_its_graph_was_dropped(
    torch: Any, training: Any, param_grads: Any, how: str, ran: bool
) -> None:
    module, eager = training.pair()
    fast = gpuprof.make_graphed_callable(
        module, (training.batch(0),), max_graphs=1, param_grads=param_grads
    )
    if ran:
        for run in (fast, eager):
            training.loss_of(run, 1).backward()
    losses = [training.loss_of(run, 2) for run in (fast, eager)]
    if how == "reset":
        fast.reset()
    gc.collect()
    for rows in (9, 10, 11):
        with torch.no_grad():
            fast(training.batch(3, rows))
    for loss in losses:
        loss.backward()
    training.assert_same_gradients(module, eager)


def test_a_graphed_model_trains_inside_of_a_whole_step_that_is_warmed_up(
    torch: Any, training: Any
) -> None:
    # The first backward pass comes while the thread that waits for it captures another function.
    module, eager = training.pair()
    fast = gpuprof.make_graphed_callable(module, (training.batch(0),))

    def step_of(run: Any, own: Any) -> Any:
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)

        def step(values: Any) -> Any:
            optimizer.zero_grad()
            loss = run(values).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    whole = gpuprof.make_graphed_callable(step_of(fast, module), (training.batch(0),))
    plain = step_of(eager, eager)
    for step in range(3):
        torch.testing.assert_close(whole(training.batch(step)), plain(training.batch(step)))
