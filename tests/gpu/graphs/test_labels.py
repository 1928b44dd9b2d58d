"""Scopes of a capture on the nodes of its graph, on a GPU, under torch."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.gpu.support.frameworks import torch_or_skip

_TIMERS: tuple[Literal["strip", "last", "collect"], ...] = ("strip", "last", "collect")


@pytest.fixture
def torch() -> Any:
    torch = torch_or_skip()
    layer = torch.nn.Linear(64, 64, device="cuda")
    layer(torch.zeros(64, 64, device="cuda")).sum().backward()
    torch.cuda.synchronize()
    return torch


def kernels(graph: gpuprof.CapturedGraph) -> Counter[str]:
    """Return how many kernels there are in each scope."""
    return Counter(node.scope for node in graph.nodes if node.type == "kernel")


@pytest.mark.parametrize("timers", _TIMERS)
def test_kernels_are_in_their_scopes(
    torch: Any, timers: Literal["strip", "last", "collect"]
) -> None:
    x = torch.zeros(1024, device="cuda")
    side = torch.cuda.Stream()
    with gpuprof.capture(timers=timers) as cap:
        x.add_(1)
        with gpuprof.timer("step"):
            x.mul_(2)
            with gpuprof.timer("fork"):
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    y = x.cos()
                x.sin()
            torch.cuda.current_stream().wait_stream(side)
            y.neg_()
        x.add_(1)
    found = kernels(cap.graph)
    assert found == {"": 2, "step": 2, "step/fork": 2}
    cap.graph.launch()
    torch.cuda.synchronize()


def test_labels_add_no_nodes(torch: Any) -> None:
    x = torch.zeros(1024, device="cuda")
    counts = []
    for named in (False, True):
        with gpuprof.capture(timers="strip") as cap:
            for _ in range(10):
                if named:
                    with gpuprof.timer("s"):
                        x.add_(1)
                else:
                    x.add_(1)
        counts.append(cap.graph.num_nodes)
    assert counts[0] == counts[1] == 10


def test_the_backward_pass_is_in_the_scope_around_it(torch: Any) -> None:
    """Its kernels are captured by torch's own threads."""
    layer = torch.nn.Linear(64, 64, device="cuda")
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    with gpuprof.capture(timers="strip", mode="relaxed") as cap:
        with gpuprof.timer("forward"):
            loss = layer(x).square().sum()
        with gpuprof.timer("backward"):
            torch.autograd.grad(loss, (x, *layer.parameters()))
    found = kernels(cap.graph)
    assert found.keys() == {"forward", "backward"}
    assert found["backward"] >= 3


def test_what_either_of_two_threads_may_have_captured_is_in_what_is_around_both(torch: Any) -> None:
    x, y = torch.zeros(1024, device="cuda"), torch.zeros(1024, device="cuda")
    own, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()

    def add(times: int) -> None:
        with torch.cuda.stream(other):
            for _ in range(times):
                y.add_(1)

    with (
        ThreadPoolExecutor(1) as pool,
        torch.cuda.stream(own),
        gpuprof.capture(own, mode="relaxed", timers="strip") as cap,
    ):
        other.wait_stream(own)
        theirs = [gpuprof.timer(name, stream=other) for name in ("step", "theirs")]
        for scope in theirs:
            pool.submit(scope.__enter__).result()
        with gpuprof.timer("step"), gpuprof.timer("own"):
            x.add_(1)
            pool.submit(add, 2).result()
            own.wait_stream(other)
            x.add_(1)
        for scope in reversed(theirs):
            pool.submit(scope.__exit__, None, None, None).result()
    assert kernels(cap.graph) == {"step": 4}


def test_a_graphed_callable_has_labels(torch: Any) -> None:
    def f(x: Any) -> Any:
        with gpuprof.timer("inside"):
            return x.sin().cos()

    graphed = gpuprof.make_graphed_callable(f, (torch.zeros(1024, device="cuda"),))
    assert isinstance(graphed.graph, gpuprof.CapturedGraph)
    assert kernels(graphed.graph)["inside"] == 2
    graphed(torch.ones(1024, device="cuda"))


def test_numbers_name_the_executable_graph(torch: Any) -> None:
    x = torch.zeros(1024, device="cuda")
    numbers = []
    for _ in range(2):
        with gpuprof.capture(timers="strip") as cap:
            x.add_(1)
            with gpuprof.timer("s"):
                x.mul_(2)
                x.add_(1)
        try:
            found = cap.graph.scopes_by_node_id()
        except InvalidStateError as error:
            pytest.skip(str(error))
        assert [*found.values()] == ["s", "s"]
        assert [number & 0xFFFFFFFF for number in found] == [1, 2]
        (graph,) = {number >> 32 for number in found}
        numbers.append(graph)
        assert cap.graph.kernel_annotations() == {n: [{"scope": "s"}] for n in found}
    assert numbers[0] != numbers[1]
