"""`gpuprof.history`: series of saved runs, and the run where each changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import gpuprof
from gpuprof.errors import BaselineError
from tests.support.benchmark_results import bench, csv_lines, saved

H200: dict[str, Any] = {"gpu": "NVIDIA H200", "sms": 132, "driver": "580.1"}
H100: dict[str, Any] = {"gpu": "NVIDIA H100", "sms": 132, "driver": "580.1"}
STEP = gpuprof.results.HistoryChange(7, 0.001, 1.1).to_dict()
WAVES = (0.0, 0.004, -0.003, 0.002, -0.004, 0.001, 0.003)


def save(
    store: Path,
    times_ms: list[float],
    *,
    name: str = "test_step",
    baseline: str = "main",
    machine: dict[str, Any] = H200,
    first: int = 1,
    **changes: Any,
) -> None:
    """Save a run a day, whose samples waver a little around its time."""
    for day, ms in enumerate(times_ms, first):
        created = f"2026-11-{day:02d}T08:00:00+00:00"
        samples = [ms * (1.0 + wave / 10) for wave in WAVES * 6]
        result = bench(name, samples, machine=machine, created=created, **changes)
        saved(baseline, created, result, commit=f"{day:02d}" * 20, folder=store)


def steps(count: int, at: int, change: float = 0.1) -> list[float]:
    return [(1.0 + change * (n >= at)) * (1.0 + WAVES[n % len(WAVES)]) for n in range(count)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def only(found: gpuprof.History) -> gpuprof.results.HistorySeries:
    (series,) = found.series
    return series


def test_a_series_has_each_run_with_its_commit_and_machine(store: Path) -> None:
    save(store, [1.0, 2.0, 3.0])
    series = only(gpuprof.history(store))
    assert (series.name, series.baseline, series.unit) == ("test_step", "main", "ms")
    assert [point.time[:10] for point in series.points] == [f"2026-11-0{n}" for n in (1, 2, 3)]
    assert [point.value for point in series.points] == pytest.approx([1.0, 2.0, 3.0], rel=1e-3)
    assert all(point.low <= point.value <= point.high for point in series.points)
    assert [point.commit for point in series.points] == ["01" * 20, "02" * 20, "03" * 20]
    assert {point.machine for point in series.points} == {"NVIDIA H200"}
    assert series.changes == ()
    assert series.facts() == ["no change found in 3 runs"]


def test_the_run_where_it_changed_is_named_with_its_commit_and_machine(store: Path) -> None:
    save(store, steps(9, 9))
    save(store, [1.1 * ms for ms in steps(6, 6)], machine={**H200, "driver": "590"}, first=10)
    series = only(gpuprof.history(store))
    (found,) = series.changes
    assert (found.index, found.kind) == (9, "step")
    assert found.p < 0.01
    assert found.ratio == pytest.approx(1.1, rel=0.01)
    change, note = series.facts()
    assert change.startswith("changed at run 10 of 15, 2026-11-10T08:00:00+00:00, 1010101010, NVID")
    assert "9.9 % more time from there on (p 0.00" in change
    assert note == "driver changed in run 10: 580.1, then 590"


def test_up_and_back_again_are_two_changes_the_newest_first(store: Path) -> None:
    times = steps(20, 20)
    save(store, [ms * (1.1 if 7 <= place < 13 else 1.0) for place, ms in enumerate(times)])
    series = only(gpuprof.history(store))
    back, up = series.changes
    assert (up.index, up.kind, up.back_to) == (7, "step", None)
    assert (back.index, back.kind, back.back_to) == (13, "step", 7)
    assert (up.ratio, back.ratio) == pytest.approx((1.1, 1 / 1.1), rel=0.01)
    newest, older = series.facts()
    assert newest.startswith("changed at run 14 of 20")
    assert newest.endswith("; this is back at the level of before run 8")
    assert "more time up to run 13 (p " in older
    lines = series.text().splitlines()
    assert len(lines[1].split("%")) == 3
    assert all(line.count(":") >= 2 for line in lines[2:11])


def test_a_steady_drift_is_no_step(store: Path) -> None:
    save(store, [ms * (1.0 + 0.01 * place) for place, ms in enumerate(steps(20, 20))])
    series = only(gpuprof.history(store))
    (drift,) = series.changes
    assert (drift.kind, drift.index, drift.last) == ("drift", 0, 19)
    assert drift.ratio == pytest.approx(1.19, rel=0.02)
    assert series.facts()[0].startswith("drifts from run 1 to run 20 of 20, 2026-11-01T08")
    assert "more time at the end than at the start" in series.facts()[0]
    assert "drift +1" in series.text()
    assert gpuprof.History.from_json(gpuprof.History([series]).to_json()).series == (series,)


def test_a_change_below_the_threshold_is_none(store: Path) -> None:
    save(store, steps(14, 7))
    assert only(gpuprof.history(store, threshold=0.05)).changes
    assert not only(gpuprof.history(store, threshold=0.2)).changes


def test_runs_that_were_measured_otherwise_are_shown_but_not_searched(store: Path) -> None:
    save(store, [9.0] * 6, mode="batched")
    save(store, steps(8, 8), first=7)
    series = only(gpuprof.history(store))
    assert [point.compared for point in series.points] == [False] * 6 + [True] * 8
    assert series.changes == ()
    assert "6 of 14 runs left out of the search for a change" in series.facts()[1]
    assert "another mode: batched, not graph" in series.facts()[1]


def test_the_index_counts_all_points_also_those_that_are_not_searched(store: Path) -> None:
    save(store, [9.0] * 2, mode="batched")
    save(store, steps(14, 7), first=3)
    series = only(gpuprof.history(store))
    (found,) = series.changes
    assert found.index == 9
    assert found.ratio == pytest.approx(1.1, rel=0.01)


def test_runs_are_in_the_order_of_time(store: Path) -> None:
    save(store, [2.0], first=5)
    save(store, [1.0], first=2)
    assert [point.time[8:10] for point in only(gpuprof.history(store)).points] == ["02", "05"]


def test_a_benchmark_has_a_series_for_each_baseline_and_machine(store: Path) -> None:
    save(store, [1.0])
    save(store, [1.0], machine=H100)
    save(store, [1.0], baseline="branch")
    save(store, [1.0], name="test_load")
    found = gpuprof.history(store)
    assert found.names == ["test_load", "test_step"]
    assert [each.name for each in found.series] == [
        "test_load",
        "test_step (baseline 'branch', NVIDIA-H200)",
        "test_step (baseline 'main', NVIDIA-H100)",
        "test_step (baseline 'main', NVIDIA-H200)",
    ]
    assert {each.benchmark for each in found.series} == {"test_load", "test_step"}
    assert only(gpuprof.history(store, "test_step", baseline="branch")).name == "test_step"
    with pytest.raises(BaselineError, match="no baseline is called 'other'"):
        gpuprof.history(store, baseline="other")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("test_s*", ["test_sort[1-2]", "test_step"]),
        ("test_step", ["test_step"]),
        ("test_sort[1-2]", ["test_sort[1-2]"]),  # its own name, though brackets are a set
        ("test_st?p", ["test_step"]),
        ("TEST_STEP", []),
        ("", []),
    ],
)
def test_names_are_patterns(store: Path, pattern: str, names: list[str]) -> None:
    save(store, [1.0])
    save(store, [1.0], name="test_sort[1-2]")
    assert gpuprof.history(store, pattern).names == names


def test_nothing_saved_is_an_empty_history(tmp_path: Path) -> None:
    found = gpuprof.history(tmp_path / "none")
    assert (len(found), found.series, str(found)) == (0, (), "no saved runs")
    assert found.to_dict()["series"] == []
    assert "no saved runs" in found._repr_html_()
    ElementTree.fromstring(found.to_svg())


def test_times_of_zero_are_no_change_and_no_error(store: Path) -> None:
    save(store, [0.0] * 8)
    series = only(gpuprof.history(store))
    assert series.changes == ()
    assert series.text()
    ElementTree.fromstring(series.to_svg())


def test_a_damaged_baseline_is_named(store: Path) -> None:
    save(store, [1.0])
    path = store / "baselines" / "main" / "NVIDIA-H200.jsonl"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(BaselineError, match=r"NVIDIA-H200\.jsonl, line 1 cannot be used"):
        gpuprof.history(store)


def test_a_plot_has_a_point_for_each_run(store: Path) -> None:
    save(store, steps(14, 7))
    found = gpuprof.history(store)
    for name in (None, "test_step"):
        root = ElementTree.fromstring(found.to_svg(name))
        assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 14
    with pytest.raises(KeyError, match="no series is called 'other'; there are 'test_step'"):
        found.to_svg("other")


def test_odd_names_are_safe_in_every_form(store: Path) -> None:
    name = 'test_<b>&\n,"x"\'[\x1b]'
    save(store, [1.0, 2.0], name=name)
    found = gpuprof.history(store, name)
    assert [line["benchmark"] for line in csv_lines(found.to_csv())] == [name, name]
    assert "<b>" not in found._repr_html_()
    assert "\x1b" not in str(found)
    ElementTree.fromstring(found.to_svg())
    ElementTree.fromstring(found._repr_html_())


def test_it_is_read_back_from_json_as_it_was(store: Path) -> None:
    save(store, steps(14, 7), name="test_<b>\n")
    save(store, [1.0, 2.0])
    found = gpuprof.history(store)
    again = gpuprof.History.from_json(found.to_json())
    assert again.series == found.series
    assert again.to_svg() == found.to_svg()
    assert gpuprof.History.from_json(gpuprof.History([]).to_json()).series == ()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": 9}, "^History: expected .*; another gpuprof"),
        ({"series": 3}, "series: expected a list, got 3"),
        ({"series": [{}]}, r"series\[0\]: 'name' is missing"),
        ({"points": []}, r"series\[0\].points: expected at least one run, got none"),
        ({"changes": [{**STEP, "index": 14}]}, r"changes: expected a compared run"),
        ({"changes": [{**STEP, "index": 0}]}, r"changes: expected a compared run"),
        ({"changes": [{**STEP, "index": -1}]}, r"changes\[0\].index: .*, got -1"),
        ({"changes": [{**STEP, "kind": "x"}]}, r"changes\[0\].kind: .*'step', 'drift', got 'x'"),
        ({"changes": [{**STEP, "last": 14}]}, r"changes: expected runs of the series"),
        ({"machine": None}, r"series\[0\].machine: expected a str, got None"),
        ({"value": None}, r"points\[3\].value: expected a finite number from 0, got None"),
        ({"value": -1.0}, r"points\[3\].value: .*, got -1.0"),
        ({"compared": 1}, r"points\[3\].compared: expected True or False, got 1"),
    ],
)
def test_a_damaged_form_is_refused_and_the_field_named(
    change: dict[str, Any], why: str, store: Path
) -> None:
    save(store, steps(14, 7))
    data = gpuprof.history(store).to_dict()
    (series,) = data["series"]
    ((key, value),) = change.items()
    for part in (data, series, series["points"][3]):
        if key in part:
            part[key] = value
            break
    with pytest.raises(ValueError, match=why):
        gpuprof.History.from_dict(data)


def test_a_data_frame_says_where_it_changed(store: Path) -> None:
    save(store, steps(14, 7))
    frame = pytest.importorskip("pandas") and gpuprof.history(store).to_frame()
    assert list(frame["changed"]).index(True) == 7
    assert frame["value_ms"].dtype == float
    assert list(frame["benchmark"]) == ["test_step"] * 14
