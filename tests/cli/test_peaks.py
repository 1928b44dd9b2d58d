"""``gpuprof info --peaks``: what it measures, where it stores that, and what it says without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof.results import Peaks
from tests.cli.conftest import Call
from tests.fake_driver.control import FakeCuda
from tests.support.benchmark_results import bench, command

Printed = Callable[..., str]
FAKE_BYTES_PER_S = 128e9  # the fake driver moves 64 bytes a nanosecond, each read and written
SMALL = 64  # the side of a matrix
PRODUCT_NS = 1 << 14
MODULE = "gpuprof._cli.peaks"

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sizes = {"COPY_BYTES": 8 << 20, "SIDES": (SMALL,)}
    for name, value in {"RUN_S": 0.0, "RUN_MOST_S": 0.2, "RUNS": 2, **sizes}.items():
        monkeypatch.setattr(f"{MODULE}.{name}", value)
    return tmp_path / "gpuprof" / "peaks.json"


@pytest.fixture
def printed(call: Call) -> Printed:
    """What ``gpuprof info`` prints, after its exit code was checked."""

    def printed(*arguments: str, code: int = 0) -> str:
        found, out, _ = call("info", *arguments)
        assert found == code
        return out

    return printed


def measured() -> Peaks:
    found = gpuprof.device_peaks()
    assert found is not None
    return found


def test_the_memorys_bandwidth_is_measured_by_the_driver_alone(
    fake: FakeCuda, store: Path, printed: Printed
) -> None:
    text = printed("--peaks")
    assert text.startswith("peaks of Fake GPU, 16.0 GiB, driver ")
    assert "memory copy  128 GB/s  4.0 MiB copied by the driver\n" in text
    assert "note: no FLOP/s: GPUPROF_CUDA_DRIVER names a driver that torch does not use" in text
    assert f"stored in {store}\n" in text
    found = measured()
    assert found.bytes_per_s == pytest.approx(FAKE_BYTES_PER_S, rel=0.01)
    assert (found.source, found.device, found.flops) == ("measured", "Fake GPU", {})


def test_a_gpu_that_is_nearly_full_copies_less(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.setattr(f"{MODULE}.LEAST_COPY_BYTES", 2 << 20)
    fake.script("cuMemAlloc_v2@1=2;cuMemAlloc_v2@2=2")
    text = printed("--peaks")
    assert "memory copy  128 GB/s  1.0 MiB copied by the driver\n" in text
    fake.script("cuMemAlloc_v2@1*=2")
    printed("--peaks", code=1)
    fake.script("")


def test_the_json_is_that_of_the_file_with_what_is_said_besides(
    fake: FakeCuda, store: Path, printed: Printed
) -> None:
    found = json.loads(printed("--peaks", "--json"))
    stored = json.loads(store.read_text())
    assert {key: found[key] for key in stored} == stored
    assert found["file"] == str(store)
    assert found["how"] == {"memory copy": "4.0 MiB copied by the driver"}
    assert len(found["notes"]) == 1


def test_info_shows_what_is_stored(fake: FakeCuda, printed: Printed) -> None:
    before = printed()
    assert "not measured: run `gpuprof info --peaks` once\n" in before
    printed("--peaks")
    text = printed()
    (line,) = [line for line in text.splitlines() if line.startswith("peaks 0 ")]
    assert "bytes per s: 128 GB/s; source: measured; date: 20" in line
    (peak,) = json.loads(printed("--json"))["peaks"]
    assert peak["index"] == 0
    assert peak["bytes_per_s"] == pytest.approx(FAKE_BYTES_PER_S, rel=0.01)


def test_info_says_why_a_damaged_file_is_not_used(
    fake: FakeCuda, store: Path, printed: Printed
) -> None:
    store.parent.mkdir()
    store.write_text("{}")
    found = json.loads(printed("--json"))
    assert found["peaks"] == []
    assert any("it holds no peaks of gpuprof" in text for text in found["warnings"])
    text = printed("--peaks", code=1)
    assert f"note: not stored: {store}: it holds no peaks of gpuprof\n" in text
    assert "memory copy  128 GB/s" in text
    assert store.read_text() == "{}"


class Matrix:
    """A matrix, or one that is transposed."""

    def __init__(self, halves: int = 2) -> None:
        self.halves = halves

    def t(self) -> Matrix:
        return Matrix(1)


class Torch:
    """As much of torch as is asked for: a product takes half the time where `b` is transposed.

    `fails` are types that raise.
    """

    __version__ = "2.0"
    float32, float16, bfloat16 = "float32", "float16", "bfloat16"

    def __init__(
        self, fake: FakeCuda, fails: dict[str, str], mm: Callable[..., object] | None = None
    ) -> None:
        self.fails = fails
        self.mm = mm or (lambda _a, b, **_out: fake.kernel(2, "mm", b.halves * PRODUCT_NS))

    def randn(self, *_sides: int, dtype: str, **_device: str) -> Matrix:
        if dtype in self.fails:
            raise RuntimeError(self.fails[dtype])
        return Matrix()

    def empty_like(self, given: Matrix) -> Matrix:
        return given

    def set_float32_matmul_precision(self, _precision: str) -> None:
        pass


def use_torch(monkeypatch: pytest.MonkeyPatch, torch: Torch, *dtypes: str) -> None:
    monkeypatch.setattr(f"{MODULE}._torch", lambda _notes: torch)
    monkeypatch.setattr(f"{MODULE}._DTYPES", dtypes or ("float32",))


def test_each_data_type_counts_with_the_fastest_form_of_the_product(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    use_torch(monkeypatch, Torch(fake, {}))
    text = printed("--peaks")
    found = measured()
    flops = 2 * SMALL**3 / (PRODUCT_NS * 1e-9)
    assert found.flops == {"float32": pytest.approx(flops, rel=0.1)}
    assert "64 x 64 matrices, torch 2.0\n" in text


def test_the_size_with_the_most_operations_a_second_counts(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.setattr(f"{MODULE}.SIDES", (SMALL, 2 * SMALL, SMALL // 2))  # all take as long
    use_torch(monkeypatch, Torch(fake, {}))
    text = printed("--peaks")
    assert "128 x 128 matrices, torch 2.0\n" in text
    assert measured().flops == {"float32": pytest.approx(2 * 128**3 / (PRODUCT_NS * 1e-9), rel=0.1)}


def test_a_data_type_that_fails_is_left_out_by_name(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    torch = Torch(fake, {"float16": "no memory left\nfor it"})
    use_torch(monkeypatch, torch, "float16", "float32")
    text = printed("--peaks")
    assert "note: float16 was left out: no memory left\n" in text
    found = measured()
    assert [*found.flops] == ["float32"]


def test_work_on_the_cpu_is_no_peak(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    use_torch(monkeypatch, Torch(fake, {}, mm=lambda *_, **_out: sum([1, 2])))
    text = printed("--peaks")
    assert "note: float32 was left out: no time on the GPU was measured for float32\n" in text
    assert measured().flops == {}


class Runs:
    """Stands in for `benchmark`: results with given times, which say how they were taken."""

    def __init__(self, *runs: tuple[str, float]) -> None:
        self.runs = list(runs)

    def __call__(self, *_args: Any, **_options: Any) -> Any:
        clock, median_ms = self.runs.pop(0)
        return bench("run", [median_ms] * 30, clock=clock)


NOT_STEADY = "note: the memory copy: its time was not steady"


RUNS = {
    "quiet": ([("cuda", 2.0), ("cuda", 2.01)], 2.0, False),
    "until two of the best agree": ([("cuda", ms) for ms in (5.0, 2.0, 4.0, 1.99)], 1.99, False),
    "the host's clock does not count": ([("host", 0.5), ("cuda", 2.0)] * 2, 2.0, False),
    "never two that agree": ([("cuda", ms) for ms in (9.0, 3.0, 7.0, 5.0)], 3.0, True),
    "one": ([("host", 1.0), ("cuda", 2.0), *[("host", 1.0)] * 2], 2.0, True),
}


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(("runs", "milliseconds", "noted"), RUNS.values(), ids=RUNS)
def test_the_best_run_counts_once_another_one_is_near_it(
    monkeypatch: pytest.MonkeyPatch,
    printed: Printed,
    runs: list[tuple[str, float]],
    milliseconds: float,
    noted: bool,
) -> None:
    monkeypatch.setattr(f"{MODULE}.MOST_RUNS", 4)
    stand_in = Runs(*runs)
    monkeypatch.setattr(f"{MODULE}.benchmark", stand_in)
    text = printed("--peaks")
    assert measured().bytes_per_s == pytest.approx((8 << 20) / (milliseconds * 1e-3))
    assert stand_in.runs == []
    assert (NOT_STEADY in text) is noted


def test_without_a_time_on_the_gpu_it_fails_and_says_so(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"{MODULE}.benchmark", Runs(*[("host", 1.0)] * 100))
    assert command("info", "--peaks") == 1
    assert "no time on the GPU was measured for the memory copy" in capsys.readouterr().err


def test_a_gpu_that_is_late_because_others_use_it_is_measured_all_the_same(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    use_torch(monkeypatch, Torch(fake, {}))
    fake.configure(call_ns=200_000)
    printed("--peaks")
    found = measured()
    assert found.bytes_per_s == pytest.approx(FAKE_BYTES_PER_S, rel=0.01)
    assert [*found.flops] == ["float32"]


def test_without_a_gpu_it_fails_and_says_why(
    monkeypatch: pytest.MonkeyPatch, store: Path, printed: Printed
) -> None:
    absent = {"available": False, "reason": "the CUDA driver cannot be opened"}
    monkeypatch.setattr("gpuprof._core.driver_info", lambda: absent)
    printed("--peaks", code=1)
    monkeypatch.undo()
    assert not store.exists()
