"""Results and comparisons as JSON, CSV and data frames."""

from __future__ import annotations

import json
import math

import pytest

from gpuprof import BenchResult, CompareResult, Verdict
from gpuprof.results import Launches
from tests.support.benchmark_results import bench, csv_lines, wavering

HOSTILE = 'x,"y"\r\n=z'
RESULT = bench(
    HOSTILE,
    [1.0, 2.0, 1 / 3],
    clock_mhz=(1980.0, 1975.0, 1980.0),
    params={"n": 3},
    flops=10**9,
    memory={"peak_bytes": 4096, "change_bytes": 0},
    machine={"gpu": "NVIDIA H200"},
    warnings=("one", "two"),
)
COMPARED = CompareResult.of([bench("a", wavering(1.0)), bench("b", wavering(2.0))], seed=7)


def test_counts_are_columns_also_where_nothing_was_counted() -> None:
    counted = bench("a", wavering(1.0), launches=Launches({"sgemm": 2, "add": 1}, copies=4))
    found = csv_lines(CompareResult.of([counted, bench("b", wavering(1.0))]).to_csv())
    names = ("kernels", "copies", "memsets")
    assert [[line[name] for name in names] for line in found] == [
        ["3", "4", "0"],
        [""] * 3,
    ]


def test_all_samples_are_lines_on_request() -> None:
    lines = csv_lines(RESULT.to_csv(samples=True))
    assert [float(line["ms"]) for line in lines] == [1.0, 2.0, 1 / 3]
    assert [line["sample"] for line in lines] == ["0", "1", "2"]
    assert [float(line["clock_mhz"]) for line in lines] == [1980.0, 1975.0, 1980.0]
    both = csv_lines(COMPARED.to_csv(samples=True))
    assert [line["name"] for line in both] == ["a"] * 40 + ["b"] * 40
    assert both[0]["clock_mhz"] == ""


def test_data_frames_have_the_columns_of_the_csv() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = COMPARED.to_frame()
    assert list(frame.columns) == list(csv_lines(COMPARED.to_csv())[0])
    assert frame["verdict"].tolist()[1] == "slow"
    assert frame["ratio_low"].isna().tolist() == [True, False]
    samples = RESULT.to_frame(samples=True)
    assert samples["ms"].tolist() == [1.0, 2.0, 1 / 3]
    assert samples["sample"].dtype == "int64"


def test_a_comparison_comes_back_with_the_verdicts_that_it_held() -> None:
    data = json.loads(COMPARED.to_json())
    # Another version may have judged otherwise: what was said then is kept.
    data["rows"][1]["decision"]["verdict"] = "ambiguous"
    found = CompareResult.from_json(json.dumps(data))
    assert found["b"].verdict is Verdict.AMBIGUOUS
    assert found.to_dict() == data
    assert (found.base, found.rounds, found.seed, found.threshold) == ("a", 40, 7, 0.01)
    again = CompareResult.from_dict(COMPARED.to_dict())
    assert repr(again) == repr(COMPARED)


def test_a_ratio_that_does_not_exist_stays_none() -> None:
    compared = CompareResult.of([bench("a", [0.0] * 8), bench("b", [1.0] * 8)])
    assert math.isnan(compared["b"].ratio)
    assert math.isnan(CompareResult.from_json(compared.to_json())["b"].ratio)
    assert csv_lines(compared.to_csv())[1]["ratio"] == ""


@pytest.mark.parametrize("text", ["", "[1]", "{}", "3"])
@pytest.mark.parametrize("kind", [BenchResult, CompareResult])
def test_other_text_is_refused(kind: type[BenchResult | CompareResult], text: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"^(text: expected (JSON|an object)|(Bench|Compare)Result: expected .*format)",
    ):
        kind.from_json(text)
