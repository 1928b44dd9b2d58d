"""`gpuprof.history`: series of saved runs, and the run where each changed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import gpuprof
from gpuprof._results.baselines import Baselines, Run
from gpuprof.errors import BaselineError
from tests.support.benchmark_results import bench

H200: dict[str, Any] = {"gpu": "NVIDIA H200", "sms": 132, "driver": "580.1"}
H100: dict[str, Any] = {"gpu": "NVIDIA H100", "sms": 132, "driver": "580.1"}
WAVES = (0.0, 0.004, -0.003, 0.002, -0.004, 0.001, 0.003)


def lines_of(text: str | None) -> list[dict[str, str]]:
    assert text is not None
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def save(
    store: Baselines,
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
        store.append(baseline, Run(created, machine, {name: result}, f"{day:02d}" * 20))


def steps(count: int, at: int, change: float = 0.1) -> list[float]:
    return [(1.0 + change * (n >= at)) * (1.0 + WAVES[n % len(WAVES)]) for n in range(count)]


@pytest.fixture
def store(tmp_path: Path) -> Baselines:
    return Baselines(tmp_path / "kept")


def only(found: gpuprof.History) -> gpuprof.HistorySeries:
    (series,) = found.series
    return series


def test_a_series_has_each_run_with_its_commit_and_machine(store: Baselines) -> None:
    save(store, [1.0, 2.0, 3.0])
    series = only(gpuprof.history(store.root))
    assert (series.name, series.baseline, series.unit) == ("test_step", "main", "ms")
    assert [point.time[:10] for point in series.points] == [f"2026-11-0{n}" for n in (1, 2, 3)]
    assert [point.value for point in series.points] == pytest.approx([1.0, 2.0, 3.0], rel=1e-3)
    assert all(point.low <= point.value <= point.high for point in series.points)
    assert [point.commit for point in series.points] == ["01" * 20, "02" * 20, "03" * 20]
    assert {point.machine for point in series.points} == {"NVIDIA H200"}
    assert series.change is None
    assert series.facts() == ["no change found in 3 runs"]


def test_the_run_where_it_changed_is_named_with_its_commit_and_machine(store: Baselines) -> None:
    save(store, steps(9, 9))
    save(store, [1.1 * ms for ms in steps(6, 6)], machine={**H200, "driver": "590"}, first=10)
    series = only(gpuprof.history(store.root))
    assert series.change is not None
    assert series.change.index == 9
    assert series.change.p < 0.01
    assert series.ratio == pytest.approx(1.1, rel=0.01)
    change, note = series.facts()
    assert change.startswith("changed at run 10 of 15, 2026-11-10T08:00:00+00:00, 1010101010, NVID")
    assert "9.9 % more time from there on (p 0.001)" in change
    assert note == "driver changed in that run: 580.1, then 590"


def test_a_change_below_the_threshold_is_none(store: Baselines) -> None:
    save(store, steps(14, 7))
    assert only(gpuprof.history(store.root, threshold=0.05)).change is not None
    assert only(gpuprof.history(store.root, threshold=0.2)).change is None
    with pytest.raises(ValueError, match="threshold is 5"):
        gpuprof.history(store.root, threshold=5)


def test_runs_that_were_measured_otherwise_are_shown_but_not_searched(store: Baselines) -> None:
    save(store, [9.0] * 6, mode="batched")
    save(store, steps(8, 8), first=7)
    series = only(gpuprof.history(store.root))
    assert [point.compared for point in series.points] == [False] * 6 + [True] * 8
    assert series.change is None
    assert "6 of 14 runs left out of the search for a change" in series.facts()[1]
    assert "another mode: batched, not graph" in series.facts()[1]


def test_the_index_counts_all_points_also_those_that_are_not_searched(store: Baselines) -> None:
    save(store, [9.0] * 2, mode="batched")
    save(store, steps(14, 7), first=3)
    series = only(gpuprof.history(store.root))
    assert series.change is not None
    assert series.change.index == 9
    assert series.ratio == pytest.approx(1.1, rel=0.01)


def test_runs_are_in_the_order_of_time(store: Baselines) -> None:
    save(store, [2.0], first=5)
    save(store, [1.0], first=2)
    assert [point.time[8:10] for point in only(gpuprof.history(store.root)).points] == ["02", "05"]


def test_a_benchmark_has_a_series_for_each_baseline_and_machine(store: Baselines) -> None:
    save(store, [1.0])
    save(store, [1.0], machine=H100)
    save(store, [1.0], baseline="branch")
    save(store, [1.0], name="test_load")
    found = gpuprof.history(store.root)
    assert found.names == ["test_load", "test_step"]
    assert [each.name for each in found.series] == [
        "test_load",
        "test_step (baseline 'branch', NVIDIA-H200)",
        "test_step (baseline 'main', NVIDIA-H100)",
        "test_step (baseline 'main', NVIDIA-H200)",
    ]
    assert {each.benchmark for each in found.series} == {"test_load", "test_step"}
    assert only(gpuprof.history(store.root, "test_step", baseline="branch")).name == "test_step"
    with pytest.raises(BaselineError, match="no baseline is called 'other'"):
        gpuprof.history(store.root, baseline="other")


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
def test_names_are_patterns(store: Baselines, pattern: str, names: list[str]) -> None:
    save(store, [1.0])
    save(store, [1.0], name="test_sort[1-2]")
    assert gpuprof.history(store.root, pattern).names == names


def test_nothing_saved_is_an_empty_history(tmp_path: Path) -> None:
    found = gpuprof.history(tmp_path / "none")
    assert (len(found), found.series, str(found)) == (0, (), "no saved runs")
    assert found.to_dict()["series"] == []
    assert "no saved runs" in found._repr_html_()
    ElementTree.fromstring(found.to_svg())


def test_times_of_zero_are_no_change_and_no_error(store: Baselines) -> None:
    save(store, [0.0] * 8)
    series = only(gpuprof.history(store.root))
    assert series.change is None
    assert series.text()
    ElementTree.fromstring(series.to_svg())


def test_a_damaged_baseline_is_named(store: Baselines) -> None:
    save(store, [1.0])
    path = store.root / "baselines" / "main" / "NVIDIA-H200.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(BaselineError, match=r"NVIDIA-H200\.json cannot be used"):
        gpuprof.history(store.root)


def test_all_forms_have_the_change(store: Baselines) -> None:
    save(store, steps(14, 7))
    found = gpuprof.history(store.root)
    (data,) = json.loads(found.to_json())["series"]
    assert data["change"]["index"] == 7
    assert data["ratio"] == pytest.approx(1.1, rel=0.01)
    assert len(data["points"]) == 14
    rows = lines_of(found.to_csv())
    assert [row["changed"] for row in rows] == ["0"] * 7 + ["1"] + ["0"] * 6
    assert float(rows[0]["value_ms"]) == pytest.approx(1.0, rel=0.01)
    assert rows[0]["commit"] == "01" * 20
    assert "changed at run 8 of 14" in str(found)
    assert "changed at run 8 of 14" in found._repr_html_()
    for name in (None, "test_step"):
        root = ElementTree.fromstring(found.to_svg(name))
        assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 14
    with pytest.raises(KeyError, match="no series is called 'other'; there are 'test_step'"):
        found.to_svg("other")


def test_it_is_read_back_from_json(store: Baselines) -> None:
    save(store, steps(14, 7), machine={**H200, "driver": "590"})
    found = gpuprof.history(store.root)
    again = gpuprof.History.from_json(found.to_json())
    assert again.series == found.series
    assert again.to_csv() == found.to_csv()
    assert again.to_svg() == found.to_svg()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "gpuprof-stats"}, "data is no history of this version"),
        ({"series": None}, "series is None; expected a list"),
        ({"series": [{}]}, "the history is damaged: KeyError: 'points'"),
        ({"series": [3]}, "series is 3; expected a mapping"),
    ],
)
def test_what_is_no_history_is_refused(store: Baselines, change: dict[str, Any], said: str) -> None:
    save(store, [1.0])
    data = gpuprof.history(store.root).to_dict()
    with pytest.raises(ValueError, match=said):
        gpuprof.History.from_dict({**data, **change})


def test_csv_files_and_data_frames_have_the_same_columns(store: Baselines, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    save(store, [1.0, 2.0])
    found = gpuprof.history(store.root)
    path = tmp_path / "history.csv"
    assert found.to_csv(path) is None
    assert path.read_bytes().decode() == found.to_csv()
    frame = found.to_frame()
    assert list(frame.columns) == list(lines_of(found.to_csv())[0])
    assert frame["value_ms"].tolist() == [point.value for point in found.series[0].points]
    assert gpuprof.History([]).to_frame().empty


def test_autosaved_runs_are_one_series_commit_after_commit(store: Baselines) -> None:
    for place, ms in enumerate(steps(12, 7)):
        commit = f"{place + 1:02d}" * 20
        dirty = "_20261101_120000_uncommitted-changes" if place == 3 else ""
        save(store, [ms], baseline=commit + dirty, first=place + 1)
    save(store, [3.0], baseline="01")
    found = gpuprof.history(store.root)
    other, autosaved = sorted(found.series, key=lambda each: len(each.points))
    assert (autosaved.baseline, len(autosaved.points)) == ("@autosave", 12)
    assert autosaved.change is not None
    assert autosaved.change.index == 7
    assert (other.baseline, len(other.points)) == ("01", 1)
    assert gpuprof.history(store.root, baseline="@autosave").series[0].points == autosaved.points
    assert len(gpuprof.history(store.root, baseline="02" * 20).series[0].points) == 1
    with pytest.raises(BaselineError, match="no run of --gpu-benchmark-autosave is saved in "):
        gpuprof.history(store.root / "other", baseline="@autosave")


def test_runs_without_git_are_autosaved_ones_too(store: Baselines) -> None:
    for place in range(2):
        run = Run("2026-11-01T08:00:00+00:00", H200, {"a": bench("a", [1.0] * 40)})
        store.append(f"unversioned_20261101_12000{place}", run)
    assert [len(each.points) for each in gpuprof.history(store.root).series] == [2]


def test_odd_names_are_safe_in_every_form(store: Baselines) -> None:
    name = 'test_<b>&\n,"x"\'[\x1b]'
    save(store, [1.0, 2.0], name=name)
    found = gpuprof.history(store.root, name)
    assert [row["benchmark"] for row in lines_of(found.to_csv())] == [name, name]
    assert "<b>" not in found._repr_html_()
    assert "\x1b" not in str(found)
    ElementTree.fromstring(found.to_svg())
    ElementTree.fromstring(found._repr_html_())
