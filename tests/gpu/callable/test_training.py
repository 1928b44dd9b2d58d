"""Gradients of graphed calls beside eager ones: of inputs, parameters and other tensors."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.gpu.support.callables import assert_counts, assert_replays

both_ways = pytest.mark.parametrize("param_grads", ["autograd", "accumulate"])


# What gradients are.


@both_ways
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_inputs_and_parameters_are_those_of_eager_calls(
    torch: Any, training: Any, param_grads: Any, dtype: str
) -> None:
    kind = getattr(torch, dtype)
    module, eager = training.pair(dtype=kind)
    sample = training.batch(0, dtype=kind).requires_grad_()
    fast = gpuprof.make_graphed_callable(module, (sample,), param_grads=param_grads)
    for step in range(3):
        mine, theirs = (training.batch(step, dtype=kind).requires_grad_() for _ in range(2))
        found, wanted = fast(mine), eager(theirs)
        training.assert_close(found.detach(), wanted.detach())
        training.clear([module, eager])
        gradient = training.batch(step + 50, dtype=kind)
        found.backward(gradient)
        wanted.backward(gradient)
        training.assert_close(mine.grad, theirs.grad)
        training.assert_same_gradients(module, eager)
    assert_replays(fast, 3)


@both_ways
def test_a_module_graphed_beside_its_own_eager_calls(
    torch: Any, training: Any, param_grads: Any
) -> None:
    module, eager, fast = training.graphed(param_grads=param_grads)
    for step in range(4):
        training.loss_of(module if step % 2 else fast, step).backward()
        training.loss_of(eager, step).backward()
        training.assert_same_gradients(module, eager)


@both_ways
def test_gradients_add_up_over_backward_passes_and_shapes(
    torch: Any, training: Any, param_grads: Any
) -> None:
    module, eager, fast = training.graphed(param_grads=param_grads)
    for step, rows in enumerate((8, 4, 8, 8, 4, 4)):
        training.backward((fast, eager), step, rows)
        training.assert_same_gradients(module, eager)
    assert_counts(fast, captures=2, eager_calls=0)


@both_ways
def test_a_second_backward_pass_of_one_call(torch: Any, training: Any, param_grads: Any) -> None:
    module, eager, fast = training.graphed(param_grads=param_grads)
    for run in (fast, eager):
        loss = training.loss_of(run, 1)
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        loss.backward()
    training.assert_same_gradients(module, eager)


@both_ways
@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_are_cleared_begin_anew(
    torch: Any, training: Any, param_grads: Any, set_to_none: bool
) -> None:
    module, eager, fast = training.graphed(param_grads=param_grads)
    for step in range(4):
        training.clear([module, eager], set_to_none=set_to_none)
        for _ in range(2):
            training.backward((fast, eager), step)
        training.assert_same_gradients(module, eager)


@both_ways
def test_parameters_that_are_frozen_and_thawed_have_graphs_of_their_own(
    torch: Any, training: Any, param_grads: Any
) -> None:
    module, eager = training.pair()
    module[0].requires_grad_(False)
    fast = gpuprof.make_graphed_callable(module, (training.batch(0),), param_grads=param_grads)
    for step in range(6):
        training.clear([module, eager])
        for each in (module, eager):
            each[0].requires_grad_(step % 2 == 1)
        training.backward((fast, eager), step)
        assert (module[0].weight.grad is not None) == (step % 2 == 1)
        training.assert_same_gradients(module, eager)
    assert_counts(fast, captures=2, eager_calls=0)


def test_an_argument_asks_for_gradients_or_does_not(torch: Any, training: Any) -> None:
    fast = gpuprof.make_graphed_callable(lambda left, right: left * right, (training.batch(0),) * 2)
    for step in range(8):
        left = training.batch(step).requires_grad_(step % 2 == 1)
        right = training.batch(step + 9).requires_grad_(step // 2 % 2 == 1)
        found = fast(left, right)
        assert found.requires_grad == (left.requires_grad or right.requires_grad)
        if found.requires_grad:
            found.sum().backward()
        training.assert_close(left.grad, right.detach() if left.requires_grad else None)
        training.assert_close(right.grad, left.detach() if right.requires_grad else None)
    assert_counts(fast, captures=4, eager_calls=0)


def test_arguments_that_operators_have_made(torch: Any, training: Any) -> None:
    module, eager = training.pair()
    leaf = training.batch(0).requires_grad_()
    fast = gpuprof.make_graphed_callable(module, (training.batch(0).requires_grad_(),))
    (found,) = torch.autograd.grad((fast(leaf.sin() * 2) ** 2).sum(), leaf)
    (wanted,) = torch.autograd.grad((eager(leaf.sin() * 2) ** 2).sum(), leaf)
    training.assert_close(found, wanted)
    assert fast.stats().captures == 1


@pytest.mark.parametrize("outputs", ["clone", "static"])
def test_returned_gradients_are_the_callers_to_keep(
    torch: Any, training: Any, outputs: Any
) -> None:
    module, eager = training.pair()
    given = training.batch(0).requires_grad_()
    fast = gpuprof.make_graphed_callable(module, (given,), outputs=outputs)
    kept = []
    for step in range(4):
        asked = [given, *module.parameters()]
        theirs = [given, *eager.parameters()]
        kept.append(
            (
                torch.autograd.grad((fast(given) * step).sum(), asked),
                torch.autograd.grad((eager(given) * step).sum(), theirs),
            )
        )
    for found, wanted in kept:
        for mine, own in zip(found, wanted, strict=True):
            training.assert_close(mine, own)


@both_ways
def test_static_results_train(torch: Any, training: Any, param_grads: Any) -> None:
    module, eager, fast = training.graphed(outputs="static", param_grads=param_grads)
    for step in range(4):
        training.backward((fast, eager), step)
        training.assert_same_gradients(module, eager)


# What happens around and inside.


@both_ways
@pytest.mark.parametrize("scaled", [False, True], ids=["bfloat16", "float16 and a scaler"])
def test_steps_under_autocast(torch: Any, training: Any, param_grads: Any, scaled: bool) -> None:
    module, eager = training.pair()
    dtype = torch.float16 if scaled else torch.bfloat16
    with torch.autocast("cuda", dtype=dtype):
        fast = gpuprof.make_graphed_callable(module, (training.batch(0),), param_grads=param_grads)
    for run, own in ((fast, module), (eager, eager)):
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, enabled=scaled)
        for step in range(3):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=dtype):
                loss = training.loss_of(run, step)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(own.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
    training.assert_same_gradients(module, eager, dtype)
    training.assert_same_state(module, eager, dtype)
    assert_replays(fast, 3)


@pytest.mark.parametrize("when", ["before", "after"])
def test_hooks_of_parameters_run_once_for_each_backward_pass(
    torch: Any, training: Any, when: str
) -> None:
    module, eager = training.pair()
    ran: list[str] = []

    def double(gradient: Any) -> Any:
        ran.append("hook")
        return gradient * 2

    def add_hooks(each: Any) -> None:
        each[0].weight.register_hook(double)
        each[4].weight.register_post_accumulate_grad_hook(lambda _: ran.append("after"))

    if when == "before":
        add_hooks(module)
    fast = gpuprof.make_graphed_callable(module, (training.batch(0),))
    if when == "after":
        add_hooks(module)
    add_hooks(eager)
    ran.clear()  # what the warm-up ran
    for step in range(2):
        training.loss_of(fast, step).backward()
    assert sorted(ran) == ["after", "after", "hook", "hook"]
    for step in range(2):
        training.loss_of(eager, step).backward()
    training.assert_same_gradients(module, eager)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_accumulation_refuses_hooks_of_parameters(
    torch: Any, training: Any, when: str, kind: str
) -> None:
    module = training.mlp()

    def make() -> Any:
        return gpuprof.make_graphed_callable(module, (training.batch(0),), param_grads="accumulate")

    fast = None if when == "before" else make()
    getattr(module[0].weight, kind)(lambda _: None)
    with pytest.raises(InvalidStateError, match=r"hooks.*param_grads='autograd'"):
        if fast is None:
            make()
        else:
            training.loss_of(fast, 0).backward()


@both_ways
@pytest.mark.parametrize("ran", [False, True], ids=["kept", "kept after its backward pass"])
def test_an_eager_loss_that_is_kept_does_not_stop_a_capture(
    torch: Any, training: Any, param_grads: Any, ran: bool
) -> None:
    module, eager = training.pair()
    loss, wanted = training.loss_of(module, 5), training.loss_of(eager, 5)
    if ran:
        loss.backward()
        wanted.backward()
    fast = gpuprof.make_graphed_callable(module, (training.batch(0),), param_grads=param_grads)
    for step in range(2):
        training.backward((fast, eager), step)
    if not ran:
        loss.backward()
        wanted.backward()
    training.assert_same_gradients(module, eager)
    assert fast.stats().eager_calls == 0


@both_ways
@pytest.mark.parametrize("how", ["another shape", "reset", "the callable is gone"])
@pytest.mark.parametrize("ran", [False, True], ids=["the first", "a later one"])
def test_a_backward_pass_comes_after_its_graph_was_dropped(
    torch: Any, training: Any, param_grads: Any, how: str, ran: bool
) -> None:
    module, eager, fast = training.graphed(max_graphs=1, param_grads=param_grads)
    if ran:
        for run in (fast, eager):
            training.loss_of(run, 1).backward()
    losses = [training.loss_of(run, 2) for run in (fast, eager)]
    if how == "another shape":
        for rows in (7, 5, 3):  # graphs that want the memory of the one before
            training.backward((fast, eager), 3, rows)
        assert fast.stats().evictions == 3
    elif how == "reset":
        fast.reset()
    else:
        del fast
    gc.collect()
    taken = [torch.full((8, 64), float("nan"), device="cuda") for _ in range(64)]
    for loss in losses:
        loss.backward()
    training.assert_same_gradients(module, eager)
    del taken
