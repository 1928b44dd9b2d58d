"""The formats of results, byte by byte: files of one gpuprof are read by the next.

``GPUPROF_WRITE_FORMATS=1 pytest tests/results/test_formats.py`` writes the files anew, to be read
as a diff.
"""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuprof import (
    BenchResult,
    CompareResult,
    GraphTimings,
    History,
    ModuleTimes,
    Stats,
    SweepResult,
)
from gpuprof.results import (
    GraphCounts,
    GraphedCallableStats,
    HistoryChange,
    HistoryPoint,
    HistorySeries,
    KernelTotal,
    KernelTotals,
    Launches,
    MemoryUse,
    ModuleRow,
    PassTimes,
    Peaks,
    Row,
    Summary,
    SweepPoint,
    Work,
)
from tests.support.benchmark_results import bench, decided_beside_time

FORMATS = Path(__file__).parent / "formats"
CREATED = "2026-11-22T08:00:00+00:00"
HOSTILE = 'x,"<b>|\r\n=z\u202e'

TIMES = Summary(4, 10.0, 2.5, 1.0, 2.5, 3.7, 3.97, 4.0, 1.0)
BINNED = Summary(1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, float("nan"), ((1856, 1),))
STATS = Stats(
    [
        Row("step", "cuda", TIMES, BINNED, 1, 2, 3, 4),
        Row(
            "step/fwd", "cuda", TIMES, None, work=Work(2, 1e9, None, 1e12, None, 0.5, None, "tf32")
        ),
        Row("a/b", "cpu", None, TIMES, names=(HOSTILE,), memory=MemoryUse(1, 30, 130, -10, "told")),
        Row("later", "cuda", None, None, pending=1),
        Row("hot", "cpu", None, replace(TIMES, count=400, left_out=396, total_margin_ms=0.5)),
    ],
    dropped=1,
    memory=[
        {"device": "cuda:0", "allocated_bytes": 2, "peak_bytes": 3, "delta_bytes": 1}  # type: ignore[typeddict-item]
    ],
    created=CREATED,
)
SAMPLES = [1.0, 1.25, 1.5, 1.125, 1.0, 1.25, 1.375, 1.0]
FULL = bench(
    HOSTILE,
    SAMPLES,
    host_ms=0.25,
    tick_ms=0.0005,
    calls_per_sample=10,
    gate="gated",
    clock_mhz=(1980.0,) * 8,
    throttle_reasons=("power",),
    noise={"waited": 0.25},
    nbytes=10**6,
    flops=10**9,
    memory={"peak_bytes": 4096, "change_bytes": 0},
    energy={
        "joules": 0.125,
        "watts": 512.0,
        "resolution": 0.05,
        "step_joules": 8.0,
        "block_s": 0.5,
    },
    peaks={"bytes_per_s": 1e12, "flops_per_s": 1e13, "dtype": "tf32"},
    launches=Launches({"sgemm": 2}, 1, 0, versions={"torch": "2.11"}),
    warnings=("one", "two"),
    params={"n": 3, "dtype": HOSTILE},
    extra_info={"note": [1, (2.5, None)]},
    machine={"gpu": "NVIDIA H200"},
    created=CREATED,
    duration_s=1.5,
)
SLOWER = bench("slower", [1.5 * each for each in SAMPLES], created=CREATED)
DECISION = decided_beside_time("the peak grew", "launches more", warnings=("a warning",))
POINTS = [
    HistoryPoint(CREATED, ms, 0.75 * ms, 1.25 * ms, commit, "NVIDIA H200", ms < 9.0)
    for ms, commit in ((1.0, "abc-dirty"), (9.5, HOSTILE), (2.0, None))
]
FOUND: dict[str, Any] = {
    "stats": STATS,
    "result": FULL,
    "ranks": bench("all", SAMPLES, ranks=(SLOWER,), created=CREATED),
    "comparison": replace(
        CompareResult.of(
            [bench("base", SAMPLES, created=CREATED), SLOWER], warnings=["a warning"], seed=7
        ),
        created=CREATED,
    ),
    "sweep": SweepResult(
        "mm",
        {"n": (1, 2), "dtype": ("f4",)},
        [
            SweepPoint({"n": 1, "dtype": "f4"}, SLOWER),
            SweepPoint({"n": 2, "dtype": "f4"}, error=f"MemoryError: {HOSTILE}"),
        ],
        created=CREATED,
    ),
    "history": History(
        [
            HistorySeries(
                "mm", "mm", "main", "H200", tuple(POINTS), (HistoryChange(2, 0.005, 2.0),)
            ),
            HistorySeries(HOSTILE, HOSTILE, "main", "H200", tuple(POINTS[:1]), notes=("a note",)),
        ]
    ),
    "decision": DECISION,
    "peaks": Peaks({"float32": 1e13}, 1e12),
    "graphed": GraphedCallableStats(
        1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5, None, (GraphCounts("mlp", HOSTILE, 12, 7, None, 0.25),)
    ),
}
TABLES: dict[str, Any] = {
    "timings": GraphTimings([(("step", "fwd"), 1.5), (("step", "fwd"), None), ((HOSTILE,), 2.0)]),
    "kernels": KernelTotals(
        [
            KernelTotal("gemm", "kernel", 2, 3.0, 1.0, 2.0, 0.75),
            KernelTotal(HOSTILE, "memcpy", 1, 1.0, 1.0, 1.0, 0.25, 4096),
        ],
        "GPU work by name, scope: all",
    ),
    "modules": ModuleTimes(
        [
            ModuleRow(
                path="net",
                class_name=HOSTILE,
                depth=0,
                forward=PassTimes(calls=2, timed=2, total_ms=3.0, self_ms=1.0, mean_ms=1.5),
                recomputed=PassTimes(),
                backward=PassTimes(),
                share=None,
                parameters=8,
                parameter_bytes=32,
                activation_bytes=64,
                also=("twin",),
            )
        ],
        clocks=("cuda",),
        notes=("a note",),
    ),
}
FOUND |= TABLES
FORMS = {
    "json": lambda found: json.dumps(found.to_dict(), indent=1, allow_nan=False) + "\n",
    "csv": lambda found: found.to_csv(),
    "md": lambda found: found.to_markdown(),
    "html": lambda found: found._repr_html_() + "\n",
    "txt": lambda found: f"{found}\n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FOUND)
def test_a_format_stays_as_it_is(name: str, form: str) -> None:
    path = FORMATS / f"{name}.{form}"
    try:
        text = FORMS[form](FOUND[name])
    except AttributeError:  # then it has no such form, and never had
        assert not path.exists()
        return
    if "GPUPROF_WRITE_FORMATS" in os.environ:
        path.write_text(text, encoding="utf-8", newline="")
    assert text == path.read_bytes().decode()


IN_ALL_FORMS = ["stats", "result", "comparison", "sweep", "history", *TABLES]


@pytest.mark.parametrize("name", IN_ALL_FORMS)
def test_a_result_has_all_forms(name: str) -> None:
    assert json.loads(FOUND[name].to_json()) == json.loads(FORMS["json"](FOUND[name]))
    assert all((FORMATS / f"{name}.{form}").exists() for form in FORMS)


@pytest.mark.parametrize("name", IN_ALL_FORMS)
def test_a_data_frame_has_the_columns_of_the_csv(name: str) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    head = FOUND[name].to_csv().partition("\r\n")[0]
    assert ",".join(FOUND[name].to_frame().columns) == head


@pytest.mark.parametrize("name", IN_ALL_FORMS)
def test_a_data_frame_needs_pandas_and_csv_may_go_to_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, path = FOUND[name], tmp_path / "found.csv"
    assert found.to_csv(path) is None
    assert path.read_bytes().decode() == found.to_csv()
    monkeypatch.setitem(sys.modules, "pandas", None)
    needs = rf"{type(found).__name__}.to_frame\(\) needs pandas.*pip install pandas"
    with pytest.raises(ModuleNotFoundError, match=needs):
        found.to_frame()


@pytest.mark.parametrize("name", FOUND)
def test_what_is_read_back_is_written_alike(name: str) -> None:
    found = FOUND[name]
    if hasattr(found, "from_dict"):
        assert type(found).from_dict(found.to_dict()).to_dict() == found.to_dict()


@pytest.mark.parametrize("name", FOUND)
def test_it_comes_back_from_a_pickle(name: str) -> None:
    found = FOUND[name]
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is type(found)
    assert (again.to_dict(), str(again)) == (found.to_dict(), str(found))


@pytest.mark.parametrize("name", ["stats", "comparison", "sweep", "graphed"])
def test_what_is_printed_is_the_text(name: str) -> None:
    out = io.StringIO()
    FOUND[name].print(out)
    assert out.getvalue() == f"{FOUND[name]}\n" == f"{FOUND[name]!r}\n"


def changed(data: Any, place: str, value: object) -> Any:
    """Return a copy of plain data with another value at a place, such as ``points.0.error``."""
    first, _, rest = place.partition(".")
    found = copy.copy(data)
    key = int(first) if isinstance(found, list) else first
    found[key] = changed(found[key], rest, value) if rest else value
    if value is LEFT_OUT and not rest:
        del found[key]
    return found


LEFT_OUT = object()
WRONG = {
    "stats": [
        ("rows.0.host.bins.0.0", "x", r"^Stats\.rows\[0\]\.host\.bins\[0\]\[0\]: expected a whole"),
        ("rows.0.host.bins.0.1", 2**64, r"^Stats\.rows\[0\]\.host\.bins\[0\]\[1\]: expected a"),
        (
            "rows.0.host.bins.0",
            [1],
            r"^Stats\.rows\[0\]\.host\.bins\[0\]: expected 2 values",
        ),
        ("memory.0", {}, r"^Stats\.memory\[0\]\.device: expected"),
        ("memory.0.peak_bytes", 0.5, r"^Stats\.memory\[0\]\.peak_bytes: expected"),
        ("rows.1.work.flops", "x", r"^Stats\.rows\[1\]\.work\.flops: expected a finite number"),
    ],
    "comparison": [("rows", [], r"^CompareResult\.rows: expected one for each function")],
    "sweep": [
        ("format", "other", r"^SweepResult: expected .*gpuprof-sweep.*, got .*'other'"),
        ("version", True, r"^SweepResult: expected .*; another gpuprof"),
        ("name", LEFT_OUT, r"^SweepResult: 'name' is missing$"),
        ("odd", 1, r"^SweepResult: 'odd' is unknown$"),
        ("axes", [1], r"^SweepResult\.axes"),
        ("points", "text", r"^SweepResult\.points"),
        ("points.1", 3, r"^SweepResult\.points\[1\]: expected what to_dict\(\) returns, got 3"),
        ("points.1.error", 3, r"^SweepResult\.points\[1\]\.error"),
        ("points.0.result", LEFT_OUT, r"^SweepResult\.points\[0\]: 'result' is missing"),
    ],
    "graphed": [
        ("hits", 1.5, r"^GraphedCallableStats\.hits"),
        ("hits", None, r"^GraphedCallableStats\.hits"),
        ("capture_s", "x", r"^GraphedCallableStats\.capture_s"),
        ("graphs.0.num_nodes", True, r"^GraphedCallableStats\.graphs\[0\]\.num_nodes"),
    ],
}


@pytest.mark.parametrize(
    ("name", "place", "value", "text"),
    [(name, *case) for name, cases in WRONG.items() for case in cases],
)
def test_what_is_wrong_is_named_with_its_place(
    name: str, place: str, value: object, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        type(FOUND[name]).from_dict(changed(FOUND[name].to_dict(), place, value))


def test_a_sweep_without_a_value_of_an_axis_can_be_shown() -> None:
    found = SweepResult.from_dict(
        changed(FOUND["sweep"].to_dict(), "points", [{"params": {}, "result": None, "error": "e"}])
    )
    assert found.table().splitlines()[-1].split() == ["1", "of", "1", "points", "failed"]
    assert found.table(pivot=True).count("failed") == 2


def test_a_fault_deep_inside_is_found_at_once() -> None:
    found = {**SLOWER.to_dict(), "mode": "odd"}
    for _ in range(40):
        found = {**SLOWER.to_dict(), "ranks": [SLOWER.to_dict(), found]}
    with pytest.raises(ValueError, match=r"BenchResult(\.ranks\[1\]){40}\.mode: expected one of"):
        BenchResult.from_dict(found)
