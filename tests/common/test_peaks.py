"""The peaks of a GPU: given, stored, and files that are damaged or somebody else's."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof._common import peaks
from gpuprof.results import Peaks

H200 = {"gpu": "NVIDIA H200", "gpu_memory": 150_000_000_000, "driver": "580.95.05"}
PEAKS = Peaks({"bfloat16": 7e14, "float32": 5e13}, 4e12, key=peaks.key_of(H200))


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(peaks, "_given", {})
    monkeypatch.setattr(peaks, "_warned", set())
    return tmp_path / "gpuprof" / "peaks.json"


def test_stored_peaks_are_read_back_for_their_gpu_memory_and_driver_alone(store: Path) -> None:
    assert peaks.peaks_of(H200) is None
    assert peaks.store(PEAKS) == store
    assert peaks.peaks_of(H200) == PEAKS
    others: list[dict[str, Any]] = [{"gpu": "NVIDIA A100"}, {"gpu_memory": 1 << 30}]
    for other in [*others, {"driver": "570.1"}, {"driver": None}]:
        assert peaks.peaks_of(H200 | other) is None


def test_another_gpu_is_added_and_the_same_one_replaced(store: Path) -> None:
    other = Peaks({}, 2e12, key="other")
    for each in (PEAKS, other, Peaks({}, 3e12, key=PEAKS.key)):
        peaks.store(each)
    assert peaks.peaks_of(H200) == Peaks({}, 3e12, key=PEAKS.key)
    assert sorted(json.loads(store.read_text())["peaks"]) == sorted([PEAKS.key, "other"])
    assert [path.name for path in sorted(store.parent.iterdir())] == [".lock", "peaks.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b'{"format": "somebody else"}',
        b'{"format": "gpuprof-peaks", "version": 2, "peaks": {}}',
        b'{"format": "gpuprof-peaks", "version": 1, "peaks": []}',
        b'{"format": "gpuprof-peaks", "version": 1, "peaks": {"x": {"flops": {}}}}',
        b'{"format": "gpuprof-peaks", "version": 1}' + b" " * (1 << 20),
    ],
)
def test_a_damaged_or_foreign_file_is_one_warning_and_stays(store: Path, content: bytes) -> None:
    store.parent.mkdir()
    store.write_bytes(content)
    with pytest.warns(RuntimeWarning, match="cannot be used.*remove it and run") as caught:
        assert [peaks.peaks_of(H200), peaks.peaks_of(H200)] == [None, None]
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.raises(ValueError, match=r"."):
        peaks.store(PEAKS)
    assert store.read_bytes() == content


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1e12"])
def test_a_stored_peak_that_is_no_rate_is_a_damaged_file(store: Path, value: object) -> None:
    peaks.store(PEAKS)
    content = json.loads(store.read_text())
    content["peaks"][PEAKS.key]["bytes_per_s"] = value
    store.write_text(json.dumps(content))
    with pytest.warns(RuntimeWarning, match="bytes_per_s: "):
        assert peaks.peaks_of(H200) is None


def test_a_file_that_was_repaired_is_read_again(store: Path) -> None:
    store.parent.mkdir()
    store.write_text("{")
    with pytest.warns(RuntimeWarning):
        assert peaks.peaks_of(H200) is None
    store.unlink()
    peaks.store(PEAKS)
    assert peaks.peaks_of(H200) == PEAKS


def test_a_folder_in_place_of_the_file_is_a_warning(store: Path) -> None:
    store.mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert peaks.peaks_of(H200) is None


def test_a_relative_cache_folder_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert peaks.store_path() == Path("/home/somebody/.cache/gpuprof/peaks.json")


def test_given_peaks_win_until_they_are_forgotten(store: Path) -> None:
    gpuprof.set_peaks({"bf16": 1e15}, 4.8e12)
    gpuprof.set_peaks(bytes_per_s=1e12, device=1)
    found = gpuprof.device_peaks(0)
    assert found is not None
    assert (found.flops, found.bytes_per_s, found.source) == ({"bfloat16": 1e15}, 4.8e12, "given")
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


def test_without_cuda_there_are_no_stored_peaks() -> None:
    peaks.store(PEAKS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gpuprof.device_peaks() is None
