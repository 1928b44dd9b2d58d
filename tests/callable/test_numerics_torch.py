"""What verification takes for numerics, and what code is told that asks whether torch captures."""

from __future__ import annotations

import math
import threading
import types
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import GraphMismatchError
from tests.support import cpu_graphs

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
graphs: Any = pytest.importorskip("torch.cuda.graphs")
pytestmark = pytest.mark.torch
ASK = "_cuda_isCurrentStreamCapturing"


@pytest.fixture(autouse=True)
def captures_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_graphs.install(monkeypatch)
    # Another test may have compiled something: then there is one capture more.
    monkeypatch.setattr("gpuprof._callable.capture.may_run_compiled_code", lambda: False)
    torch.manual_seed(0)
    for owner in (torch._C, graphs):
        monkeypatch.setattr(owner, ASK, lambda: cpu_graphs.Capture.number_open > 0)


def is_capturing() -> bool:
    return bool(torch.cuda.is_current_stream_capturing())


def verified(fast: Any, *args: Any) -> Any:
    """Call it, and compare this replay as the first one of its graph."""
    for each in fast._entries:
        each.runs = 0
    return fast(*args)


class Attention(torch.nn.Module):  # type: ignore[misc]
    """A layer of attention, by one kernel or by others for the same."""

    fused = False
    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 32)
        self.q, self.k, self.v, self.out = (torch.nn.Linear(32, 32) for _ in range(4))

    def forward(self, numbers: Any) -> Any:
        x = self.embedding(numbers)
        q, k, v = (
            each(x).unflatten(-1, (4, -1)).transpose(1, 2) for each in (self.q, self.k, self.v)
        )
        if self.fused:
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            mixed = torch.softmax(scores, -1) @ (v * self.factor)
        return self.out(mixed.transpose(1, 2).flatten(2)).mean(1)


def step_of(model: Any) -> Any:
    """Return a whole step of Adam, the first one, which makes a sign of each gradient."""
    moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in model.parameters()]

    def step(numbers: Any, wanted: Any) -> Any:
        loss = torch.nn.functional.cross_entropy(model(numbers), wanted)
        gradients = torch.autograd.grad(loss, [*model.parameters()])
        with torch.no_grad():
            for each, gradient, (first, second) in zip(
                model.parameters(), gradients, moments, strict=True
            ):
                first.lerp_(gradient, 0.1)
                second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                denominator = (second / 0.001).sqrt() + 1e-8
                each.sub_(1e-3 * (first / 0.1) / denominator)
        return loss.detach()

    return step


def state_of(model: Any) -> list[Any]:
    return [each.detach().clone() for each in model.parameters()]


def same(one: list[Any], other: list[Any]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture
def batch() -> tuple[Any, Any]:
    return torch.randint(0, 50, (8, 12)), torch.randint(0, 32, (8,))


# Numerics.


def test_another_kernel_in_a_whole_step_of_adam_is_numerics(batch: Any) -> None:
    Attention.fused = False
    model = Attention()
    fast: Any = gpuprof.make_graphed_callable(step_of(model), batch)
    before = state_of(model)
    verified(fast, *batch)
    assert fast.stats().numerics == 0
    assert not same(before, state_of(model))
    Attention.fused = True
    try:
        verified(fast, *batch)
    finally:
        Attention.fused = False
    assert fast.stats().numerics == 1
    assert fast.stats().eager_calls == 0
    assert "1 verified but for rounding" in str(fast.stats())


@pytest.mark.parametrize("factor", [1 + 1e-4, 1 - 1e-4, 1.01])
def test_a_planted_error_in_a_whole_step_is_found(batch: Any, factor: float) -> None:
    model = Attention()
    fast: Any = gpuprof.make_graphed_callable(step_of(model), batch)
    verified(fast, *batch)
    Attention.factor = factor
    try:
        with pytest.raises(GraphMismatchError, match=r"largest error .*change it by .*16 times"):
            verified(fast, *batch)
    finally:
        Attention.factor = 1.0
    assert fast.stats().numerics == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_number_that_is_frozen_and_changes_by_a_ten_thousandth_is_found(dtype: Any) -> None:
    scale = [1.0]
    x, weight = torch.randn(8, 16, dtype=dtype), torch.randn(16, 16, dtype=dtype)
    fast: Any = gpuprof.make_graphed_callable(lambda x: x @ weight * scale[0], (x,))
    verified(fast, x)
    scale[0] = 1.0001
    with pytest.raises(GraphMismatchError) as caught:
        verified(fast, x)
    assert caught.value.path == "result"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
def test_a_product_in_another_order_is_numerics(dtype: Any) -> None:
    order = [1]
    x, weight = torch.randn(8, 256, dtype=dtype), torch.randn(256, 16, dtype=dtype)

    def product(x: Any) -> Any:
        parts = zip(x.chunk(8, 1), weight.chunk(8), strict=True)
        return sum(a @ b for a, b in [*parts][:: order[0]])

    fast: Any = gpuprof.make_graphed_callable(product, (x,))
    verified(fast, x)
    order[0] = -1
    verified(fast, x)
    assert fast.stats().numerics == 1


def test_the_fill_value_of_a_mask_hides_nothing() -> None:
    scale = [1.0]
    x, mask = torch.randn(4, 8), torch.zeros(4, 8)
    mask[0] = -1e9
    fast: Any = gpuprof.make_graphed_callable(lambda x: x * scale[0] + mask, (x,))
    scale[0] = 1.001
    with pytest.raises(GraphMismatchError):
        verified(fast, x)


def test_runs_that_tell_numerics_leave_no_trace() -> None:
    extra = [0.0]
    state, weight = torch.ones(4), torch.nn.Parameter(torch.ones(4))
    infinite = torch.tensor([-math.inf, 0.0, 1.0, torch.finfo(torch.float32).max])
    expanded = torch.ones(1).expand(4)
    x, cache, seen = torch.ones(4), torch.zeros(4), []

    def body(x: Any, cache: Any) -> Any:
        seen.append(x)
        cache.add_(x)
        state.mul_(2)
        with torch.no_grad():
            return (x * weight * expanded + extra[0]).clone(), torch.softmax(infinite, 0)

    fast: Any = gpuprof.make_graphed_callable(body, (x, cache))
    versions = weight._version, infinite._version
    ran = len(seen)
    extra[0] = 2e-7
    verified(fast, x, cache)
    assert fast.stats().numerics == 1
    assert len(seen) == ran + 3, "once to compare, and twice on what was moved"
    assert (weight._version, infinite._version) == versions
    assert [each.tolist() for each in (x, cache, state, weight, expanded)] == [
        *([1.0] * 4, [1.0] * 4, [2.0] * 4, [1.0] * 4, [1.0] * 4)
    ]
    assert infinite.tolist()[0] == -math.inf


def test_an_integer_that_differs_is_no_numerics() -> None:
    more = [0]
    x = torch.arange(4)
    fast: Any = gpuprof.make_graphed_callable(lambda x: (x + more[0], x * 1.0), (x,))
    more[0] = 1
    with pytest.raises(GraphMismatchError, match=r"result\[0\]"):
        verified(fast, x)
    assert fast.stats().numerics == 0


def test_of_several_ranks_none_runs_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True, raising=False)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2, raising=False)
    scale, runs = [1.0], []

    def body(x: Any) -> Any:
        runs.append(None)
        return x * scale[0]

    fast: Any = gpuprof.make_graphed_callable(body, (torch.ones(2),))
    ran, scale[0] = len(runs), 1 + 2**-20
    verified(fast, torch.ones(2))
    assert len(runs) == ran + 1
    scale[0] = 1.01
    with pytest.raises(GraphMismatchError):
        verified(fast, torch.ones(2))


def test_without_memory_for_copies_tolerances_decide() -> None:
    scale, x = [1.0], torch.ones(2)

    def body(x: Any) -> Any:
        if scale[0] > 1 and not (x == 1).all():
            raise torch.OutOfMemoryError
        return x * weight * scale[0]

    weight = torch.ones(2)
    fast: Any = gpuprof.make_graphed_callable(body, (x,))
    scale[0] = 1 + 2**-20
    verified(fast, x)
    assert fast.stats().numerics == 0
    assert weight.tolist() == [1, 1]


# Whether torch captures.


def test_code_that_asks_takes_one_path_in_all_runs() -> None:
    answers: list[bool] = []
    ask = torch.cuda.is_current_stream_capturing  # as `from torch.cuda import` binds it

    def body(x: Any) -> Any:
        answers.extend([ask(), graphs.is_current_stream_capturing(), getattr(torch._C, ASK)()])
        return x * 2 if is_capturing() else x * 3

    fast: Any = gpuprof.make_graphed_callable(body, (torch.ones(2),), verify=1)
    assert fast(torch.ones(2)).tolist() == [2, 2]
    assert answers == [True] * len(answers)
    assert not is_capturing()
    assert fast.eager(torch.ones(2)).tolist() == [3, 3]


def test_first_calls_are_the_callers_own_and_get_the_truth() -> None:
    answers: list[bool] = []

    def body(x: Any) -> Any:
        answers.append(is_capturing())
        return x

    fast: Any = gpuprof.make_graphed_callable(body, warmup=1)
    fast(torch.ones(2))
    fast(torch.ones(2))
    assert answers == [False, True, True], "a call, the capture, the comparison"


def test_it_is_put_back_after_an_error_and_holds_on_no_other_thread() -> None:
    before = getattr(torch._C, ASK), getattr(graphs, ASK)
    answers: list[bool] = []

    def body(_: Any) -> Any:
        other = threading.Thread(target=lambda: answers.append(is_capturing()))
        other.start()
        other.join()
        answers.append(is_capturing())
        raise KeyError

    with pytest.raises(KeyError):
        gpuprof.make_graphed_callable(body, (torch.ones(2),))
    assert answers == [False, True]
    assert (getattr(torch._C, ASK), getattr(graphs, ASK)) == before
    assert not is_capturing()


def test_a_callable_that_is_made_in_the_warm_up_of_another_leaves_it_its_answer() -> None:
    answers: list[bool] = []

    def body(x: Any) -> Any:
        if not cpu_graphs.Capture.number_open:
            gpuprof.make_graphed_callable(lambda x: x * 2, (x,))
        answers.append(is_capturing())
        return x

    gpuprof.make_graphed_callable(body, (torch.ones(2),), warmup=1)
    assert answers == [True] * 3
    assert not is_capturing()


@pytest.mark.parametrize(
    ("asker", "answer"),
    [
        ("torch.optim.optimizer", False),
        ("torch._higher_order_ops.cudagraph_conditional_nodes", False),
        ("torch.nn.modules._functions", True),
        ("torchvision.models", True),
        ("__main__", True),
    ],
)
def test_torchs_own_code_gets_the_truth_but_for_its_modules(asker: str, answer: bool) -> None:
    code = "import torch\ndef ask(): return torch.cuda.is_current_stream_capturing()"
    names: dict[str, Any] = {"__name__": asker}
    exec(code, names)
    answers: list[bool] = []

    def body(x: Any) -> Any:
        answers.append(names["ask"]())
        return x

    gpuprof.make_graphed_callable(body, (torch.ones(2),), warmup=1)
    assert answers == [answer, True, answer], "a warm-up, the capture, the comparison"


@pytest.mark.parametrize("draws", [False, True])
def test_random_numbers_are_named_as_a_cause(draws: bool) -> None:
    scale = [1.0]
    fast: Any = gpuprof.make_graphed_callable(lambda x: x * scale[0], (torch.ones(2),))
    fast.graph._by_torch = types.SimpleNamespace(must_replay=draws)
    scale[0] = 2.0
    with pytest.raises(GraphMismatchError) as caught:
        verified(fast, torch.ones(2))
    assert ('dropout off (eval()); then verify="off" is right' in str(caught.value)) is draws
