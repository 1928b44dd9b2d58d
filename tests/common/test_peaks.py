"""The peaks of a GPU, as they are given."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from gpuprof._common import peaks
from gpuprof.results import Peaks

PEAKS = Peaks({"bfloat16": 7e14, "float32": 5e13}, 4e12)


@pytest.fixture(autouse=True)
def none_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "_given", {})


def test_given_peaks_count_until_they_are_forgotten() -> None:
    gpuprof.set_peaks({"bf16": 1e15}, 4.8e12)
    gpuprof.set_peaks(bytes_per_s=1e12, device=1)
    found = gpuprof.device_peaks(0)
    assert found is not None
    assert (found.flops, found.bytes_per_s) == ({"bfloat16": 1e15}, 4.8e12)
    second = gpuprof.device_peaks(1)
    assert second is not None
    assert second.bytes_per_s == 1e12
    gpuprof.set_peaks()
    gpuprof.set_peaks(device=1)
    assert gpuprof.device_peaks(1) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"flops": {"bfloat16": 0}}, r"flops\['bfloat16'\]: expected a number above 0 .*, got 0"),
        ({"flops": {"bfloat 16": 1e12}}, "the data type: expected a name .*, got 'bfloat 16'"),
        ({"flops": 1e15}, "flops: expected a mapping"),
        ({"bytes_per_s": "4.8 TB/s"}, "bytes_per_s: expected a number .*, got '4.8 TB/s'"),
        ({"bytes_per_s": 1e12, "device": -1}, "device: expected a whole number .*, got -1"),
    ],
)
def test_what_is_no_peak_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        gpuprof.set_peaks(**arguments)
    assert gpuprof.device_peaks(0) is None


def test_a_device_that_is_no_index_is_refused() -> None:
    with pytest.raises(TypeError, match=r"device: expected a whole number .*, got 'cuda'"):
        gpuprof.device_peaks("cuda")  # type: ignore[arg-type]


def test_the_peak_of_a_data_type_and_the_fastest_one() -> None:
    assert PEAKS.flops_of("fp32") == ("float32", 5e13)
    assert PEAKS.flops_of() == ("bfloat16", 7e14)
    assert PEAKS.flops_of("int8") is None
    assert Peaks({}, 1e12).flops_of() is None


def test_data_types_of_torch_and_numpy_are_known_by_name() -> None:
    np = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    given = (torch.float16, np.float16, np.dtype("float16"), "half", "FP16")
    assert {peaks.dtype_name(each) for each in given} == {"float16"}
