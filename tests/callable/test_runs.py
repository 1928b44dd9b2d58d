"""How often a function runs until it is captured, and what these runs leave behind."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from tests.support.callables import Counted, make, twice


@pytest.fixture
def to_compile(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile nothing where ``compile=True`` asks for it; captures are made as of compiled code."""
    monkeypatch.setattr("gpuprof._callable.cache.compiled", lambda function: function)


@pytest.mark.torch
@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_compiled_code_runs_under_one_more_capture(
    cupy: Any, to_compile: None, warmup: int
) -> None:
    runs, x = Counted(), cupy.array([1.0])
    make(twice(cupy, runs), x, warmup=warmup, compile=True)
    assert runs() == (max(warmup, 2) if warmup else 0) + 2
    runs = Counted()
    fast = gpuprof.make_graphed_callable(twice(cupy, runs), warmup=warmup, compile=True, writes=())
    for ran in range(1, warmup + 1):
        fast(x)
        assert runs() == ran
    fast(x)
    assert runs() == warmup + 3, "and the replay is compared"
    runs = Counted()
    held = twice(cupy, runs)
    make(lambda: held(x), compile=True)
    assert runs() == 1


@pytest.mark.torch
def test_warm_ups_with_samples_run_the_backward_pass_as_well(
    cupy: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, x = Counted(), cupy.array([1.0])
    monkeypatch.setattr("gpuprof._callable.capture.backward_of", lambda *_: passes.note())
    make(twice(cupy), x, warmup=2)
    assert passes() == 2
    fast = gpuprof.make_graphed_callable(twice(cupy), warmup=2)
    for _ in range(4):
        fast(x)
    assert passes() == 2


@pytest.mark.torch
@pytest.mark.parametrize("compiles", [False, True])
def test_what_warm_ups_write_to_tensors_is_put_back(
    cupy: Any, torch: Any, to_compile: None, compiles: bool
) -> None:
    total, late, seen = torch.zeros(1), torch.zeros(1), []

    def body(x: Any) -> Any:
        seen.append((float(total), float(late)))
        total.add_(1)
        if len(seen) > 1 and not compiles:  # of compiled code the first one tells
            late.add_(1)
        return x.copy()

    make(body, cupy.array([1.0]), compile=compiles)
    warm_ups, captures = seen[:3], seen[3:]
    assert warm_ups == [(0, 0), (1, 0), (2, 0 if compiles else 1)]
    assert captures[0] == (0, 0)


@pytest.mark.torch
def test_gradients_that_runs_set_on_modules_are_put_back(cupy: Any, torch: Any) -> None:
    model, seen = torch.nn.Linear(1, 1), []
    before = model.bias.grad = torch.ones(1)

    def body(x: Any) -> Any:
        seen.append((model.weight.grad, model.bias.grad is before))
        model.weight.grad = torch.ones(1, 1)
        model.bias.grad = None
        return x.copy()

    make(body, cupy.array([1.0]), warmup=1)
    assert seen == [(None, True)] * 2
    assert model.weight.grad is None
    assert model.bias.grad is before


@pytest.mark.torch
def test_a_capture_after_a_change_is_warmed_up_with_samples_alone(cupy: Any, torch: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        scale = 1.0

        def forward(self, x: Any) -> Any:
            runs.note()
            return x.copy(), self.scale

    x = cupy.array([1.0])
    for has_samples in (True, False):
        model, runs = Model(), Counted()
        model.scale = 1.0
        samples = (x,) if has_samples else None
        fast = gpuprof.make_graphed_callable(model, samples, warmup=2, verify="off")
        for _ in range(3):
            fast(x)
        assert runs() == 3
        model.scale = 2.0
        assert fast(x)[1] == 2
        assert runs() == (6 if has_samples else 4)
