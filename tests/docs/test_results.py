"""The committed benchmark results follow their format, and the README shows exactly these."""

from __future__ import annotations

import copy
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def readme(benchmark_scripts: Path) -> Any:
    return importlib.import_module("render_readme")


@pytest.fixture
def breaks(benchmark_scripts: Path) -> Any:
    return importlib.import_module("render_breaks")


@pytest.fixture
def result(results: Any) -> Any:
    rows = [
        results.Row("raw pair", 1500.0, "ns", median=1600.0),
        results.Row("scope", 1800.0, "ns", 1900.0, "raw pair", 1.2, 1.19, target=1.4),
        results.Row("disabled | off", 90.0, "ns", 91.0, "raw pair", 0.06, 0.06, target=0.05),
        results.Row("import", 31.5, "ms", target=40.0),
    ]
    return results.Result(
        script="timing_scope_overhead",
        date="2026-01-31",
        machine={"gpu": "Some GPU", "driver": "580.1", "cpu": "Some CPU", "os": "Linux"},
        versions={"python": "3.12.3", "gpuprof": "0.1.0"},
        rows=rows,
        notes=["a note"],
    )


def test_committed_results_are_valid_and_named_after_their_script(results: Any) -> None:
    for path in results.RESULTS.glob("*"):
        found = results.load(path)
        assert path.suffix == ".json"
        assert path.name.split(".")[0] == found.script
        assert (ROOT / "benchmarks" / f"{found.script}.py").is_file()


def test_the_readme_shows_the_committed_results(readme: Any, results: Any) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == readme.BLOCK.replace(text, readme.render(results.load_all()))


def test_the_page_on_broken_captures_shows_the_committed_messages(breaks: Any) -> None:
    text = breaks.BLOCK.page.read_text(encoding="utf-8")
    assert text == breaks.BLOCK.replace(text, breaks.render(breaks.load()))


def test_a_message_is_shown_whole_and_in_lines_that_fit(breaks: Any) -> None:
    said = "CaptureError: " + "a cause " * 40 + "end"
    case = {"title": "T", "code": "pass\n", "torch": None, "gpuprof": said, "debug": None}
    data = dict(breaks.load(), cases=[case])
    _, _, shown = breaks.render(data).partition("```text\n")
    shown, _, rest = shown.partition("\n```")
    assert shown.replace("\n", " ") == said
    assert max(map(len, shown.splitlines())) <= 100
    assert "debug" not in rest


def test_a_page_without_a_place_for_the_messages_is_refused(breaks: Any) -> None:
    with pytest.raises(ValueError, match="breaks:begin"):
        breaks.BLOCK.replace("# Page\n", "messages")


def test_a_result_comes_back_from_its_file(tmp_path: Path, result: Any, results: Any) -> None:
    path = tmp_path / "result.json"
    result.write(path)
    assert results.load(path) == result


def test_targets_are_judged_by_ratio_where_there_is_one_and_else_by_value(result: Any) -> None:
    assert [row.met for row in result.rows] == [None, True, False, True]


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("version", {"version": 2}),
        ("format", {"format": "other"}),
        ("notes", {"notes": None}),
        ("machine", {"machine": {"gpu": None, "driver": None, "cpu": "C"}}),
        ("cpu", {"machine": {"gpu": None, "driver": None, "cpu": None, "os": "Linux"}}),
        ("gpuprof", {"versions": {"python": "3.12"}}),
        ("unknown", {"unknown": 1}),
    ],
)
def test_a_wrong_result_is_refused_by_the_name_of_what_is_wrong(
    where: str, change: dict[str, Any], result: Any, results: Any
) -> None:
    data = result.to_dict() | change
    with pytest.raises(results.ResultError, match=where):
        results.validate(data)


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("value", {"value": float("nan")}),
        ("value", {"value": True}),
        ("unit", {"unit": "furlongs"}),
        ("met", {"met": False}),
        ("ratio_to", {"ratio_to": "nobody"}),
        ("ratio", {"ratio": None}),
        ("named", {"name": "raw pair"}),
    ],
)
def test_a_wrong_row_is_refused_by_the_name_of_what_is_wrong(
    where: str, change: dict[str, Any], result: Any, results: Any
) -> None:
    data = copy.deepcopy(result.to_dict())
    data["rows"][1] |= change
    with pytest.raises(results.ResultError, match=where):
        results.validate(data)


def test_a_file_with_what_json_has_not_is_refused_by_name(
    tmp_path: Path, result: Any, results: Any
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(result.to_dict()).replace("1500.0", "NaN"), encoding="utf-8")
    with pytest.raises(results.ResultError, match=r"bad\.json.*NaN"):
        results.load(path)


def test_the_table_names_the_machine_and_says_what_was_not_met(result: Any, readme: Any) -> None:
    table = readme.render([result])
    assert "Some GPU, driver 580.1" in table
    assert "| scope | 1,800 ns | 1.20x | raw pair | 1.4x | met |" in table
    assert "| disabled \\| off | 90.0 ns | 17x less | raw pair | 20x less | **not met** |" in table
    assert "| import | 31.5 ms |  |  | at most 40.0 ms | met |" in table


def test_without_results_the_table_says_so(readme: Any) -> None:
    assert readme.render([]) == "Nothing has been measured yet.\n"


def test_the_block_is_replaced_between_its_marks_and_nowhere_else(readme: Any) -> None:
    text = f"above\n{readme.BLOCK.begin}\nold\n{readme.BLOCK.end}\nbelow\n"
    changed = readme.BLOCK.replace(text, "new\n")
    assert changed == f"above\n{readme.BLOCK.begin}\nnew\n{readme.BLOCK.end}\nbelow\n"
    assert readme.BLOCK.replace(changed, "new\n") == changed


def test_a_readme_without_marks_is_refused(readme: Any) -> None:
    with pytest.raises(ValueError, match="measured:begin"):
        readme.BLOCK.replace("no marks", "new\n")
