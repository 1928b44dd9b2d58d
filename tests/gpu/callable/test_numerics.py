"""What verification takes for numerics on a GPU, and code that asks torch whether it captures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import GraphMismatchError


def attention(torch: Any, how: dict[str, Any]) -> Any:
    """Return a small transformer whose attention rounds otherwise, or is wrong, as `how` says."""

    class Attention(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(64)
            self.q, self.k, self.v, self.out = (torch.nn.Linear(64, 64) for _ in range(4))

        def forward(self, x: Any) -> Any:
            y = self.norm(x)
            q, k, v = (
                each(y).unflatten(-1, (4, -1)).transpose(1, 2) for each in (self.q, self.k, self.v)
            )
            scale = 3.0 if how["other"] else 1.0  # rounded otherwise, as by another kernel
            scores = (q * scale) @ k.mT / (scale * math.sqrt(q.shape[-1]))
            mixed = torch.softmax(scores, -1) @ v
            return x + self.out(mixed.transpose(1, 2).flatten(2)) * how["factor"]

    torch.manual_seed(0)
    blocks = (Attention() for _ in range(3))
    return torch.nn.Sequential(torch.nn.Embedding(100, 64), *blocks, torch.nn.Linear(64, 10)).cuda()


def whole_step(torch: Any, model: Any) -> Callable[[Any, Any], Any]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)

    def step(numbers: Any, wanted: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(numbers).mean(1), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def batch(torch: Any) -> tuple[Any, Any]:
    return (
        torch.randint(0, 100, (8, 16), device="cuda"),
        torch.randint(0, 10, (8,), device="cuda"),
    )


def test_another_kernel_in_a_whole_step_of_adamw_is_numerics(torch: Any) -> None:
    how = {"other": False, "factor": 1.0}
    model = attention(torch, how)
    fast = gpuprof.make_graphed_callable(whole_step(torch, model), warmup=2, verify=1)
    given = batch(torch)
    for _ in range(4):
        fast(*given)
    close = fast.stats().numerics
    how["other"] = True
    fast(*given)
    assert fast.stats().numerics == close + 1
    assert fast.stats().eager_calls == 0


@pytest.mark.parametrize("factor", [1 + 1e-4, 1.01])
def test_a_planted_error_in_a_whole_step_is_found(torch: Any, factor: float) -> None:
    how = {"other": False, "factor": 1.0}
    fast = gpuprof.make_graphed_callable(
        whole_step(torch, attention(torch, how)), warmup=2, verify=1
    )
    given = batch(torch)
    for _ in range(4):
        fast(*given)
    how["factor"] = factor
    with pytest.raises(GraphMismatchError, match=r"largest error .*16 times"):
        fast(*given)


def test_verification_leaves_a_training_run_as_it_would_be(torch: Any) -> None:
    losses = []
    for verify in ("off", 1):
        how = {"other": False, "factor": 1.0}
        model = attention(torch, how)
        fast = gpuprof.make_graphed_callable(whole_step(torch, model), warmup=2, verify=verify)
        torch.manual_seed(1)
        given = batch(torch)
        losses.append([fast(*given).item() for _ in range(6)])
        how["other"] = verify == 1  # from here on each step is compared, and differs
        losses[-1] += [fast(*given).item() for _ in range(3)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_sums_by_atomics_are_numerics(torch: Any, dtype: str) -> None:
    values = torch.randn(100_000, 8, device="cuda", dtype=getattr(torch, dtype))
    where = torch.randint(0, 16, (100_000,), device="cuda")

    def body(x: Any) -> Any:
        return x.new_zeros(16, 8).index_add_(0, where, x)

    fast = gpuprof.make_graphed_callable(body, (values,), verify=1)
    for _ in range(5):
        fast(values)
    assert fast.stats().eager_calls == 0


def test_dropout_and_its_generator_survive_the_runs_that_tell_numerics(torch: Any) -> None:
    extra, x = [1.0], torch.ones(1024, device="cuda")
    draws = torch.nn.functional.dropout
    fast = gpuprof.make_graphed_callable(lambda x: draws(x) * extra[0], (x,), verify=1)
    extra[0] = 1 + 2**-23
    torch.manual_seed(5)
    found = [fast(x) for _ in range(3)]
    torch.manual_seed(5)
    for each in found:
        assert torch.equal(each != 0, draws(x) != 0)
    assert fast.stats().numerics == 3


def test_reads_of_parameters_leave_pending_backward_passes_alone(torch: Any) -> None:
    extra = [1.0]
    layer = torch.nn.Linear(64, 64).cuda()
    x = torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        fast = gpuprof.make_graphed_callable(lambda x: layer(x) * extra[0], (x,), verify=1)
    pending = torch.tanh(layer(x.requires_grad_())).square().sum()
    before = [each.detach().clone() for each in layer.parameters()]
    extra[0] = 1 + 2**-23
    with torch.no_grad():
        fast(x.detach())
    assert fast.stats().numerics >= 1
    assert all(map(torch.equal, before, layer.parameters()))
    pending.backward()


# Whether torch captures.


@pytest.mark.parametrize("grad", [False, True])
def test_code_that_asks_takes_one_path(torch: Any, grad: bool) -> None:
    ask = torch.cuda.is_current_stream_capturing
    answers: list[bool] = []

    def body(x: Any) -> Any:
        answers.append(ask())
        return x * 2 if torch.cuda.is_current_stream_capturing() else x * 3

    x = torch.ones(4, device="cuda")
    with torch.set_grad_enabled(grad):
        fast = gpuprof.make_graphed_callable(body, (x,), verify=1)
        assert fast(x).tolist() == [2] * 4
        assert fast(torch.ones(8, device="cuda")).tolist() == [2] * 8
        assert fast.eager(x).tolist() == [3] * 4
    assert answers == [True] * (len(answers) - 1) + [False], "all but the eager call"
    assert not ask()


def test_autograds_thread_is_told_so_too(torch: Any) -> None:
    answers: list[bool] = []

    class Asks(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            answers.append(torch.cuda.is_current_stream_capturing())
            return gradient * (2 if answers[-1] else 3)

    def body(x: Any) -> Any:
        return torch.autograd.grad(Asks.apply(x * weight).sum(), weight)[0]

    weight = torch.ones(4, device="cuda", requires_grad=True)
    fast = gpuprof.make_graphed_callable(body, (torch.ones(4, device="cuda"),), verify=1)
    assert fast(torch.ones(4, device="cuda")).tolist() == [2] * 4
    assert answers == [True] * len(answers)
    assert body(torch.ones(4, device="cuda")).tolist() == [3] * 4


def test_an_optimizer_without_capturable_is_refused_by_the_capture_alone(torch: Any) -> None:
    module = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.Adam(module.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        module(x).sum().backward()
        optimizer.step()

    x = torch.ones(2, 4, device="cuda")
    with pytest.warns(RuntimeWarning, match="the capture failed"):
        fast = gpuprof.make_graphed_callable(step, (x,), on_capture_error="eager")
    fast(x)
    assert fast.stats().eager_calls == 1


def test_compiled_code_is_verified_too(torch: Any) -> None:
    model, x = torch.nn.Linear(64, 64).cuda(), torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        fast = gpuprof.make_graphed_callable(
            lambda x: torch.tanh(model(x)), (x,), compile=True, verify=1
        )
        torch.testing.assert_close(fast(x), torch.tanh(model(x)))
    assert fast.stats().eager_calls == 0
