"""`CapturedGraph.update` on the fake driver: what changes hands, and what is refused."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest

import gpuprof
from gpuprof import _core, errors
from tests.captures import US, Buffer, captured
from tests.fake_driver.control import FakeCuda
from tests.torch_blocks import check

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
    _core._drain_kept()
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
    _core._drain_kept()
    assert alive() is not None
    third.close()
    _core._drain_kept()
    assert alive() is None


def test_what_earlier_graphs_kept_goes_when_the_launches_before_the_update_are_over(
    fake: FakeCuda, stream: int
) -> None:
    with captured(fake, stream, ns=MS) as graph:
        others = [keeping(fake, stream, ns=MS) for _ in range(3)]
        for number, (other, alive) in enumerate(others):
            graph.update(other)
            other.close()
            _core._drain_kept()
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
    _core._drain_kept()
    assert alive() is not None
    graph.close()
    _core._drain_kept()
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


def test_an_update_keeps_torchs_graph_alive(fake_path: Path) -> None:
    check(
        fake_path,
        """
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
""",
    )


@pytest.mark.parametrize(
    ("draws", "kernel", "refused"),
    [(None, "add_k", ""), (None, "dropout_k", "may draw"), (True, "add_k", "it draws")],
)
def test_numbers_that_only_torch_draws_anew_are_not_taken_over(
    fake_path: Path, draws: bool | None, kernel: str, refused: str
) -> None:
    check(
        fake_path,
        f"""
with gpuprof.capture(stream) as cap:
    launch("add_k", stream)
graph = cap.graph
with gpuprof.capture() as cap:
    launch({kernel!r})
if {draws!r}:
    world.draws = True
    cap.graph.launch()
try:
    graph.update(cap.graph)
except errors.GraphUpdateError as error:
    assert {refused!r} and {refused!r} in str(error), error
else:
    assert not {refused!r}
graph.launch(stream)
""",
    )


def test_what_draws_is_updated_from_what_draws_and_stays_torchs_to_launch(fake_path: Path) -> None:
    check(
        fake_path,
        """
graphs = []
for _ in range(2):
    with gpuprof.capture() as cap:
        launch("dropout_k")
    graphs.append(cap.graph)
world.draws = True
graphs[0].launch()
graphs[0].update(graphs[1])
graphs[0].launch()
assert len(world.replayed_on) == 2
""",
    )
