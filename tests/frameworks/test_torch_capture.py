"""Captures by torch's own means: on which streams, with its cuBLAS handle, and the graphs."""

from __future__ import annotations

import sys
import threading
import types
from typing import Any

import pytest

from gpuprof import _core
from gpuprof._frameworks.torch_capture import TorchCapture, wants
from gpuprof._frameworks.torch_graph import from_torch
from gpuprof.errors import InvalidStateError
from tests.support.captures import on_another_thread
from tests.support.stand_in_torch import World, install


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("gpuprof._frameworks.cupy._own_streams", threading.local())
    return install(monkeypatch)


@pytest.mark.parametrize("can_be_made", [True, False])
def test_a_body_may_be_the_first_to_use_cublas(world: World, can_be_made: bool) -> None:
    if not can_be_made:
        world.fail("current_blas_handle")
    capture = TorchCapture(None, "thread_local")
    handle = capture.begin()
    assert world.torch.cuda.current_stream().cuda_stream == handle
    assert handle not in world.blas_streams  # its workspace is to come from the graph's memory
    if can_be_made:
        world.torch.cuda.current_blas_handle()
    capture.end()


def test_each_thread_that_captures_has_its_cublas_handle_before(world: World) -> None:
    def capture() -> None:
        one = TorchCapture(None, "thread_local")
        one.begin()
        world.torch.cuda.current_blas_handle()
        one.end()

    capture()
    on_another_thread(capture)


def test_the_cublas_handle_is_made_so_that_it_breaks_no_other_capture(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes, made_in = [0], []

    def exchange(mode: int) -> int:
        modes.append(mode)
        return modes[-2]

    monkeypatch.setattr(_core, "_exchange_capture_mode", exchange)
    world.torch.cuda.current_blas_handle = lambda: made_in.append(modes[-1])
    capture = TorchCapture(None, "thread_local")
    capture.begin()
    assert (made_in, modes[-1]) == ([2], 0)
    capture.end()


# Which streams are torch's, whoever names them


def test_torch_is_asked_only_where_it_is_in_use(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = world.torch.cuda
    stream = cuda.Stream()
    assert wants(None)
    assert wants(stream)
    assert not wants(stream.cuda_stream)
    world.current = stream
    assert wants(stream.cuda_stream)
    assert not wants(stream.cuda_stream + 1)
    assert not wants(0)
    assert not wants(True)
    cuda.is_initialized = lambda: False
    assert not wants(None)
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    assert not wants(None)
    monkeypatch.delitem(sys.modules, "torch")
    assert not wants(None)
    assert "torch" not in sys.modules


class Foreign:
    """A stream of another library's, by the protocol that they share."""

    def __init__(self, handle: object) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, object]:
        return (0, self.handle)


class Raw:
    """One that only has its address."""

    def __init__(self, handle: int) -> None:
        self.ptr = handle


@pytest.mark.parametrize("kind", [Foreign, Raw])
def test_another_librarys_object_for_torchs_current_stream_is_torchs(
    world: World, kind: type[Foreign | Raw]
) -> None:
    world.current = stream = world.torch.cuda.Stream()
    assert wants(kind(stream.cuda_stream))
    assert not wants(kind(stream.cuda_stream + 1))
    capture = TorchCapture(kind(stream.cuda_stream), "thread_local")
    assert capture.begin() == stream.cuda_stream
    capture.abort()
    world.current = world.torch.cuda.default_stream()
    assert not wants(kind(0))
    assert not wants(kind(stream.cuda_stream))


class Broken:
    @property
    def __cuda_stream__(self) -> object:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "odd", [object(), "stream", 1.5, -1, 1 << 64, Foreign("x"), Foreign(-1), Broken()]
)
def test_what_is_no_stream_is_not_torchs(world: World, odd: object) -> None:
    world.current = world.torch.cuda.Stream()
    assert not wants(odd)


@pytest.mark.parametrize("given", ["handle", "object"])
def test_the_current_stream_of_another_device_is_captured_there(world: World, given: str) -> None:
    cuda = world.torch.cuda
    other = cuda.Stream()
    cuda.device_count = lambda: 2
    cuda.current_stream = lambda device=None: other if device == 1 else world.current
    raw = world.torch._C._cuda_getCurrentRawStream
    world.torch._C._cuda_getCurrentRawStream = lambda device: (
        other.cuda_stream if device == 1 else raw(device)
    )
    stream = other.cuda_stream if given == "handle" else Foreign(other.cuda_stream)
    assert wants(stream)
    capture = TorchCapture(stream, "thread_local")
    assert capture.begin() == other.cuda_stream
    capture.abort()


# What its graphs offer, and when torch has to launch them itself


def captured(world: World) -> TorchCapture:
    capture = TorchCapture(None, "thread_local")
    capture.begin()
    capture.end()
    return capture


def test_what_was_learnt_of_a_graph_stays(world: World) -> None:
    capture = captured(world)
    world.draws = True
    capture.probe.replay(capture.graph)
    world.draws = False
    capture.probe.replay(capture.graph)
    assert capture.probe.uses_random is True


@pytest.mark.parametrize("version", ["2.12.0", "2.14.0a0+git", "unknown"])
def test_a_torch_whose_generators_join_by_themselves_always_replays(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    world = install(monkeypatch)
    world.torch.__version__ = version
    capture = captured(world)
    capture.probe.replay(capture.graph)
    assert capture.probe.uses_random is None


class Busy:
    """A generator while a capture is open."""

    def get_offset(self) -> int:
        message = "Offset increment outside graph capture encountered unexpectedly."
        raise RuntimeError(message)


def test_a_generator_that_cannot_be_asked_teaches_nothing(world: World) -> None:
    capture = captured(world)
    world.torch.cuda.default_generators = (Busy(),)
    capture.probe.replay(capture.graph)
    assert capture.probe.uses_random is None


@pytest.mark.parametrize("on", ["current", "other", "default"])
def test_a_replay_is_launched_on_the_stream_asked_for(world: World, on: str) -> None:
    capture = captured(world)
    stream = world.current = world.torch.cuda.Stream()
    wanted = {"current": stream.cuda_stream, "other": 0x77, "default": 0}[on]
    capture.probe.replay(capture.graph, wanted)
    assert world.replayed_on == [wanted]
    assert world.current == stream


def make_graph(world: World, **options: bool) -> Any:
    graph = world.torch.cuda.CUDAGraph(**options)
    with world.torch.cuda.stream(world.torch.cuda.Stream()):
        graph.capture_begin(pool=(0, 9), capture_error_mode="global")
        graph.capture_end()
    return graph


def test_a_kept_graph_of_torchs_is_instantiated_and_whole(world: World) -> None:
    graph = make_graph(world, keep_graph=True)
    parts = from_torch(graph)
    assert (parts.graph, parts.exec, parts.lacks) == (0xA0, 0xE0, "")
    assert parts.keep is graph
    assert parts.probe.uses_random is None


def test_a_graph_that_torch_did_not_keep_says_so(world: World) -> None:
    parts = from_torch(make_graph(world))
    assert (parts.graph, parts.exec) == (None, 0xE0)
    assert "keep_graph=True" in parts.lacks


def test_a_foreign_graph_is_always_launched_by_torch(world: World) -> None:
    # Its maker may have registered any generator with it.
    graph = make_graph(world, keep_graph=True)
    probe = from_torch(graph).probe
    probe.replay(graph)
    assert probe.uses_random is None


def test_a_graph_of_a_torch_that_keeps_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = install(monkeypatch, "2.7.1")
    with pytest.raises(InvalidStateError, match=r"torch 2\.7\.1 .*need torch 2\.8 or later"):
        from_torch(make_graph(world))


@pytest.mark.parametrize("reset", [False, True])
def test_a_graph_without_a_capture_is_refused(world: World, reset: bool) -> None:
    graph = make_graph(world) if reset else world.torch.cuda.CUDAGraph()
    graph.reset()
    with pytest.raises(InvalidStateError, match="graph: it has captured nothing yet, or was reset"):
        from_torch(graph)


@pytest.mark.parametrize("other", [None, 1, "graph"])
def test_anything_else_is_a_type_error(world: World, other: object) -> None:
    with pytest.raises(TypeError, match=r"graph: expected a torch\.cuda\.CUDAGraph, got"):
        from_torch(other)


def test_without_torch_no_graph_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(TypeError, match="graph: expected"):
        from_torch(object())
