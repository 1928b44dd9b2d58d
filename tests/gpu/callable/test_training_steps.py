"""Whole training steps as one callable, beside eager ones: losses, parameters and buffers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_counts, assert_replays

# The same kernels with the same operands, of which a few may add in another order.
SAME = 1e-6


def adam(torch: Any, module: Any) -> Any:
    return torch.optim.Adam(module.parameters(), lr=1e-3, fused=True, capturable=True)


def sgd(torch: Any, module: Any) -> Any:
    return torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def adamw(torch: Any, module: Any) -> Any:
    return torch.optim.AdamW(module.parameters(), lr=1e-3, foreach=True, capturable=True)


OPTIMIZERS: dict[str, Callable[[Any, Any], Any]] = {"adam": adam, "sgd": sgd, "adamw": adamw}


def make_step(
    torch: Any, module: Any, optimizer: Any, clears: bool = True
) -> Callable[[Any, Any], Any]:
    def step(values: Any, wanted: Any) -> Any:
        if clears:
            optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(module(values), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def losses_of(torch: Any, training: Any, run: Any, steps: range) -> Any:
    """Return the loss of each step, each on a batch of its own."""
    return torch.stack([run(training.batch(n), training.batch(n + 1000)) for n in steps])


def assert_same_losses(found: Any, wanted: Any) -> None:
    error = ((found - wanted).abs() / wanted.abs()).max().item()
    assert error <= SAME, error


def assert_same_runs(torch: Any, training: Any, fast: Any, plain: Any, steps: range) -> None:
    found, wanted = (losses_of(torch, training, run, steps) for run in (fast, plain))
    assert_same_losses(found, wanted)


def assert_same_step(training: Any, fast: Any, plain: Any, step: int, rows: int = 8) -> None:
    given = training.batch(step, rows), training.batch(step + 1000, rows)
    assert_same_losses(fast(*given), plain(*given))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_losses_of_200_steps_are_those_of_eager_steps(
    torch: Any, training: Any, name: str
) -> None:
    module, eager = training.pair()
    step = make_step(torch, module, OPTIMIZERS[name](torch, module))
    plain = make_step(torch, eager, OPTIMIZERS[name](torch, eager))
    fast = gpuprof.make_graphed_callable(step)
    assert_same_runs(torch, training, fast, plain, range(200))
    assert not torch.allclose(module[0].weight, training.mlp()[0].weight)
    training.assert_same_state(module, eager)
    training.assert_same_gradients(module, eager)
    assert_replays(fast, 197)


def test_dropout_and_statistics_in_a_step(torch: Any, training: Any) -> None:
    module, eager = training.pair(dropout=0.2, norm=True)
    step = make_step(torch, module, adam(torch, module))
    plain = make_step(torch, eager, adam(torch, eager))
    fast = gpuprof.make_graphed_callable(step)
    torch.manual_seed(3)
    found = losses_of(torch, training, fast, range(30))
    torch.manual_seed(3)
    wanted = losses_of(torch, training, plain, range(30))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    for name, buffer in eager.named_buffers():
        torch.testing.assert_close(module.get_buffer(name), buffer, rtol=1e-5, atol=1e-5)
    assert fast.stats().captures == 1


def test_another_learning_rate_is_captured_again(torch: Any, training: Any) -> None:
    module, eager = training.pair()
    mine, theirs = adam(torch, module), adam(torch, eager)
    fast = gpuprof.make_graphed_callable(make_step(torch, module, mine))
    plain = make_step(torch, eager, theirs)
    for part, rate in enumerate((1e-3, 1e-4, 5e-4)):
        for optimizer in (mine, theirs):
            optimizer.param_groups[0]["lr"] = rate
        assert_same_runs(torch, training, fast, plain, range(20 * part, 20 * part + 20))
    training.assert_same_state(module, eager)
    assert_replays(fast, 57, captures=3)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("steps", [0, 10], ids=["empty", "full"])
def test_state_that_is_loaded_between_whole_steps(
    torch: Any, training: Any, name: str, steps: int
) -> None:
    module, eager = training.pair()
    mine, theirs = OPTIMIZERS[name](torch, module), OPTIMIZERS[name](torch, eager)
    fast = gpuprof.make_graphed_callable(make_step(torch, module, mine))
    plain = make_step(torch, eager, theirs)
    saved = []
    for step in range(30):
        if step == steps:
            saved = [copy.deepcopy(each.state_dict()) for each in (mine, theirs)]
        assert_same_step(training, fast, plain, step)
    assert fast.stats().captures == 1
    for optimizer, state in zip((mine, theirs), saved, strict=True):
        optimizer.load_state_dict(state)
    noise = [torch.full_like(each, float("nan")) for each in module.parameters() for _ in "ab"]
    for step in range(30, 50):
        assert_same_step(training, fast, plain, step)
    training.assert_same_state(module, eager)
    # Where there is no state, an eager call makes it.
    assert_counts(fast, captures=2, eager_calls=0 if steps else 1)
    del noise


def test_a_learning_rate_in_a_tensor_needs_no_new_capture(torch: Any, training: Any) -> None:
    module, eager = training.pair()
    made = []
    for each in (module, eager):
        rate = torch.tensor(1e-3, device="cuda")
        made.append(torch.optim.Adam(each.parameters(), lr=rate, fused=True, capturable=True))
    fast = gpuprof.make_graphed_callable(make_step(torch, module, made[0]))
    plain = make_step(torch, eager, made[1])
    for part, rate in enumerate((1e-3, 1e-4)):
        for optimizer in made:
            optimizer.param_groups[0]["lr"].fill_(rate)
        assert_same_runs(torch, training, fast, plain, range(20 * part, 20 * part + 20))
    training.assert_same_state(module, eager)
    assert fast.stats().captures == 1


def test_autocast_and_a_scaler_inside(torch: Any, training: Any) -> None:
    module, eager = training.pair()

    def of(each: Any) -> Any:
        optimizer = adam(torch, each)
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=5)

        def step(values: Any, wanted: Any) -> Any:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = torch.nn.functional.mse_loss(each(values), wanted)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        return step, scaler

    (step, mine), (plain, theirs) = of(module), of(eager)
    fast = gpuprof.make_graphed_callable(step)
    assert_same_runs(torch, training, fast, plain, range(30))
    assert mine.get_scale() == theirs.get_scale() > 1024.0
    training.assert_same_state(module, eager)
    assert_replays(fast, 27)


def test_gradients_that_are_cleared_outside_between_calls(torch: Any, training: Any) -> None:
    module, eager = training.pair()
    steps = [make_step(torch, each, adam(torch, each), clears=False) for each in (module, eager)]
    fast, plain = gpuprof.make_graphed_callable(steps[0]), steps[1]
    found, wanted = [], []
    for step in range(16):
        for run, losses, own in ((fast, found, module), (plain, wanted, eager)):
            if step < 10 or step == 13:
                own.zero_grad(set_to_none=True)
            losses.append(run(training.batch(step), training.batch(step + 1000)))
        training.assert_same_gradients(module, eager)
    assert_same_losses(torch.stack(found), torch.stack(wanted))
    training.assert_same_state(module, eager)
    assert fast.stats().replays >= 7


@pytest.mark.parametrize("there", [False, True], ids=["none", "some"])
def test_making_a_callable_leaves_gradients_and_parameters_as_they_were(
    torch: Any, training: Any, there: bool
) -> None:
    module, eager = training.pair()
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.05) for each in (module, eager)]
    mine = make_step(torch, module, optimizers[0], clears=False)
    plain = make_step(torch, eager, optimizers[1], clears=False)
    for each in (module, eager):
        for parameter in each.parameters():
            parameter.grad = torch.full_like(parameter, 0.01) if there else None
    before = [parameter.grad for parameter in module.parameters()]
    fast = gpuprof.make_graphed_callable(mine, (training.batch(0), training.batch(1000)))
    for parameter, gradient in zip(module.parameters(), before, strict=True):
        assert parameter.grad is gradient
    training.assert_same_gradients(module, eager)
    training.assert_same_state(module, eager)
    for step in range(4):
        if not there:
            training.clear([module, eager])
        assert_same_step(training, fast, plain, step)
        training.assert_same_gradients(module, eager)
    training.assert_same_state(module, eager)
    assert_replays(fast, 4)


def test_gradients_that_are_dropped_after_a_call_that_clears_its_own(
    torch: Any, training: Any
) -> None:
    module, eager = training.pair()
    fast = gpuprof.make_graphed_callable(make_step(torch, module, sgd(torch, module)))
    plain = make_step(torch, eager, sgd(torch, eager))
    for step in range(12):
        assert_same_step(training, fast, plain, step)
        training.assert_same_gradients(module, eager)
        if step % 2:
            for parameter in module.parameters():
                parameter.grad = None
    assert_replays(fast, 9)


def test_steps_that_add_up_gradients_in_a_closure(torch: Any, training: Any) -> None:
    module, eager = training.pair()
    held = [torch.empty_like(training.batch(0)) for _ in range(4)]

    def of(each: Any) -> Any:
        optimizer = torch.optim.SGD(each.parameters(), lr=0.05)

        def step() -> Any:
            optimizer.zero_grad(set_to_none=True)
            total = torch.zeros((), device="cuda")
            for values, wanted in (held[:2], held[2:]):
                loss = torch.nn.functional.mse_loss(each(values), wanted) / 2
                loss.backward()
                total += loss.detach()
            optimizer.step()
            return total

        return step

    for number, each in enumerate(held):
        each.copy_(training.batch(number))
    fast, plain = gpuprof.make_graphed_callable(of(module), (), warmup=2), of(eager)
    training.assert_same_state(module, eager)  # the warm-up left nothing
    for step in range(8):
        for number, each in enumerate(held):
            each.copy_(training.batch(10 * step + number))
        assert_same_losses(fast(), plain())
    training.assert_same_state(module, eager)
    training.assert_same_gradients(module, eager)
    # The second one finds gradients where the first found none.
    assert_replays(fast, 8, captures=2)


def test_a_step_on_another_size_has_a_graph_of_its_own(torch: Any, training: Any) -> None:
    module, eager = training.pair()
    fast = gpuprof.make_graphed_callable(make_step(torch, module, adam(torch, module)))
    plain = make_step(torch, eager, adam(torch, eager))
    for step in range(24):
        assert_same_step(training, fast, plain, step, rows=(8, 4)[step % 2])
        training.assert_same_gradients(module, eager)
    training.assert_same_state(module, eager)
    assert_replays(fast, 18, captures=2)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_the_weights_of_recurrent_layers_which_share_memory_are_trained(
    torch: Any, training: Any, kind: str, name: str
) -> None:
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(training.WIDTH, 16, num_layers=2).cuda()
    eager = copy.deepcopy(module)

    def made(module: Any) -> Callable[[Any], Any]:
        optimizer = OPTIMIZERS[name](torch, module)

        def step(values: Any) -> Any:
            optimizer.zero_grad()
            loss = module(values)[0].square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    graphed, plain = gpuprof.make_graphed_callable(made(module)), made(eager)
    for number in range(8):
        assert_same_losses(graphed(training.batch(number)), plain(training.batch(number)))
    for mine, theirs in zip(module.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert graphed.stats().replays
