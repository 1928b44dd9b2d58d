"""One table in each of its forms."""

from __future__ import annotations

import pytest

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
