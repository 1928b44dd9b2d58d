"""What a graphed callable has frozen at its capture, and `verify`, which finds that it changed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import gpuprof
import gpuprof.errors as errors
from tests.gpu.support.fuzz_frozen import FROZEN, frozen

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::torch")]


@pytest.mark.parametrize("name", FROZEN)
@pytest.mark.parametrize("has_samples", [False, True])
def test_a_change_is_found_where_each_call_is_verified(
    torch: Any, name: str, has_samples: bool
) -> None:
    function, change = frozen(torch, name, "cuda")
    x = torch.arange(1.0, 5.0, device="cuda")
    samples = (torch.zeros(4, device="cuda"),) if has_samples else None
    fast = gpuprof.make_graphed_callable(function, samples, warmup=0, verify=1)
    for _ in range(2):
        assert torch.equal(fast(x), function(x))
    before = function(x)
    change()
    wanted = function(x)
    assert not torch.equal(wanted, before)
    with pytest.raises(errors.GraphMismatchError):
        fast(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(fast(x), wanted)  # eagerly
    assert fast.stats().eager_calls >= 1


@pytest.mark.parametrize("name", FROZEN)
def test_each_third_call_is_verified(torch: Any, name: str) -> None:
    function, change = frozen(torch, name, "cuda")
    x = torch.arange(1.0, 5.0, device="cuda")
    fast = gpuprof.make_graphed_callable(function, warmup=0, verify=3)
    fast(x)
    change()
    with pytest.raises(errors.GraphMismatchError):
        for _ in range(3):
            fast(x)
