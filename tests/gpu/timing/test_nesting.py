"""Scopes inside scopes: a parent's interval holds those of its children."""

from __future__ import annotations

import pytest

import gpuprof
from tests.gpu.support.kernels import MILLISECOND, Spin, device

_ROUNDING_MS = 2e-6  # readings are 32-bit floats of milliseconds


@pytest.fixture(scope="module")
def tick_ms() -> float:
    return float(gpuprof.calibrate().tick_ns) / MILLISECOND


def test_a_parent_reads_at_least_the_sum_of_its_children(tick_ms: float) -> None:
    stream = device().stream()
    spin = Spin(device(), stream, MILLISECOND // 2)
    for _ in range(20):
        with gpuprof.timer("parent", stream=stream) as parent:
            children = []
            for name in ("first", "second", "third"):
                with gpuprof.timer(name, stream=stream) as child:
                    spin.launch()
                children.append(child)
        assert [child.path for child in children] == [
            "parent/first",
            "parent/second",
            "parent/third",
        ]
        slack_ms = len(children) * (tick_ms + _ROUNDING_MS)
        assert parent.ms >= sum(child.ms for child in children) - slack_ms


def test_three_levels_hold_one_another(tick_ms: float) -> None:
    stream = device().stream()
    spin = Spin(device(), stream, MILLISECOND // 2)
    slack_ms = tick_ms + _ROUNDING_MS
    for _ in range(20):
        with gpuprof.timer("step", stream=stream) as step:
            spin.launch()
            with gpuprof.timer("forward", stream=stream) as forward:
                spin.launch()
                with gpuprof.timer("attention", stream=stream) as attention:
                    spin.launch()
        assert attention.path == "step/forward/attention"
        assert attention.ms >= spin.milliseconds() - slack_ms
        # Each level adds half a millisecond of work of its own.
        assert forward.ms >= attention.ms + 0.49 - slack_ms
        assert step.ms >= forward.ms + 0.49 - slack_ms
