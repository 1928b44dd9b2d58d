"""Graphed functions that cannot be captured: what is said, what runs, and torch as it was."""

from __future__ import annotations

import contextlib
import gc
import warnings
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_replays


def reads_a_value(values: Any) -> Any:
    """Return what no graph can hold, because the host looks at a value."""
    doubled = values * 2
    if doubled[0].item() > 0:
        return doubled + 1
    return doubled


def check_torch(torch: Any, stream: Any) -> None:
    """Fail unless torch is as usable as before a failed capture."""
    assert torch.cuda.current_stream() == stream
    assert not torch.cuda.is_current_stream_capturing()
    torch.manual_seed(3)
    first = torch.rand(64, device="cuda")
    torch.manual_seed(3)
    assert torch.equal(torch.rand(64, device="cuda"), first)
    fast = gpuprof.make_graphed_callable(torch.rand_like, (first,))
    assert not torch.equal(fast(first), fast(first))
    assert_replays(fast, 2)


@pytest.mark.parametrize("lazy", [True, False])
def test_a_failed_capture_falls_back_with_one_warning(torch: Any, lazy: bool) -> None:
    stream = torch.cuda.current_stream()
    given = torch.ones(16, device="cuda")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        fast = gpuprof.make_graphed_callable(
            reads_a_value, None if lazy else (given,), warmup=1, on_capture_error="eager"
        )
        for value in (1.0, -1.0, 2.0, -2.0):
            given.fill_(value)
            wanted = 2 * value + (1 if value > 0 else 0)
            assert fast(given).tolist() == [wanted] * 16
    said = [each for each in heard if issubclass(each.category, RuntimeWarning)]
    assert len(said) == 1, [str(each.message) for each in heard]
    assert "reads_a_value" in str(said[0].message)
    seen = fast.stats()
    assert (seen.replays, seen.eager_calls) == (0, 3 if lazy else 4), seen
    assert seen.failures >= 1
    check_torch(torch, stream)


@pytest.mark.parametrize("policy", ["raise", "eager"])
def test_failed_captures_hold_no_memory(torch: Any, policy: str) -> None:
    def hungry(values: Any) -> Any:
        big = torch.zeros(16 << 20, device="cuda")
        return values + big[0].item()

    given = torch.ones(16, device="cuda")

    def fail() -> None:
        with warnings.catch_warnings(), contextlib.suppress(RuntimeError):
            warnings.simplefilter("ignore")
            fast = gpuprof.make_graphed_callable(
                hungry, (given,), warmup=1, on_capture_error=policy
            )
            assert torch.equal(fast(given), given)

    def held() -> int:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return int(torch.cuda.memory_reserved())

    fail()
    before = held()
    for _ in range(10):
        fail()
    assert held() <= before
