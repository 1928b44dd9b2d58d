"""The committed benchmark results follow their format, and the pages show exactly these."""

from __future__ import annotations

import copy
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "readme",
    "measurements",
    "production",
    "accuracy",
    "callable",
    "training",
    "decode",
    "verdicts",
    "power",
    "ab",
    "promises",
    "history",
    "breaks",
]


@pytest.fixture
def render(benchmark_scripts: Path) -> Any:
    return importlib.import_module("render")


def test_committed_results_are_valid_and_named_after_their_script(results: Any) -> None:
    for path in results.RESULTS.glob("*"):
        found = results.load(path)
        assert path.suffix == ".json"
        assert path.name.split(".")[0] == found.script
        assert (ROOT / "benchmarks" / f"{found.script}.py").is_file()


@pytest.mark.parametrize("name", PAGES)
def test_every_generated_page_is_current(name: str, render: Any, results: Any) -> None:
    assert list(render.PAGES) == PAGES
    assert not render.PAGES[name].update(results.load_all(), check=True)


def test_a_stale_page_is_told_and_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, render: Any
) -> None:
    path = tmp_path / "page.md"
    path.write_text("above\n<!-- verdicts:begin -->\nold\n<!-- verdicts:end -->\nbelow\n")
    monkeypatch.setattr(render, "ROOT", tmp_path)
    page = render.Page("page.md", "verdicts", render.PAGES["verdicts"].render)
    monkeypatch.setattr(render, "PAGES", {"verdicts": page})
    monkeypatch.setattr("sys.argv", ["render.py", "--check", "verdicts"])
    assert render.main() == 1
    assert "page.md" in capsys.readouterr().out
    assert "old" in path.read_text()
    monkeypatch.setattr("sys.argv", ["render.py"])
    assert render.main() == 0
    assert path.read_text().startswith("above\n<!-- verdicts:begin -->\nMeasured on ")
    assert path.read_text().endswith("\n<!-- verdicts:end -->\nbelow\n")
    monkeypatch.setattr("sys.argv", ["render.py", "--check"])
    assert render.main() == 0


def test_a_message_is_shown_whole_and_in_lines_that_fit(tmp_path: Path, render: Any) -> None:
    said = "CaptureError: " + "a cause " * 40 + "end"
    case = {"title": "T", "code": "pass\n", "torch": None, "gpuprof": said, "debug": None}
    data = json.loads(render.BREAKS.read_text(encoding="utf-8")) | {"cases": [case]}
    path = tmp_path / "breaks.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    _, _, shown = render.breaks([], path).partition("```text\n")
    shown, _, rest = shown.partition("\n```")
    assert shown.replace("\n", " ") == said
    assert max(map(len, shown.splitlines())) <= 100
    assert "debug" not in rest


def test_a_file_of_something_else_than_messages_is_refused(tmp_path: Path, render: Any) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"format": "other", "version": 1}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"other\.json"):
        render.breaks([], path)


def test_a_result_comes_back_from_its_file(tmp_path: Path, result: Any, results: Any) -> None:
    path = tmp_path / "result.json"
    result.write(path)
    assert results.load(path) == result


def test_targets_are_judged_by_ratio_where_there_is_one_and_else_by_value(result: Any) -> None:
    assert [row.met for row in result.rows] == [None, True, False, True]


@pytest.mark.parametrize(
    ("part", "where", "change"),
    [
        ("result", "version", {"version": 2}),
        ("result", "format", {"format": "other"}),
        ("result", "notes", {"notes": None}),
        ("result", "machine", {"machine": {"gpu": None, "driver": None, "cpu": "C"}}),
        ("result", "cpu", {"machine": {"gpu": None, "driver": None, "cpu": None, "os": "Linux"}}),
        ("result", "gpuprof", {"versions": {"python": "3.12"}}),
        ("result", "unknown", {"unknown": 1}),
        ("row", "value", {"value": float("nan")}),
        ("row", "value", {"value": True}),
        ("row", "unit", {"unit": "furlongs"}),
        ("row", "met", {"met": False}),
        ("row", "ratio_to", {"ratio_to": "nobody"}),
        ("row", "ratio", {"ratio": None}),
        ("row", "named", {"name": "raw pair"}),
    ],
)
def test_a_wrong_result_or_row_is_refused_by_the_name_of_what_is_wrong(
    part: str, where: str, change: dict[str, Any], result: Any, results: Any
) -> None:
    data = copy.deepcopy(result.to_dict())
    (data if part == "result" else data["rows"][1]).update(change)
    with pytest.raises(results.ResultError, match=where):
        results.validate(data)


def test_a_file_with_what_json_has_not_is_refused_by_name(
    tmp_path: Path, result: Any, results: Any
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(result.to_dict()).replace("1500.0", "NaN"), encoding="utf-8")
    with pytest.raises(results.ResultError, match=r"bad\.json.*NaN"):
        results.load(path)


def test_every_script_with_results_has_a_section(render: Any, results: Any) -> None:
    assert {result.script for result in results.load_all()} <= set(render.SCRIPTS)


def test_the_readme_has_eight_figures_and_says_what_is_not_better(
    render: Any, results: Any
) -> None:
    shown = render.readme(results.load_all()).splitlines()
    assert len([line for line in shown if line.startswith("| ")]) == 2 + 8
    assert any(line.startswith("Not better: ") for line in shown)


def test_a_figure_of_the_readme_without_a_result_is_refused(result: Any, render: Any) -> None:
    with pytest.raises(ValueError, match="timing_scope_overhead have no row"):
        render.readme([result])


@pytest.mark.parametrize("name", [name for name in PAGES if name != "breaks"])
def test_without_results_the_pages_say_so(name: str, render: Any) -> None:
    assert render.PAGES[name].render([]) == "Nothing has been measured yet.\n"


@pytest.mark.parametrize(
    "name", ["accuracy", "callable", "training", "decode", "verdicts", "power"]
)
def test_results_of_other_scripts_are_not_shown(name: str, result: Any, render: Any) -> None:
    assert render.PAGES[name].render([result]) == "Nothing has been measured yet.\n"


@pytest.mark.parametrize("name", ["readme", "breaks"])
def test_a_page_without_marks_is_refused(name: str, render: Any) -> None:
    page = render.PAGES[name]
    with pytest.raises(ValueError, match=f"{page.block}:begin"):
        page.replace("no marks", "new\n")


def test_the_block_is_replaced_between_its_marks_and_nowhere_else(render: Any) -> None:
    page = render.PAGES["readme"]
    text = "above\n<!-- measured:begin -->\nold\n<!-- measured:end -->\nbelow\n"
    changed = page.replace(text, "new\n")
    assert changed == text.replace("old", "new")
    assert page.replace(changed, "new\n") == changed
