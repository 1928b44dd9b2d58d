"""P7: every driver failure is one typed exception with call, code and name."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpuprof
from gpuprof.errors import CudaError
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_cuda


@pytest.mark.parametrize(
    ("fault", "call", "code", "name"),
    [
        ("cuEventRecord@1=700", "cuEventRecord", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("cuStreamIsCapturing@1-9=400", "cuStreamIsCapturing", 400, "CUDA_ERROR_INVALID_HANDLE"),
        ("cuEventCreate@1=2", "cuEventCreate", 2, "CUDA_ERROR_OUT_OF_MEMORY"),
    ],
)
def test_a_failing_call_is_named(
    fake_path: Path, fault: str, call: str, code: int, name: str
) -> None:
    out = check_cuda(
        fake_path,
        f"""
        timer = gpuprof.Timer("cuda", stream)
        fake.script({fault!r})
        try:
            timer.record_start()
        except gpuprof.errors.CudaError as error:
            print(error.call, error.code, error.name)
            print(error)
        """,
    )
    first, text = out.splitlines()
    assert first.split() == [call, str(code), name]
    assert text.startswith(f"{call} failed: {name} ({code}): ")


def test_the_drivers_log_is_quoted_where_it_keeps_one(fake: FakeCuda, stream: int) -> None:
    timer = gpuprof.Timer("cuda", stream)
    with fake.faults("cuEventRecord@1=400"), pytest.raises(CudaError) as caught:
        timer.record_start()
    assert "the driver's log says" in caught.value.detail
    assert "from cuEventRecord" in caught.value.detail
    timer.close()


def test_a_capture_error_has_a_class_of_its_own(fake: FakeCuda) -> None:
    blocking = fake.stream_create(0)
    fake.begin_capture(blocking, 0)
    timer = gpuprof.Timer("cuda", 0)
    with pytest.raises(gpuprof.errors.CaptureImplicitError) as caught:
        timer.record_start()
    assert (caught.value.code, caught.value.call) == (906, "cuStreamIsCapturing")
    fake.graph_destroy(fake.end_capture(blocking))
    fake.stream_destroy(blocking)
    timer.close()
