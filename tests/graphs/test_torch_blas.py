"""Captures through torch make its cuBLAS handle before, which a capture would not allow."""

from __future__ import annotations

import threading

import pytest

from gpuprof import _core
from gpuprof._frameworks import torch_capture
from gpuprof._frameworks.torch_capture import TorchCapture
from tests.support.captures import on_another_thread
from tests.support.stand_in_torch import World, install


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(torch_capture, "_own_streams", threading.local())
    return install(monkeypatch)


def test_a_body_may_be_the_first_to_use_cublas(world: World) -> None:
    capture = TorchCapture(None, "thread_local")
    handle = capture.begin()
    assert world.torch.cuda.current_stream().cuda_stream == handle
    assert handle not in world.blas_streams  # its workspace is to come from the graph's memory
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


def test_a_capture_does_without_a_cublas_handle_that_cannot_be_made(world: World) -> None:
    world.fail("current_blas_handle")
    capture = TorchCapture(None, "thread_local")
    handle = capture.begin()
    assert world.torch.cuda.current_stream().cuda_stream == handle
    capture.end()
