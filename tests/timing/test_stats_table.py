"""The tree table as text, rich, Markdown and HTML, and the plot."""

from __future__ import annotations

import dataclasses
import io
import sys
import unicodedata
from typing import Any

import pytest
from rich.cells import cell_len

import gpuprof
from gpuprof import Stats
from gpuprof.results import Row, Summary

HOSTILE = "a\x1b[31m\n\x85\u202e|`<b>&\"'[red]$x$"


def row(path: str, ms: float = 1.0, clock: str = "cuda", first: float = 9.0, **counts: int) -> Row:
    times = Summary(10, 10 * ms, ms, ms, ms, 2 * ms, ms, 2 * ms, first)
    host = Summary(10, ms, ms / 10, ms / 10, ms / 10, ms, ms, ms, first)
    return Row(path, clock, times if clock == "cuda" else None, host, **counts)


NESTED = Stats([row("step", 4.0), row("step/fwd", 1.0), row("eval", 2.0), row("step/bwd", 3.0)])


def scopes_of(table: str) -> list[str]:
    """The first column, with its indentation."""
    return [
        line.split("  ")[0] or line[: len(line) - len(line.lstrip())] + line.split()[0]
        for line in table.splitlines()[3:]
    ]


def test_a_parent_stands_above_its_children_whatever_the_order_of_the_rows() -> None:
    assert scopes_of(repr(NESTED)) == ["step", "  fwd", "  bwd", "eval"]


def test_a_row_whose_parent_has_none_shows_the_rest_of_its_path() -> None:
    stats = Stats([row("step"), row("step/gone/inner"), row("a/b"), row("/x"), row("y//z")])
    assert scopes_of(repr(stats)) == ["step", "  gone/inner", "a/b", "/x", "y//z"]


def test_a_slash_in_a_name_does_not_indent() -> None:
    flat = dataclasses.replace(row("step/load"), names=("step/load",))
    found = scopes_of(repr(Stats([row("step"), flat, row("step/load")])))
    assert found == ["step", "  load", "step/load"]


def test_a_host_bound_row_is_noted() -> None:
    slow_host = row("step").host
    assert slow_host is not None
    assert "host-bound" in repr(Stats([Row("step", "cuda", slow_host, slow_host)]))
    assert "host-bound" not in repr(NESTED)


def test_a_clock_column_appears_only_with_several_clocks() -> None:
    assert "clock  " not in repr(NESTED)
    mixed = repr(Stats([row("step"), row("step", clock="cpu")])).splitlines()
    assert mixed[0].startswith("clocks: cuda, cpu")
    assert mixed[1].split()[:2] == ["scope", "clock"]


def test_host_time_is_never_shown_as_gpu_time() -> None:
    text = repr(Stats([row("step", clock="cpu")]))
    assert "no GPU time was measured" in text
    assert "GPU p50" not in text
    mixed = repr(Stats([row("step", clock="cpu"), row("other")]))
    assert mixed.splitlines()[3].split()[2] == "-"
    waiting = repr(Stats([Row("step", "cuda", None, None, pending=1)]))
    assert "GPU p50" in waiting


def test_empty_statistics_say_how_to_fill_them() -> None:
    assert "gpuprof.timer(" in repr(Stats([]))
    assert "gpuprof.timer(" in Stats([])._repr_html_()
    assert "gpuprof.timer(" in Stats([]).to_markdown()


def test_a_hostile_name_stays_on_its_line_and_visible() -> None:
    text = repr(Stats([row(HOSTILE)]))
    assert len(text.splitlines()) == 4
    assert r"a\x1b[31m\x0a\x85\u202e" in text
    assert not [c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Cs"}]


@pytest.mark.parametrize("name", ["x" * 100_000, "é" * 5000, "\ud800" * 5000])
def test_a_huge_name_is_cut_at_4_kib(name: str) -> None:
    (shown,) = scopes_of(repr(Stats([row(name)])))
    assert len(shown.encode()) <= 4096
    assert shown.endswith("…")


def test_deep_nesting_is_shown_without_recursion() -> None:
    paths = ["/".join(["s"] * depth) for depth in range(1, 1500)]
    stats = Stats([row(path) for path in paths])
    assert len(repr(stats).splitlines()) == len(paths) + 3
    assert max(map(len, repr(stats).splitlines())) < 300


@pytest.mark.parametrize(
    "name",
    ["x" * 200, "計測" * 60, "e\u0301" * 100, "a\tb\nc" * 30, "\u200b한\u1161글" * 40, "😀" * 80],
)
@pytest.mark.parametrize("depth", [0, 1, 30, 60])
def test_names_of_any_length_and_width_keep_the_columns_straight(name: str, depth: int) -> None:
    outer = tuple(f"s{place}" for place in range(depth))
    rows = [dataclasses.replace(row("short"), names=outer[: place + 1]) for place in range(depth)]
    rows.append(dataclasses.replace(row("long"), names=(*outer, name)))
    _, header, rule, *body = repr(Stats(rows)).splitlines()
    # rich measures text with tables of its own.
    assert {cell_len(line) for line in body} == {cell_len(header)} == {len(rule)}
    assert len(rule) < 220


def test_names_that_differ_at_their_ends_are_told_apart() -> None:
    first, second = (f"{'a' * 70}{end}" for end in ("fwd", "bwd"))
    text = repr(Stats([row(first), row(second)]))
    assert "aaafwd " in text
    assert "aaabwd " in text
    assert f"{'a' * 60}" not in text


def headings(text: str) -> list[str]:
    return [each for each in text.splitlines()[1].split("  ") if each]


def test_columns_are_those_that_are_asked_for() -> None:
    asked = "mean, p99,max,host_min,self,count"
    text = NESTED.table(columns=asked)
    assert [each.strip() for each in headings(text)] == (
        ["scope", "mean", "p99", "max", "host min", "self", "count"]
    )
    assert text.splitlines()[3].split() == (
        ["step", "4.00", "ms", "4.00", "ms", "8.00", "ms", "400", "µs", "0", "ns", "10"]
    )
    assert NESTED.table(columns=["mean", "p99", "max", "host_min", "self", "count"]) == text
    out = io.StringIO()
    NESTED.print(out, columns=asked)
    assert out.getvalue() == f"{text}\n"
    assert "| mean | p99 |" in NESTED.to_markdown(columns="mean,p99")


def test_a_column_of_the_gpu_that_is_asked_for_is_shown_on_any_clock() -> None:
    text = Stats([row("step", clock="cpu")]).table(columns="gpu_mean,mean")
    assert text.splitlines()[3].split()[:2] == ["step", "-"]


def test_clocks_and_notes_are_shown_beside_any_columns() -> None:
    text = Stats([row("a", dropped=3), row("b", clock="cpu")]).table(columns=["max"])
    assert [each.strip() for each in headings(text)] == ["scope", "clock", "max", "notes"]


@pytest.mark.parametrize("wrong", ["median", "mean,", ["mean", 3], "GPU p50"])
def test_an_unknown_column_names_those_there_are(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="columns: expected one of 'count', 'mean'"):
        NESTED.table(columns=wrong)
    with pytest.raises(ValueError, match=r"sort: expected one of 'path'.*, got 'median'"):
        NESTED.table(sort="median")
    with pytest.raises(TypeError, match=r"columns: expected names as text with commas .* got 3"):
        NESTED.table(columns=3)  # type: ignore[arg-type]


def test_sorting_keeps_the_tree() -> None:
    assert scopes_of(NESTED.table(sort="total")) == ["step", "  bwd", "  fwd", "eval"]
    assert scopes_of(NESTED.table(sort="path")) == ["eval", "step", "  bwd", "  fwd"]
    stats = Stats([Row("later", "cuda", None, None, pending=1), row("a"), row("b", 2.0)])
    assert scopes_of(stats.table(sort="gpu_max")) == ["b", "a", "later"]
    assert scopes_of(stats.table(sort="gpu_max", columns="count")) == ["b", "a", "later"]


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_markdown_of_a_hostile_name_is_still_one_cell_without_markup() -> None:
    table = [
        line
        for line in Stats([row(HOSTILE + "__init__ my_name @x")]).to_markdown().splitlines()
        if line.startswith("|")
    ]
    assert len(cells_of(table[2])) == len(cells_of(table[0]))
    assert not set("<`[*\\$@") & set(table[2])
    assert "my_name" in table[2]
    assert "__init__" not in table[2]


def test_html_escapes_a_clocks_name() -> None:
    assert "<i>" not in Stats([row("a", clock="<i>"), row("b")])._repr_html_()


@pytest.mark.parametrize("columns", [80, 200])
def test_rich_shows_every_column_and_reads_no_markup(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    Stats([row("[red]x"), row("[red]x/y", clock="cpu", pending=2)]).print(out, style="rich")
    text = out.getvalue()
    assert "─" in text
    assert "[red]x" in text
    for figure in ("1.00 ms", "100 µs", "10.0 ms", "9.00 ms", "pending"):
        assert figure in text
    for heading in ("scope", "clock", "host", "count", "total", "self", "parent", "first"):
        assert heading in text


def test_without_rich_the_table_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    out = io.StringIO()
    NESTED.print(out, style="rich")
    assert out.getvalue() == repr(NESTED) + "\n"


def test_an_unknown_style_names_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"style: .* 'auto', 'rich', 'plain', got 'fancy'"):
        NESTED.print(io.StringIO(), style="fancy")


def test_an_encoding_without_the_characters_gets_others() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    Stats([row("über", 0.005)]).print(out)
    out.flush()
    assert b"5.00 us" in raw.getvalue()
    assert rb"\xfcber" in raw.getvalue()


def test_an_empty_table_says_that_timing_is_off() -> None:
    gpuprof.disable()
    try:
        assert repr(Stats([])) == "no samples: timing is switched off (gpuprof.disable())"
    finally:
        gpuprof.enable()
    assert "around some code adds one" in repr(Stats([]))
