"""Captures by a torch that gives less of its graphs: they work, and say what is lacking."""

from __future__ import annotations

import pytest

from tests.support.torch_blocks import Run

REFUSED = """
def refused(call, *words):
    with raises(errors.InvalidStateError) as caught:
        call()
    for word in (world.version, *words):
        assert word in str(caught.value)
"""


@pytest.fixture
def torch_version() -> str:
    return "2.8.0"


@pytest.fixture
def older(in_torch: Run) -> Run:
    return lambda body: in_torch(REFUSED + body)


@pytest.mark.parametrize("torch_version", ["2.7.1"])
def test_a_torch_that_keeps_no_graphs_is_refused_and_the_driver_is_not(older: Run) -> None:
    older("""
refused(lambda: gpuprof.capture().__enter__(), "2.8")
check_as_before()
with gpuprof.capture(stream, backend="driver") as cap:
    launch("add_k", stream)
cap.graph.launch(stream)
""")


def test_it_cannot_collect_and_says_so_at_the_begin(older: Run) -> None:
    older("""
refused(lambda: gpuprof.capture(timers="collect").__enter__(), "executable")
check_as_before()
with gpuprof.capture(stream, timers="collect") as cap:
    launch("add_k", stream)
check_works_again()
""")


def test_of_a_torch_that_hides_the_executable_graph_the_other_is_seen(older: Run) -> None:
    older("""
with gpuprof.capture(upload=True) as cap:
    with gpuprof.timer("part"):
        launch("add_k")
graph = cap.graph
assert graph.kernel_names() == ["add_k"]
graph.launch()
graph.launch()
assert len(world.replayed_on) == 2
assert list(graph.timings()) == ["part"]
with gpuprof.capture(stream) as driven:
    with gpuprof.timer("part"):
        launch("add_k", stream)
refused(lambda: graph.update(driven.graph), "executable")
refused(graph.upload, "executable")
graph.launch()
""")
