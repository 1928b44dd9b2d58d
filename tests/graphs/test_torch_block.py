"""`gpuprof.capture` on torch's streams, with a stand-in for torch over the fake driver.

Each test has a process of its own: whatever of torch gpuprof finds, it keeps for good.
"""

from __future__ import annotations

import pytest

from tests.support.torch_blocks import Run

VERSIONS = pytest.mark.parametrize("torch_version", ["2.11.0", "2.12.0", "2.14.0"])


def test_a_block_on_the_default_stream_is_captured_by_torch(in_torch: Run) -> None:
    in_torch("""
with gpuprof.capture(name="step") as cap:
    inside = torch.cuda.current_stream().cuda_stream
    assert cap.stream == inside != 0
    assert gpuprof.is_stream_capturing()
    launch("add_k")
    launch("mul_k")
check_as_before(but_pools=True)
graph = cap.graph
assert [node.name for node in graph.nodes] == ["add_k", "mul_k"]
assert graph.raw_graph and graph.raw_exec
for _ in range(3):
    graph.launch()
assert graph.num_replays == 3
# The first by torch, which showed that nothing draws; the others by gpuprof itself.
assert len(world.replayed_on) == 1
graph.close()
del cap, graph
check_as_before()
""")


def test_a_graph_that_draws_is_always_launched_by_torch(in_torch: Run) -> None:
    in_torch("""
with gpuprof.capture() as cap:
    launch("dropout_k")
world.draws = True
for _ in range(3):
    cap.graph.launch()
assert len(world.replayed_on) == 3
assert world.generator.get_offset() == 12
assert cap.graph.num_replays == 3
""")


def test_a_stream_of_torchs_is_captured_by_torch(in_torch: Run) -> None:
    in_torch("""
for how in ("object", "handle", "current"):
    print(how)
    mine = torch.cuda.Stream()
    if how != "object":
        torch.cuda.set_stream(mine)
    given = dict(object=mine, handle=mine.cuda_stream, current=None)[how]
    with gpuprof.capture(given) as cap:
        assert cap.stream == mine.cuda_stream == torch.cuda.current_stream().cuda_stream
        assert world.routed
        launch("add_k")
    assert not world.routed
    cap.graph.launch()
""")


def test_another_librarys_object_for_torchs_stream_is_captured_by_torch(in_torch: Run) -> None:
    in_torch("""
class Stream:
    def __init__(self, handle):
        self.handle = handle
    def __cuda_stream__(self):
        return (0, self.handle)

mine = torch.cuda.Stream()
torch.cuda.set_stream(mine)
for backend in ("auto", "torch"):
    print(backend)
    with gpuprof.capture(Stream(mine.cuda_stream), backend=backend) as cap:
        assert cap.stream == mine.cuda_stream
        assert world.routed
        launch("add_k")
    world.replayed_on.clear()
    cap.graph.launch()
    assert world.replayed_on == [mine.cuda_stream]
with gpuprof.capture(Stream(stream)) as cap:
    assert not world.routed
    launch("add_k", stream)
""")


def test_what_is_no_stream_is_a_type_error(in_torch: Run) -> None:
    in_torch("""
for odd in (object(), "stream", 1.5, True):
    print(odd)
    with raises(TypeError, match="^stream: expected"):
        gpuprof.capture(odd).__enter__()
    check_as_before()
""")


def test_another_stream_and_another_backend_are_the_drivers(in_torch: Run) -> None:
    in_torch("""
for options in (dict(), dict(backend="driver")):
    with gpuprof.capture(stream, **options) as cap:
        assert not world.routed
        launch("add_k", stream)
    cap.graph.launch(stream)
mine = torch.cuda.Stream()
with gpuprof.capture(mine, backend="driver") as cap:
    assert not world.routed
    launch("add_k", mine.cuda_stream)
with raises(ValueError, match="backend"):
    gpuprof.capture(stream, backend="torch").__enter__()
check_as_before()
""")


@VERSIONS
def test_a_broken_block_names_the_refused_call_and_leaves_torch_as_it_was(
    in_torch: Run,
) -> None:
    in_torch("""
state = world.generator.state
with raises(errors.CaptureInvalidatedError, match=r"\\.item\\(\\)") as caught:
    with gpuprof.capture(name="decode") as cap:
        launch("add_k")
        fake.call("cuStreamSynchronize", cap.stream, expect=None)
error = caught.value
found = (error.first_refused, error.capture, error.mode)
assert found == ("cuStreamSynchronize", "decode", "thread_local")
del caught, error
check_as_before()
assert world.generator.state is state  # graphs captured earlier go on with it
world.generator.draw()
check_works_again()
""")


@VERSIONS
def test_a_lost_fork_is_an_error_and_leaves_torch_as_it_was(in_torch: Run) -> None:
    in_torch("""
with raises(errors.CaptureUnjoinedError, match="wait_stream"), gpuprof.capture() as cap:
    fake.fork(cap.stream, stream)
    launch("add_k", stream)
check_as_before(but_pools=world.version == "2.12.0")
world.generator.draw()
check_works_again()
""")


@VERSIONS
@pytest.mark.parametrize("first", ["pass", "fake.fork(cap.stream, stream); launch('k', stream)"])
def test_the_bodys_exception_passes_and_leaves_torch_as_it_was(in_torch: Run, first: str) -> None:
    in_torch(f"""
error = KeyError("the body's")
with raises(KeyError) as caught, gpuprof.capture() as cap:
    launch("add_k")
    {first}
    raise error
assert caught.value is error
assert not hasattr(error, "__notes__")
del caught
check_as_before()
check_works_again()
""")


def test_the_bodys_exception_after_a_refusal_gets_a_note(in_torch: Run) -> None:
    in_torch("""
try:
    with gpuprof.capture() as cap:
        launch("add_k")
        fake.call("cuStreamSynchronize", cap.stream, expect=None)
        raise KeyError
except KeyError as error:
    if sys.version_info >= (3, 11):
        assert "cuStreamSynchronize" in error.__notes__[0]
check_as_before()
check_works_again()
""")


def test_debug_names_the_line(in_torch: Run) -> None:
    in_torch("""
with raises(errors.CaptureInvalidatedError) as caught, gpuprof.capture(debug=True) as cap:
    launch("add_k")
    line = sys._getframe().f_lineno + 1
    fake.shared_object.cuStreamSynchronize(__import__("ctypes").c_uint64(cap.stream))
    launch("mul_k")
error = caught.value
assert error.where == f"<string>:{line} in <module>", error.where
assert error.first_refused == "cuStreamSynchronize"
assert (error.num_nodes, error.last_kernel) == (1, "add_k")
del caught, error
assert sys.gettrace() is None
check_as_before()
check_works_again()
""")


def test_an_empty_block_is_an_error_of_gpuprofs_alone(in_torch: Run) -> None:
    in_torch("""
warnings.simplefilter("error")
with raises(errors.EmptyGraphError), gpuprof.capture():
    pass
import gc
gc.collect()
check_as_before()
with gpuprof.capture(allow_empty=True) as cap:
    pass
assert cap.graph.num_nodes == 0
""")


@pytest.mark.parametrize(
    "step",
    [
        *("Stream", "wait_stream", "set_stream", "graph_pool_handle", "CUDAGraph"),
        *("capture_begin", "after the generator", "driver begin"),
    ],
)
def test_a_begin_that_fails_leaves_everything_as_it_was(in_torch: Run, step: str) -> None:
    in_torch(f"""
world.fail({step!r})
with raises(RuntimeError, match="^{step}$"), gpuprof.capture():
    raise AssertionError
check_as_before()
check_works_again()
""")


def test_a_guard_that_is_dropped_leaves_torch_as_it_was(in_torch: Run) -> None:
    in_torch("""
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    guard = gpuprof.GraphCaptureGuard()
    launch("add_k")
    del guard
assert [warning.category for warning in caught] == [ResourceWarning]
check_as_before()
check_works_again()
""")


@pytest.mark.parametrize("mode", ["thread_local", "global"])
def test_finishing_on_another_thread_is_refused_and_the_capture_goes_on(
    in_torch: Run, mode: str
) -> None:
    in_torch(f"""
from tests.support.captures import on_another_thread
guard = gpuprof.GraphCaptureGuard(mode={mode!r})
launch("add_k")
inside = world.state()
error = on_another_thread(guard.finish)
assert isinstance(error, errors.CaptureWrongThreadError), error
assert str(threading.get_ident()) in str(error)
assert guard.is_open
assert world.state() == inside
launch("mul_k")
assert guard.finish().kernel_names() == ["add_k", "mul_k"]
check_as_before(but_pools=True)
""")


def test_what_a_thread_left_open_when_it_ended_is_put_in_order_by_the_next_capture(
    in_torch: Run,
) -> None:
    in_torch("""
lost = torch.cuda.Stream()
thread = threading.Thread(target=gpuprof.begin_capture, args=(lost,))
thread.start()
thread.join()
world.current = before["current stream"]  # of this thread
check_works_again()
check_as_before(but_pools=True)
""")


def test_an_open_capture_at_exit_ends_the_process_well(in_torch: Run) -> None:
    in_torch("""
gpuprof.begin_capture()
launch("add_k")
""")


def test_captures_of_one_pool_share_torchs(in_torch: Run) -> None:
    in_torch("""
pool = gpuprof.CapturePool()
graphs = []
for _ in range(3):
    with gpuprof.capture(pool=pool) as cap:
        launch("add_k")
    graphs.append(cap.graph)
assert list(world.state()["pools held"].values()) == [3]
for graph in graphs:
    graph.close()
del cap, graph, graphs
check_as_before()
""")


def test_a_graph_of_torchs_is_looked_into_and_launched_by_torch(
    in_torch: Run,
) -> None:
    in_torch("""
graph = torch.cuda.CUDAGraph(keep_graph=True)
mine = torch.cuda.Stream()
with torch.cuda.stream(mine):
    graph.capture_begin(pool=(0, 5), capture_error_mode="global")
    launch("add_k")
    graph.capture_end()
seen = gpuprof.CapturedGraph.from_torch(graph)
assert seen.kernel_names() == ["add_k"]
seen.launch()
seen.launch()
assert world.replayed_on == [0, 0]
seen.close()
graph.replay()
""")


def test_a_block_that_torch_captures_labels_its_nodes(in_torch: Run) -> None:
    in_torch("""
for timers in ("last", "collect", "strip"):
    with gpuprof.timer("around"), gpuprof.capture(timers=timers) as cap:
        launch("a")
        with gpuprof.timer("in"):
            launch("b")
        launch("c")
    kernels = [(node.name, node.scope) for node in cap.graph.nodes if node.type == "kernel"]
    assert kernels == [("a", "around"), ("b", "around/in"), ("c", "around")], kernels
    cap.graph.close()
""")
