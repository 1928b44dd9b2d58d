"""Graphs on the stream of a second GPU, while the first one is the current device."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import gpuprof
from tests.gpu.support.frameworks import torch_or_skip


@pytest.fixture
def torch() -> Any:
    module = torch_or_skip()
    if module.cuda.device_count() < 2:
        pytest.skip("there is one GPU only")
    module.zeros(1, device="cuda:1")
    module.cuda.set_device(0)
    return module


@pytest.mark.parametrize("backend", ["driver", "torch"])
def test_a_graph_is_captured_replayed_and_timed_on_the_second_gpu(
    torch: Any, backend: Literal["driver", "torch"]
) -> None:
    data = torch.zeros(1 << 20, device="cuda:1")
    stream = torch.cuda.Stream(device=1)
    torch.cuda.synchronize(1)
    with torch.cuda.stream(stream), gpuprof.capture(stream, backend=backend, name="far") as cap:
        with gpuprof.timer("add"):
            data.add_(1)
    assert torch.cuda.current_device() == 0
    graph = cap.graph
    assert graph.device == 1
    for _ in range(3):
        graph.launch(stream)
    with torch.cuda.stream(stream):
        graph.launch()
    torch.cuda.synchronize(1)
    assert data.eq(4).all().item()
    assert graph.timings()["add"].ms > 0
    assert torch.cuda.current_device() == 0
    graph.upload(stream)
    assert "device 1" in repr(graph)
    graph.close()


def test_a_number_on_the_second_gpu_is_read_by_replays_there(torch: Any) -> None:
    stream = torch.cuda.Stream(device=1)
    scalar = gpuprof.DeviceScalar(2.0, "float32", stream)
    factor = torch.from_dlpack(scalar)
    assert factor.device == torch.device("cuda:1")
    values = torch.arange(64.0, device="cuda:1")
    result = torch.empty_like(values)
    torch.cuda.synchronize(1)
    with torch.cuda.stream(stream), gpuprof.capture(stream) as cap:
        torch.mul(values, factor, out=result)
    for step in (3.0, 5.0):
        scalar.update(step, stream)
        cap.graph.launch(stream)
        torch.cuda.synchronize(1)
        assert torch.equal(result, values * step)
    cap.graph.close()


def test_a_capture_on_each_gpu_at_once(torch: Any) -> None:
    streams = [torch.cuda.Stream(device=index) for index in (0, 1)]
    data = [torch.zeros(64, device=f"cuda:{index}") for index in (0, 1)]
    torch.cuda.synchronize()
    with (
        gpuprof.capture(streams[0], backend="driver") as near,
        gpuprof.capture(streams[1], backend="driver") as far,
    ):
        for stream, values in zip(streams, data, strict=True):
            with torch.cuda.stream(stream):
                values.add_(1)
    for cap, stream in ((near, streams[0]), (far, streams[1])):
        cap.graph.launch(stream)
        stream.synchronize()
    assert [values.eq(1).all().item() for values in data] == [True, True]
    assert [near.graph.device, far.graph.device] == [0, 1]
    near.graph.close()
    far.graph.close()
