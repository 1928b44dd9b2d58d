"""Captures by a torch that gives less of its graphs: they work, and say what is lacking."""

from __future__ import annotations

import pytest

from tests.support.torch_blocks import Run

# What torch 2.7 gives of a graph is its replay alone.
REFUSED = """
def refused(call, *words):
    with raises(errors.InvalidStateError) as caught:
        call()
    for word in (world.version, *words):
        assert word in str(caught.value)
"""


@pytest.fixture
def torch_version() -> str:
    return "2.7.1"


@pytest.fixture
def older(in_torch: Run) -> Run:
    return lambda body: in_torch(REFUSED + body)


def test_an_older_torch_captures_and_replays(in_torch: Run) -> None:
    in_torch("""
with gpuprof.capture(name="step", upload=True) as cap:
    with gpuprof.timer("part"):
        launch("add_k")
check_as_before(but_pools=True)
graph = cap.graph
repr(graph), graph.memory, graph._repr_html_()
for _ in range(3):
    graph.launch()
graph.launch(stream)
assert world.replayed_on == [0, 0, 0, stream]
assert graph.num_replays == 4
assert graph.timings()["part"].ms >= 0.001
graph.close()
del cap, graph
check_as_before()
""")


@pytest.mark.parametrize(
    "asked",
    [
        "graph.num_nodes",
        "graph.nodes",
        "graph.edges",
        "graph.kernel_names()",
        "graph.signature()",
        "graph.to_dot()",
        "graph.diff(graph)",
        "graph.update(other)",
        "other.update(graph)",
        "graph.upload()",
    ],
)
def test_of_an_older_torch_it_is_said_what_it_lacks(older: Run, asked: str) -> None:
    older(f"""
with gpuprof.capture() as cap:
    with gpuprof.timer("part"):
        launch("add_k")
with gpuprof.capture(stream) as driven:
    with gpuprof.timer("part"):
        launch("add_k", stream)
graph, other = cap.graph, driven.graph
for _ in range(2):
    graph.launch()
    refused(lambda: {asked}, "keep_graph", "2.8")
graph.launch()
""")


@pytest.mark.parametrize(
    ("torch_version", "word"), [("2.7.1", "keep_graph"), ("2.8.0", "executable")]
)
def test_an_older_torch_cannot_collect_and_says_so_at_the_begin(older: Run, word: str) -> None:
    older(f"""
refused(lambda: gpuprof.capture(timers="collect").__enter__(), {word!r})
check_as_before()
with gpuprof.capture(stream, timers="collect") as cap:
    launch("add_k", stream)
check_works_again()
""")


@pytest.mark.parametrize("torch_version", ["2.8.0"])
def test_of_a_torch_that_hides_the_executable_graph_the_other_is_seen(
    older: Run,
) -> None:
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
