"""Tables in each of their forms; plots of a series, as text and as SVG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from gpuprof._display.series_plot import Level, Mark, stacked, svg, text
from gpuprof._display.shown import Exported, Shown
from gpuprof._display.table import Table

TABLE = Table(
    ["name", "time", "empty"], [["a|<b>", "1 ms", ""], ["c" * 70, "20 ms", ""]], left={"name"}
).without_empty()
TREE = Table(
    ["scope", "time"],
    [["step", "2"], ["x" * 70, "1"]],
    left={"scope"},
    title="title",
    notes=["a note"],
    depths=[0, 1],
    paths=["step", f"step/{'x' * 70}"],
)


def test_plain_text_is_aligned_and_long_cells_are_cut() -> None:
    head, rule, first, second = TABLE.plain()
    assert head == f"name{' ' * 56}   time"
    assert rule == "-" * len(head)
    assert first == f"a|<b>{' ' * 55}   1 ms"
    assert second == f"{'c' * 59}…  20 ms"


def test_the_lines_of_a_tree_are_indented_and_cut_in_the_middle() -> None:
    title, head, rule, outer, inner, note = TREE.plain()
    assert (title, note) == ("title", "a note")
    assert head == f"scope{' ' * 55}  time"
    assert outer == f"step{' ' * 56}     2"
    assert inner == f"  {'x' * 29}…{'x' * 28}     1"
    assert len(rule) == len(head)


def test_markdown_has_whole_cells_and_paths_and_a_list_of_notes() -> None:
    assert TABLE.markdown()[2] == "| a&#124;&#60;b&#62; | 1 ms |"
    text = TREE.markdown()
    assert text[:4] == ["title", "", "| scope | time |", "| :-- | --: |"]
    assert text[5:] == [f"| step/{'x' * 70} | 1 |", "", "- a note"]


def test_html_is_the_table_alone_unless_there_is_more_to_show() -> None:
    assert TABLE.html().startswith("<table><thead><tr>")
    assert "a|&lt;b&gt;" in TABLE.html()
    text = TREE.html()
    assert text.startswith("<div><div>title</div><table>")
    assert text.endswith("</table><div>a note</div></div>")


def test_lines_of_cells_by_column_make_a_table_without_empty_columns() -> None:
    lines = [{"name": "a", "time": "1", "note": ""}, {"name": "b", "time": "", "note": ""}]
    table = Table.of(lines, title="two")
    assert (table.columns, table.lines) == (["name", "time"], [["a", "1"], ["b", ""]])
    assert Table.of([], title="none").plain() == ["none"]


def test_the_first_column_stays_and_without_lines_there_is_no_grid() -> None:
    assert Table(["a", "b"], [["", ""]]).without_empty().columns == ["a"]
    nothing = Table(["a"], [], title="nothing yet")
    assert (nothing.plain(), nothing.markdown()) == (["nothing yet"], ["nothing yet"])
    assert nothing.html() == "<div><div>nothing yet</div></div>"


@pytest.mark.parametrize(("kind", "missing"), [(Shown, "_table"), (Exported, "_records")])
def test_a_class_without_its_table_or_records_fails_when_it_is_made(
    kind: type, missing: str
) -> None:
    class Found(kind):  # type: ignore[misc]
        __slots__ = ()

    with pytest.raises(TypeError, match=rf"abstract.*{missing}"):
        Found()


# Plots of a series: as text, and as SVG that a strict parser reads


SVG = "{http://www.w3.org/2000/svg}"
ENDS = ("first", "last")
STEP = [Level(0, 1, 1.0, 1.0), Level(1, 3, 2.5, 2.5, "+150.0 %", is_step=True)]


def marks(*values: float, around: float = 0.0) -> list[Mark]:
    return [Mark(value, value - around, value + around, f"run {value}") for value in values]


def test_a_plot_has_the_values_between_the_two_labels() -> None:
    lines = text(marks(1.0, 2.0, 3.0), [], ENDS)
    assert lines[0].split()[:2] == ["3.0", "ms"]
    assert lines[8].split()[:2] == ["1.0", "ms"]
    labels = [line.split()[0] for line in lines if "ms" in line]
    assert labels == ["3.0", "2.5", "2.0", "1.5", "1.0"]
    columns = {line.index("o"): number for number, line in enumerate(lines) if "o" in line}
    assert [columns[place] for place in sorted(columns)] == [8, 4, 0]
    assert lines[-1].split() == ["first", "last"]


def test_a_plot_shows_intervals_the_change_and_what_is_not_compared() -> None:
    found = [*marks(2.0, around=1.0), Mark(2.0, 2.0, 2.0, faint=True), *marks(2.0)]
    lines = text(found, [Level(2, 3, 2.0, 2.0, "", is_step=True)], ENDS)
    body = "\n".join(lines)
    assert (body.count("o"), body.count(".")) == (
        2,
        1 + sum(line.partition(" |")[0].count(".") for line in lines),
    )
    assert body.count(":") == 9
    assert sum("|" in line.partition("|")[2] for line in lines[:9]) == 8  # less the value itself


def test_noise_of_a_percent_takes_a_small_part_of_the_height() -> None:
    lines = text(marks(*[1.0, 1.01] * 10), [], ENDS)
    rows = [number for number, line in enumerate(lines) if "o" in line]
    assert rows[-1] - rows[0] <= 1


def test_levels_and_what_changed_are_drawn() -> None:
    lines = text(marks(1.0, 2.0, 3.0), STEP, ENDS)
    assert lines[0].strip() == "+150.0 %"
    assert sum("-" in line.partition("|")[2] for line in lines[1:10]) == 2


def test_one_wide_interval_does_not_squeeze_the_values() -> None:
    found = [*marks(1.0, 1.5), Mark(1.2, 0.5, 70.0), *marks(2.0)]
    lines = text(found, [], ENDS)
    assert lines[0].split()[:2] == ["2.5", "ms"]
    rows = [number for number, line in enumerate(lines) if "o" in line]
    assert rows[-1] - rows[0] >= 3
    root = ElementTree.fromstring(svg(found, [], ENDS, "title"))
    heights = [float(each.get("y1", "nan")) for each in root.findall(f".//{SVG}g/{SVG}line")]
    assert min(heights) >= 28.0


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [0.0], [1e-9, 5e5], [1.0] * 100])
def test_any_values_can_be_drawn(values: list[float]) -> None:
    lines = text(marks(*values), [], ENDS)
    assert len(lines) == 11
    assert max(map(len, lines)) <= 120
    ElementTree.fromstring(svg(marks(*values), [], ENDS, "title"))


def test_a_plot_as_svg_has_a_point_for_each_value_and_a_line_at_the_change() -> None:
    root = ElementTree.fromstring(svg(marks(1.0, 2.0, 3.0), STEP, ENDS, "steps"))
    assert "+150.0 %" in [each.text for each in root.findall(f"{SVG}text")]
    levels = [each for each in root.findall(f"{SVG}line") if each.get("stroke-width") == "2"]
    assert len(levels) == 2

    assert len(root.findall(f".//{SVG}circle")) == 3
    assert [each.text for each in root.findall(f".//{SVG}title")] == [
        "run 1.0",
        "run 2.0",
        "run 3.0",
    ]
    dashed = [each for each in root.findall(f"{SVG}line") if each.get("stroke-dasharray")]
    assert len(dashed) == 1
    first, second, _ = (float(each.get("cx", "nan")) for each in root.findall(f".//{SVG}circle"))
    assert first < float(dashed[0].get("x1", "nan")) < second


def test_names_in_a_plot_are_no_markup() -> None:
    odd = '<script>&"\x1b\x00'
    found = [Mark(1.0, 1.0, 1.0, odd)]
    root = ElementTree.fromstring(svg(found, [], (odd, odd), odd))
    assert not root.findall(f".//{SVG}script")
    assert odd[:9] in str(root.get("aria-label"))
    assert "\x1b" not in "".join(text(found, [], (odd, odd)))


def test_stacked_plots_are_one_document() -> None:
    one = svg(marks(1.0), [], ENDS, "one")
    root = ElementTree.fromstring(stacked([one, svg(marks(2.0), [], ENDS, "two")]))
    places = [each.get("transform") for each in root.findall(f"{SVG}g") if each.find(f"{SVG}svg")]
    assert places == ["translate(0 0)", "translate(0 200)"]
    assert root.get("height") == "400"
    ElementTree.fromstring(stacked([]))
