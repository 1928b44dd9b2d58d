"""`benchmark` beside torch without a GPU: its generators, and arguments that change."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch

QUICK: dict[str, Any] = {"warmup_s": 0.0, "min_time_s": 0.0, "min_samples": 6, "max_time_s": 0.5}


def test_work_of_torch_on_the_cpu_is_timed_on_the_cpus_clock() -> None:
    result = gpuprof.benchmark(torch.add, (torch.ones(1000), torch.ones(1000)), **QUICK)
    assert (result.mode, result.clock) == ("cpu", "cpu")
    assert result.warnings == () or all("in place" not in text for text in result.warnings)


def test_torchs_generator_is_put_back() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    gpuprof.benchmark(torch.rand, (10,), **QUICK)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_tensor_that_is_changed_in_place_is_named() -> None:
    inner = {"x": [torch.zeros(4), torch.zeros(4)]}
    result = gpuprof.benchmark(lambda d: d["x"][1].add_(1), (inner,), **QUICK)
    assert any("args[0]['x'][1] in place" in text for text in result.warnings)


def test_a_keyword_argument_that_is_changed_is_named() -> None:
    result = gpuprof.benchmark(
        lambda *, out: torch.add(out, 1, out=out), kwargs={"out": torch.zeros(4)}, **QUICK
    )
    assert any("kwargs['out'] in place" in text for text in result.warnings)


def test_with_a_set_up_nothing_is_said_of_changes() -> None:
    result = gpuprof.benchmark(lambda x: x.add_(1), setup=lambda: ((torch.zeros(4),), {}), **QUICK)
    assert not any("in place" in text for text in result.warnings)


def test_tensors_made_in_inference_mode_are_taken() -> None:
    with torch.inference_mode():
        x = torch.zeros(4)
    assert gpuprof.benchmark(torch.neg, (x,), **QUICK).count >= 6
