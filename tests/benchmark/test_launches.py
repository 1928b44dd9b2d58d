"""What `benchmark` counts of launches on the fake driver: in which mode, and at what price."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import gpuprof
from gpuprof._benchmark import device
from gpuprof._frameworks import gpu_libraries
from tests.fake_driver.control import FakeCuda
from tests.support.benchmark_results import QUICK

if TYPE_CHECKING:
    from typing_extensions import Self

US = 1_000


class Step:
    """A function that launches two kernels, and notes its calls."""

    def __init__(self, fake: FakeCuda, stream: int) -> None:
        self.fake, self.stream, self.calls = fake, stream, 0

    def __call__(self) -> None:
        self.calls += 1
        self.fake.kernel(self.stream, "gemm_k", 5 * US)
        self.fake.kernel(self.stream, "add_k", US)


@pytest.fixture
def step(fake: FakeCuda, stream: int) -> Step:
    return Step(fake, stream)


def measure(fn: Callable[[], object], stream: int, **options: Any) -> gpuprof.BenchResult:
    return gpuprof.benchmark(fn, stream=stream, **{**QUICK, **options})


def test_graph_mode_counts_a_call_unasked(step: Step, stream: int) -> None:
    found = measure(step, stream).launches
    assert found is not None
    assert found.kernels == {"gemm_k": 1, "add_k": 1}
    assert (found.source, found.varies) == ("graph", "")
    assert found.versions["gpu"] == "Fake GPU"


def test_graph_mode_counts_for_nothing(step: Step, stream: int) -> None:
    measure(step, stream, launches=False, mode="graph", min_samples=30)
    without, step.calls = step.calls, 0
    measure(step, stream, mode="graph", min_samples=30)
    # How many calls a slope has depends on readings; no further captures are made.
    assert step.calls <= 1.5 * without
    assert measure(step, stream, launches=False).launches is None


@pytest.mark.parametrize("mode", ["batched", "isolated"])
def test_other_modes_count_if_asked(step: Step, stream: int, mode: str) -> None:
    assert measure(step, stream, mode=mode).launches is None
    found = measure(step, stream, mode=mode, launches=True).launches
    assert found is not None
    assert found.kernels == {"gemm_k": 1, "add_k": 1}
    assert found.source == "graph"


def test_the_set_up_is_not_the_call(step: Step, fake: FakeCuda, stream: int) -> None:
    def fill() -> None:
        fake.kernel(stream, "fill_k", US)

    result = measure(step, stream, setup=fill, mode="isolated", launches=True)
    assert result.launches is not None
    assert result.launches.kernels == {"gemm_k": 1, "add_k": 1}


@pytest.mark.parametrize("mode", ["graph", "isolated"])
def test_calls_that_differ_are_said(fake: FakeCuda, stream: int, mode: str) -> None:
    calls = 0

    def tries() -> None:
        nonlocal calls
        calls += 1
        fake.kernel(stream, f"variant_{calls % 2}_k", US)

    found = measure(tries, stream, mode=mode, launches=True).launches
    assert found is not None
    assert "variant_" in found.varies


class Kernels:
    """Stands for what `kernels()` collects of a call."""

    source = "CUPTI 13.0"

    def __init__(self, records: list[tuple[str, str]]) -> None:
        self.records = [SimpleNamespace(name=name, kind=kind) for name, kind in records]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None: ...


def test_what_cannot_be_captured_is_collected_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    work: Any = SimpleNamespace(
        set_up=lambda: done.append("set up"), call=lambda: done.append("call")
    )
    records = [("gemm", "kernel"), ("Memcpy DtoH", "memcpy"), ("Memset", "memset")]
    monkeypatch.setattr("gpuprof._kernels.api.kernels", lambda: Kernels(records))

    def fails() -> gpuprof.CapturedGraph:
        raise RuntimeError

    for capture in (fails, None):
        found = device.of_calls(work, capture, lambda: done.append("wait"))
        assert found == gpuprof.results.Launches({"gemm": 1}, 1, 1, source="CUPTI")
    once = ["set up", "wait", "call"]
    assert done == ["set up", *once, *once, *once, *once]


def test_where_neither_works_it_is_said(
    fake: FakeCuda, stream: int, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_work: object, _synchronize: object) -> None:
        raise gpuprof.CudaUnavailableError("there is no CUPTI")

    monkeypatch.setattr(device, "_collected", refused)

    def strays() -> None:
        fake.kernel(stream, "step_k", US)
        fake.kernel(other, "stray_k", 500 * US)

    result = measure(strays, stream, launches=True)
    assert result.launches is None
    assert "what a call launches was not counted: there is no CUPTI" in result.warnings


def test_on_the_cpus_clock_nothing_is_counted() -> None:
    assert measure(lambda: None, 0, launches=True).launches is None


@pytest.mark.parametrize("value", [1.5, "yes", []])
def test_a_wrong_option_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="launches: expected True or False"):
        gpuprof.benchmark(lambda: None, launches=value)


# Versions


def test_loaded_libraries_are_found_by_their_files(tmp_path: Any) -> None:
    maps = tmp_path / "maps"
    line = "7f00-7f01 r--p 00000000 08:01 1 /opt/my libs/{}\n"
    files = ["libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libcudnn_ops.so.9"]
    maps.write_text("".join(map(line.format, files)) + "7f02-7f03 rw-p 0 0 0\n")
    assert gpu_libraries._loaded(maps) == {
        "cublas": "/opt/my libs/libcublas.so.13",
        "cudnn": "/opt/my libs/libcudnn.so.9",
    }
    assert gpu_libraries._loaded(tmp_path / "none") == {}


class Library:
    """Stands for cuBLAS and cuDNN."""

    def __init__(self, version: int) -> None:
        def ask() -> int:
            return version

        self.cudnnGetVersion = ask

    def cublasGetProperty(self, part: int, value: Any) -> int:
        value._obj.value = (13, 1, 2)[part]
        return 0


@pytest.mark.parametrize(("number", "version"), [(91002, "9.10.2"), (8907, "8.9.7")])
def test_libraries_tell_their_versions(number: int, version: str) -> None:
    library: Any = Library(number)
    assert gpu_libraries._cudnn(library) == version
    assert gpu_libraries._cublas(library) == "13.1.2"
