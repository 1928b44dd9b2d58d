"""Device scalars as operands of torch, CuPy and Numba, and in graphs that those captured."""

from __future__ import annotations

import pytest

import gpuprof
from tests.gpu.support.frameworks import cupy_or_skip, numba_cuda_or_skip, torch_or_skip
from tests.gpu.support.kernels import MILLISECOND, Spin, device

REPLAYS = 1_000
DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8"),
    *("float16", "bfloat16", "float32", "float64"),
]


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != "bfloat16"])
def test_torch_uses_the_array_interface_without_a_copy(dtype: str) -> None:
    torch = torch_or_skip()
    scalar = gpuprof.DeviceScalar(1, dtype)
    tensor = torch.as_tensor(scalar, device="cuda")
    assert (tensor.data_ptr(), tensor.dtype) == (scalar.ptr, getattr(torch, dtype))
    assert tensor.shape == ()
    assert tensor.item() == 1
    scalar.update(0)
    assert tensor.item() == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_uses_dlpack_without_a_copy(dtype: str) -> None:
    torch = torch_or_skip()
    scalar = gpuprof.DeviceScalar(1, dtype)
    tensor = torch.from_dlpack(scalar)
    assert (tensor.data_ptr(), tensor.dtype) == (scalar.ptr, getattr(torch, dtype))
    scalar.update(0)
    assert tensor.item() == 0
    scalar.update(1)
    scalar.close()
    assert tensor.item() == 1  # it keeps the memory


def test_torchs_stream_waits_for_an_update_on_another() -> None:
    torch = torch_or_skip()
    stream = device().stream()
    scalar = gpuprof.DeviceScalar(1, "int32", stream)
    Spin(device(), stream, 20 * MILLISECOND).launch()
    scalar.update(2)
    with torch.cuda.stream(torch.cuda.Stream()):
        doubled = torch.from_dlpack(scalar) * 2
        assert doubled.item() == 4


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != "bfloat16"])
@pytest.mark.parametrize("way", ["asarray", "from_dlpack"])
def test_cupy_uses_a_scalar_without_a_copy(dtype: str, way: str) -> None:
    cupy = cupy_or_skip()
    scalar = gpuprof.DeviceScalar(1, dtype)
    array = getattr(cupy, way)(scalar)
    assert (array.data.ptr, array.dtype.name, array.shape) == (scalar.ptr, dtype, ())
    assert array.get() == 1
    scalar.update(0)
    assert array.get() == 0


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_numba_uses_a_scalar_without_a_copy(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = numba_cuda_or_skip(monkeypatch)
    scalar = gpuprof.DeviceScalar(1, dtype)
    array = cuda.as_cuda_array(scalar)
    assert array.__cuda_array_interface__["data"][0] == scalar.ptr
    assert array.copy_to_host()[()] == 1
    scalar.update(7)
    device().synchronize()
    assert array.copy_to_host()[()] == 7


def test_replays_of_a_graph_of_torch_see_each_new_value() -> None:
    torch = torch_or_skip()
    scalar = gpuprof.DeviceScalar(0, "float64")
    factor = torch.from_dlpack(scalar)
    values = torch.arange(64, dtype=torch.float64, device="cuda")
    result = torch.empty_like(values)
    torch.mul(values, factor, out=result)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(values, factor, out=result)
    for step in range(REPLAYS):
        scalar.update(step)
        graph.replay()
        assert torch.equal(result, values * step)


@pytest.mark.parametrize("way", ["functions", "keep_alive"])
def test_a_launch_sees_an_update_on_another_stream(way: str) -> None:
    torch = torch_or_skip()
    side = torch.cuda.Stream()
    scalar = gpuprof.DeviceScalar(0, "float64", stream=side)
    factor = torch.from_dlpack(scalar)
    values = torch.arange(64, dtype=torch.float64, device="cuda")
    result = torch.empty_like(values)
    torch.mul(values, factor, out=result)
    torch.cuda.synchronize()
    if way == "functions":
        with torch.cuda.stream(side):
            gpuprof.begin_capture(side)
            torch.mul(values, factor, out=result)
            graph = gpuprof.end_capture(side)
    else:
        with gpuprof.capture(keep_alive=[scalar]) as cap:
            torch.mul(values, factor, out=result)
        graph = cap.graph
    slow = Spin(device(), side.cuda_stream, 20 * MILLISECOND)
    for value in (42, 43, 44):
        slow.launch()
        scalar.update(value)
        graph.launch()  # on torch's current stream
        torch.cuda.current_stream().synchronize()
        assert torch.equal(result, values * value)
    graph.close()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_replays_of_a_graph_of_cupy_see_each_new_value(dtype: str) -> None:
    cupy = cupy_or_skip()
    stream = cupy.cuda.Stream(non_blocking=True)
    scalar = gpuprof.DeviceScalar(0, dtype, stream)
    with stream:
        operand = cupy.asarray(scalar)
        total = cupy.zeros((), dtype)
        cupy.add(total, operand, out=total)
        stream.begin_capture()
        cupy.add(total, operand, out=total)
        graph = stream.end_capture()
        total.fill(0)
        for step in range(REPLAYS):
            scalar.update(step)
            graph.launch(stream)
        assert int(total.get()) == sum(range(REPLAYS))
        assert scalar.get() == REPLAYS - 1


def test_an_update_is_refused_in_a_capture_of_torch_and_leaves_it_whole() -> None:
    torch = torch_or_skip()
    scalar = gpuprof.DeviceScalar(3, "float32")
    operand = torch.as_tensor(scalar, device="cuda")
    total = torch.zeros((), device="cuda")
    total += operand
    total.zero_()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total += operand
        with pytest.raises(gpuprof.errors.InvalidStateError, match="record=True"):
            scalar.update(4)
    for _ in range(3):
        graph.replay()
    assert total.item() == 9


def test_making_and_reading_scalars_breaks_no_capture_in_global_mode() -> None:
    torch = torch_or_skip()
    stream = device().stream()
    total = torch.ones(4, device="cuda")
    total += 1
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="global"):
        total += 1
        scalars = [gpuprof.DeviceScalar(index, "int64", stream) for index in range(600)]
        scalars[1].update(-1)
        assert [scalar.get() for scalar in scalars[:3]] == [0, -1, 2]
        scalars.clear()
        total += 1
    graph.replay()
    assert total.tolist() == [4.0] * 4
