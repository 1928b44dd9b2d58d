"""Which streams are torch's, whoever names them."""

from __future__ import annotations

import sys
import types

import pytest

from gpuprof._frameworks.torch_capture import TorchCapture, wants
from tests.support.stand_in_torch import World, install


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return install(monkeypatch)


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
