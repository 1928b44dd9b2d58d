"""What graphs of torch's offer, and when torch has to launch them itself."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gpuprof._frameworks.torch_capture import TorchCapture
from gpuprof._frameworks.torch_graph import from_torch
from gpuprof.errors import InvalidStateError
from tests.support.stand_in_torch import World, install


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return install(monkeypatch)


def captured(world: World) -> TorchCapture:
    capture = TorchCapture(None, "thread_local")
    capture.begin()
    capture.end()
    return capture


@pytest.mark.parametrize("draws", [False, True])
def test_the_first_replay_shows_whether_a_graph_draws(world: World, draws: bool) -> None:
    capture = captured(world)
    world.draws = draws
    assert capture.probe.uses_random is None
    assert capture.probe.must_use_torch
    capture.probe.replay(capture.graph)
    assert capture.probe.uses_random is draws
    assert capture.probe.must_use_torch is draws


def test_what_was_learnt_of_a_graph_stays(world: World) -> None:
    capture = captured(world)
    world.draws = True
    capture.probe.replay(capture.graph)
    world.draws = False
    capture.probe.replay(capture.graph)
    assert capture.probe.must_use_torch


@pytest.mark.parametrize("version", ["2.12.0", "2.14.0a0+git", "unknown"])
def test_a_torch_whose_generators_join_by_themselves_always_replays(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    world = install(monkeypatch)
    world.torch.__version__ = version
    capture = captured(world)
    capture.probe.replay(capture.graph)
    assert capture.probe.uses_random is None
    assert capture.probe.must_use_torch


def test_a_generator_that_cannot_be_asked_teaches_nothing(world: World) -> None:
    capture = captured(world)
    world.torch.cuda.default_generators = (object(),)
    capture.probe.replay(capture.graph)
    assert capture.probe.uses_random is None
    assert capture.probe.must_use_torch


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
    assert parts.probe.must_use_torch


def test_a_graph_that_torch_did_not_keep_says_so(world: World) -> None:
    parts = from_torch(make_graph(world))
    assert (parts.graph, parts.exec) == (None, 0xE0)
    assert "keep_graph=True" in parts.lacks


def test_a_foreign_graph_is_always_launched_by_torch(world: World) -> None:
    # Its maker may have registered any generator with it.
    graph = make_graph(world, keep_graph=True)
    probe = from_torch(graph).probe
    probe.replay(graph)
    assert probe.must_use_torch


def test_a_graph_of_an_old_torch_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    world = install(monkeypatch, "2.7.1")
    parts = from_torch(make_graph(world))
    assert (parts.graph, parts.exec) == (None, None)
    assert parts.lacks.startswith("torch 2.7.1 has no keep_graph")


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
