"""`CapturedGraph.update` on the fake driver: what changes hands, and what is refused."""

from __future__ import annotations

import weakref

import pytest

import gpuprof
from gpuprof import errors
from tests.fake_driver.control import FakeCuda
from tests.support.captures import US, Buffer, captured
from tests.support.held import drain_kept
from tests.support.torch_blocks import Run

MS = 1_000_000


def keeping(
    fake: FakeCuda, stream: int, **options: object
) -> tuple[gpuprof.CapturedGraph, weakref.ref[Buffer]]:
    """Capture one kernel with a buffer that only the graph keeps."""
    buffer = Buffer()
    return captured(fake, stream, keep_alive=[buffer], **options), weakref.ref(buffer)


def test_an_update_takes_parameters_and_what_the_other_keeps(fake: FakeCuda, stream: int) -> None:
    buffer = Buffer()
    alive = weakref.ref(buffer)
    first = captured(fake, stream, "add_k", ns=US)
    second = captured(fake, stream, "add_k", ns=5 * MS, keep_alive=[buffer])
    del buffer
    instantiated = fake.calls("cuGraphInstantiateWithFlags")
    first.update(second)
    second.close()
    assert alive() is not None
    before = fake.now()
    first.launch()
    fake.stream_synchronize(stream)
    assert fake.now() - before == pytest.approx(5 * MS, rel=0.1)
    assert fake.calls("cuGraphInstantiateWithFlags") == instantiated
    assert first.num_nodes == 1
    first.close()
    drain_kept()
    assert alive() is None


def test_an_update_that_does_not_fit_says_why_and_changes_nothing(
    fake: FakeCuda, stream: int
) -> None:
    with captured(fake, stream, "a", ns=MS) as graph, captured(fake, stream, "a", "b") as longer:
        with pytest.raises(errors.GraphUpdateError, match=r"TOPOLOGY|topology"):
            graph.update(longer)
        with pytest.raises(TypeError, match="other"):
            graph.update(object())  # type: ignore[arg-type]
        before = fake.now()
        graph.launch()
        fake.stream_synchronize(stream)
        assert fake.now() - before == pytest.approx(MS, rel=0.1)
        graph.update(graph)


def test_over_a_chain_of_updates_the_last_graph_keeps_what_the_first_had(
    fake: FakeCuda, stream: int
) -> None:
    first, alive = keeping(fake, stream)
    second, third = captured(fake, stream), captured(fake, stream)
    second.update(first)
    third.update(second)
    first.close()
    second.close()
    fake.stream_synchronize(stream)
    drain_kept()
    assert alive() is not None
    third.close()
    drain_kept()
    assert alive() is None


def test_what_earlier_graphs_kept_goes_when_the_launches_before_the_update_are_over(
    fake: FakeCuda, stream: int
) -> None:
    with captured(fake, stream, ns=MS) as graph:
        others = [keeping(fake, stream, ns=MS) for _ in range(3)]
        for number, (other, alive) in enumerate(others):
            graph.update(other)
            other.close()
            drain_kept()
            assert alive() is not None
            before = others[number - 1][1] if number else None
            if before is not None:
                assert before() is not None, "a launch still needs it"
                fake.stream_synchronize(stream)
                gpuprof.flush()
                assert before() is None
            graph.launch()
        fake.stream_synchronize(stream)


def test_a_refused_update_keeps_what_was_kept(fake: FakeCuda, stream: int) -> None:
    graph, alive = keeping(fake, stream)
    with captured(fake, stream, "a", "b") as longer, pytest.raises(errors.GraphUpdateError):
        graph.update(longer)
    fake.stream_synchronize(stream)
    drain_kept()
    assert alive() is not None
    graph.close()
    drain_kept()
    assert alive() is None


def test_the_log_of_a_refused_update_is_not_the_next_errors(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream) as graph, captured(fake, stream, "a", "b") as longer:
        with pytest.raises(errors.GraphUpdateError):
            graph.update(longer)
        with fake.faults("cuGraphLaunch@1=2"), pytest.raises(errors.CudaError) as raised:
            graph.launch()
        assert "cuGraphExecUpdate" not in str(raised.value)


def test_an_update_takes_over_the_pool(fake: FakeCuda, stream: int) -> None:
    old, new = gpuprof.CapturePool(), gpuprof.CapturePool()
    new.record_buffer(Buffer())
    with captured(fake, stream, pool=old) as graph:
        with captured(fake, stream, pool=new) as other:
            graph.update(other)
        assert graph.pool is new
        assert graph.pool_buffer_count == 1
        old.clear_buffers()
        graph.launch()  # without a warning
        new.clear_buffers()
        with pytest.warns(RuntimeWarning, match="clear_buffers"):
            graph.launch()
        with captured(fake, stream) as bare:
            graph.update(bare)
        assert not graph.has_pool


def test_a_closed_graph_is_not_updated_from_nor_to(fake: FakeCuda, stream: int) -> None:
    closed = captured(fake, stream)
    closed.close()
    with captured(fake, stream) as graph:
        for call in (lambda: graph.update(closed), lambda: closed.update(graph)):
            with pytest.raises(errors.InvalidStateError, match="closed"):
                call()


def test_an_update_keeps_torchs_graph_alive(in_torch: Run) -> None:
    in_torch("""
import gc, weakref
with gpuprof.capture(stream) as cap:
    launch("add_k", stream)
graph = cap.graph
with gpuprof.capture() as cap:
    launch("add_k")
torchs = weakref.ref(cap.graph._by_torch.graph)
graph.update(cap.graph)
cap.graph.close()
del cap
gc.collect()
assert torchs() is not None
graph.launch(stream)
assert graph.kernel_names() == ["add_k"]
fake.stream_synchronize(stream)
graph.close()
gc.collect()
assert torchs() is None
""")


# A graph by torch whose launches move the generator by `increment`, and one by the driver alone.
DRAWING = """
world.draws = True

def captured(increment, **options):
    world.increment = increment
    with gpuprof.capture(**options) as cap:
        launch("dropout_k")
    return cap.graph

def captured_by_the_driver():
    with gpuprof.capture(stream) as cap:
        launch("dropout_k", stream)
    return cap.graph

def drawn_by(graph):
    before = world.generator.get_offset()
    graph.launch(stream)
    return world.generator.get_offset() - before
"""


@pytest.fixture
def drawing(in_torch: Run) -> Run:
    return lambda body: in_torch(DRAWING + body)


@pytest.mark.parametrize("first", ["captured(4)", "captured_by_the_driver()"])
@pytest.mark.parametrize("torch_version", ["2.11.0", "2.13.0"])
def test_launches_draw_as_many_numbers_as_those_of_the_graph_of_the_update(
    drawing: Run, first: str
) -> None:
    drawing(f"""
for launched in ("neither", "this", "other", "both"):
    print(launched)
    graph, other = {first}, captured(16)
    if launched in ("this", "both"):
        graph.launch(stream)
    if launched in ("other", "both"):
        other.launch(stream)
    graph.update(other)
    other.close()
    assert [drawn_by(graph) for _ in range(3)] == [16] * 3
""")


def test_a_graph_that_turns_out_to_draw_nothing_is_launched_by_the_driver_after_an_update(
    drawing: Run,
) -> None:
    drawing("""
graph = captured(4)
assert drawn_by(graph) == 4
world.draws = False
graph.update(captured(0))
replays = len(world.replayed_on)
for _ in range(3):
    assert drawn_by(graph) == 0
assert len(world.replayed_on) == replays + 1
""")


def test_an_update_from_a_graph_of_the_driver_ends_the_launches_by_torch(drawing: Run) -> None:
    drawing("""
for known in (True, False):
    print(known)
    graph = captured(4)
    if known:
        graph.launch(stream)
    graph.update(captured(16))
    graph.update(captured_by_the_driver())
    assert drawn_by(graph) == 0
""")


def test_over_a_chain_of_updates_each_launch_draws_what_its_last_graph_does(
    drawing: Run,
) -> None:
    drawing("""
graph, second, third = captured(4), captured(8), captured(16)
second.update(third)
graph.update(second)
assert drawn_by(graph) == drawn_by(second) == 16
graph.update(captured(32))
assert [drawn_by(each) for each in (graph, second, third)] == [32, 16, 16]
""")


def test_a_graph_that_another_one_is_launched_through_is_not_updated(
    drawing: Run,
) -> None:
    drawing("""
graph, other = captured(4), captured(16)
graph.update(other)
for newer in (captured(8), captured_by_the_driver()):
    with raises(errors.GraphUpdateError, match="launched through it"):
        other.update(newer)
graph.close()
other.update(newer)
""")


def test_collected_timers_and_launches_by_torch_are_refused_together(drawing: Run) -> None:
    drawing("""
def timed():
    with gpuprof.capture(timers="collect") as cap, gpuprof.timer("step"):
        launch("dropout_k")
    return cap.graph

graph, other = timed(), timed()
with raises(errors.GraphUpdateError, match="collect"):
    graph.update(other)
world.draws = False
other.launch(stream)
graph.update(other)
fake.stream_synchronize(stream)
gpuprof.flush()
""")
