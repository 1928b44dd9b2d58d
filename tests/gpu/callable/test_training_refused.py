"""What a backward graph cannot follow, which is refused by name, and callables in one memory."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.gpu.support.callables import assert_replays

both_ways = pytest.mark.parametrize("param_grads", ["autograd", "accumulate"])


def test_a_call_without_gradients_does_not_spoil_a_backward_pass(torch: Any, training: Any) -> None:
    module, eager, fast = training.graphed()
    with torch.no_grad():
        fast(training.batch(1))
    loss = training.loss_of(fast, 0)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(training.batch(1)), eager(training.batch(1)))
    loss.backward()
    training.loss_of(eager, 0).backward()
    training.assert_same_gradients(module, eager)


@both_ways
def test_a_second_derivative_is_refused(torch: Any, training: Any, param_grads: Any) -> None:
    module = training.mlp()
    given = training.batch(0).requires_grad_()
    fast = gpuprof.make_graphed_callable(module, (given,), param_grads=param_grads)
    with pytest.raises(InvalidStateError, match="create_graph=True"):
        torch.autograd.grad(fast(given).sum(), given, create_graph=True)
    with pytest.raises(InvalidStateError, match="create_graph=True"):
        fast(given).sum().backward(create_graph=True)


@pytest.mark.parametrize("transform", ["grad", "vmap", "functionalize", "jvp"])
@pytest.mark.parametrize("module", [True, False], ids=["module", "function"])
def test_transforms_of_torch_func_are_refused(
    torch: Any, training: Any, transform: str, module: bool
) -> None:
    fast = gpuprof.make_graphed_callable(
        training.mlp() if module else torch.sin, (training.batch(0),)
    )
    given = training.batch(0)
    calls = {
        "grad": lambda: torch.func.grad(lambda values: fast(values).sum())(given),
        "vmap": lambda: torch.func.vmap(fast)(given[None]),
        "functionalize": lambda: torch.func.functionalize(fast)(given),
        "jvp": lambda: torch.func.jvp(fast, (given,), (given,)),
    }
    with pytest.raises(InvalidStateError, match=r"torch\.func.*\.eager"):
        calls[transform]()
    torch.testing.assert_close(fast(given), fast.eager(given))


@pytest.mark.parametrize("how", ["no_grad", "detach", "data"])
def test_an_argument_that_requires_a_gradient_and_is_written_to_is_refused(
    torch: Any, training: Any, how: str
) -> None:
    weight = training.batch(1).requires_grad_()

    def body(values: Any) -> Any:
        if how == "no_grad":
            with torch.no_grad():
                values.mul_(2)
        else:
            (values.detach() if how == "detach" else values.data).mul_(2)
        return values * weight

    given = training.batch(0).requires_grad_()
    with pytest.raises(InvalidStateError, match=r"args\[0\].*changes it in place"):
        gpuprof.make_graphed_callable(body, (given,))
    assert torch.equal(given, training.batch(0))


def test_an_argument_that_autograd_sees_written_to_is_refused(torch: Any, training: Any) -> None:
    given = training.batch(0).requires_grad_()
    with pytest.raises(RuntimeError, match=r"in-place|in place"):
        gpuprof.make_graphed_callable(lambda values: values.mul_(2), (given * 1,))


def test_a_static_result_that_is_changed_before_the_backward_pass_is_refused(
    torch: Any, training: Any
) -> None:
    module = training.mlp()
    fast = gpuprof.make_graphed_callable(module, (training.batch(0),), outputs="static")
    result = fast(training.batch(1))
    loss = result.sum()
    with torch.no_grad():
        result.mul_(2)
    with pytest.raises(InvalidStateError, match="changed in place"):
        loss.backward()


# Callables in one memory.


def test_callables_of_one_pool_check_their_order(torch: Any, training: Any) -> None:
    pool = gpuprof.CapturePool()
    pairs = [training.pair() for _ in range(2)]
    made = [
        gpuprof.make_graphed_callable(module, (training.batch(0),), pool=pool)
        for module, _ in pairs
    ]
    losses = [training.loss_of(fast, 0) for fast in reversed(made)]
    with pytest.raises(InvalidStateError, match="another graph of the same memory"):
        losses[0].backward()
    training.clear([module for module, _ in pairs])
    for step in range(3):
        losses = [training.loss_of(fast, step) for fast in made]
        for loss, (module, eager) in zip(losses, pairs, strict=True):
            loss.backward()
            training.loss_of(eager, step).backward()
            training.assert_same_gradients(module, eager)


def stages_of(training: Any) -> tuple[Any, Any]:
    return tuple(zip(*(training.pair() for _ in range(3)), strict=True))  # type: ignore[return-value]


def pipeline(training: Any, modules: Any, **options: Any) -> Any:
    inner = training.batch(0).requires_grad_()
    samples = ((training.batch(0),), (inner,), (inner,))
    return gpuprof.make_graphed_callable(modules, samples, **options)


@both_ways
def test_the_stages_of_a_pipeline_in_order(torch: Any, training: Any, param_grads: Any) -> None:
    modules, eager = stages_of(training)
    stages = pipeline(training, modules, param_grads=param_grads)
    for step in range(3):
        for run in (stages, eager):
            values = training.batch(step)
            for stage in run:
                values = stage(values)
            values.square().mean().backward()
        for mine, theirs in zip(modules, eager, strict=True):
            training.assert_same_gradients(mine, theirs)
    for stage in stages:
        assert_replays(stage, 3)


def test_the_stages_of_a_pipeline_backwards_one_by_one(torch: Any, training: Any) -> None:
    modules, eager = stages_of(training)
    for run in (pipeline(training, modules), eager):
        inputs, results = [], []
        values = training.batch(1)
        for stage in run:
            inputs.append(values)
            results.append(stage(values))
            values = results[-1].detach().requires_grad_()
        gradient = training.batch(2)
        for given, result in zip(reversed(inputs), reversed(results), strict=True):
            result.backward(gradient)
            gradient = given.grad
    for mine, theirs in zip(modules, eager, strict=True):
        training.assert_same_gradients(mine, theirs)


# torch.compile.


@both_ways
def test_compiled_modules_train(torch: Any, training: Any, param_grads: Any) -> None:
    pytest.importorskip("triton", reason="torch.compile needs Triton")
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("torch.compile needs a C compiler")
    module, eager, fast = training.graphed(compile=True, param_grads=param_grads)
    for step in range(3):
        training.backward((fast, eager), step)
        for mine, theirs in zip(module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    assert_replays(fast, 3)
    loss = training.loss_of(fast, 0)
    loss.backward(retain_graph=True)
    with pytest.raises(InvalidStateError, match=r"second backward pass.*compiled code"):
        loss.backward()
