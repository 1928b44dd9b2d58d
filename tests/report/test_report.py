"""The report as a file: its parts, its text, and what is refused."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof import Stats
from tests.fake_driver.control import FakeCuda
from tests.report.contents import (
    BESIDE_TIME,
    COMPARED,
    CPU_ONLY,
    EVERYTHING,
    HISTORY,
    HOSTILE,
    LONG,
    RESULTS,
    SHOWN,
    STATS,
)
from tests.support.benchmark_results import bench, wavering
from tests.support.processes import check_python

PER_THREAD_STREAM = 2  # the driver's handle
EMPTY_ELEMENTS = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """The elements, the attributes and the texts of a page, which must be well nested."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.tables: list[list[list[str]]] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY_ELEMENTS:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if {"td", "th"} & {*self._open}:
            self.tables[-1][-1][-1] += data


def written(path: Path, **arguments: Any) -> Page:
    gpuprof.write_report(path, **arguments)
    return Page(path)


def test_a_report_has_the_figures_of_each_scope_in_its_tree(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", stats=STATS)
    ((head, *body),) = page.tables
    assert head[:6] == ["scope", "clock", "total", "self", "% parent", "count"]
    assert head[6:10] == ["GPU p50", "GPU mean", "GPU p99", "GPU max"]
    scopes = {line[0]: dict(zip(head, line, strict=True)) for line in body}
    assert [*scopes] == (["step", "fwd", "bwd", SHOWN, "eval", LONG, "later", "load"])
    assert scopes["fwd"]["GPU p99"] == "3.00 ms"
    assert scopes["fwd"]["% parent"] == "25.0"
    assert scopes["step"]["self"] == "2.50 ms"
    assert (scopes["fwd"]["notes"], scopes["later"]["notes"]) == ("3 dropped", "1 pending")
    assert (scopes["load"]["clock"], scopes["load"]["GPU p50"]) == ("cpu", "-")
    assert any("3 samples dropped" in text for text in page.text)


def test_bars_are_shares_of_all_time_on_the_clock(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", stats=STATS)
    bars = [found["style"] for _, found in page.elements if found.get("class") == "bar"]
    whole = 40.0 + 90.0 + 5.0
    assert bars[0] == f"width:{100 * 40 / whole:.1f}%"
    assert bars[-2:] == ["width:0.0%", "width:100.0%"]


def test_a_cpu_only_report_has_no_gpu_columns(tmp_path: Path) -> None:
    ((head, *_),) = written(tmp_path / "r.html", stats=CPU_ONLY).tables
    assert not [name for name in head if "GPU" in name]


def test_results_have_their_verdicts_rules_and_histograms(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", results=RESULTS)
    head, *body = page.tables[0]
    assert [line[0] for line in body] == ["quick", SHOWN, LONG]
    assert [line[head.index("verdict")] for line in body] == ["", "SLOW", ""]
    assert body[0][head.index("median")] == "524 µs"
    assert sum(tag == "svg" for tag, _ in page.elements) == 3
    assert any(f"slower {SHOWN}" in text for text in page.text)


def test_a_comparison_has_ratios_and_verdicts(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", results=COMPARED)
    head, *body = page.tables[0]
    assert [line[head.index("verdict")] for line in body] == ["", "SAME", "SLOW"]
    assert [line[head.index("ratio to base")] for line in body] == ["", "1.000", "1.500"]


def test_a_graph_is_drawn_or_listed(fake: FakeCuda, tmp_path: Path) -> None:
    with gpuprof.capture(PER_THREAD_STREAM, name=HOSTILE) as cap:
        fake.work(PER_THREAD_STREAM, 1)
    page = written(tmp_path / "r.html", graphs={"decode <b>": cap.graph})
    assert "decode <b>" in page.text
    assert SHOWN in page.text
    cap.graph.close()
    assert any("closed" in text for text in written(tmp_path / "r.html", graphs=cap.graph).text)


def test_a_history_has_a_plot_for_each_series(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", history=HISTORY)
    plots = [found for tag, found in page.elements if tag == "svg"]
    assert [found["aria-label"] for found in plots] == [
        f"{name} (baseline 'main', NVIDIA-H200)" for name in ("quick", SHOWN, LONG)
    ]
    assert sum(tag == "circle" for tag, _ in page.elements) == 6 + 6 + 1
    assert sum("stroke-dasharray" in found for _, found in page.elements) == 1
    assert any(text.startswith("changed at run 4 of 6") for text in page.text)
    page = written(tmp_path / "r.html", history={"main": HISTORY, "other": gpuprof.History([])})
    assert page.text.count("History: other") == 2
    assert "no saved runs" in page.text


def test_what_grew_beside_the_time_is_in_the_verdict_with_its_reason(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", results=BESIDE_TIME)
    head, few, grown = page.tables[0]
    verdict = head.index("verdict")
    assert (few[verdict], grown[verdict]) == ("SAME", "SAME, MEMORY, LAUNCHES")
    figures = dict(zip(head, grown, strict=True))
    assert figures["memory"] == "3.00 MiB"
    assert figures["launches"] == "3 kernels, 1 memory copy"
    assert f"grown: MEMORY: peak grew {SHOWN}" in page.text
    assert f"grown: LAUNCHES: launches more: {SHOWN}" in page.text
    assert "few: launches less: -1 sgemm" in page.text


def test_sections_are_named_by_the_keys_that_are_given(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", **EVERYTHING)
    links = [found["href"] for tag, found in page.elements if tag == "a"]
    assert links == [f"#part{place}" for place in range(5)]
    assert page.text.count("Scopes: train") == 2  # in the link, and as the heading
    assert page.text.count(f"Scopes: {SHOWN}") == 2
    assert page.text.count("Comparison") == 2


def test_no_text_is_markup_and_nothing_is_loaded(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", **EVERYTHING)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 1
    assert not {"img", "b", "link", "iframe", "object", "base", "form"} & {*tags} - {"b"}
    # The only bold text is gpuprof's own.
    assert tags.count("b") == len(RESULTS) + len(COMPARED)
    names = {name for _, found in page.elements for name in found}
    assert not [name for name in names if name.startswith("on") or name in {"src", "srcset"}]
    assert not re.search(r"@import|url\(", (tmp_path / "r.html").read_text("utf-8"))
    policy = next(
        found["content"] or ""
        for _, found in page.elements
        if found.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src" not in policy  # which then is as default-src


def test_several_of_a_kind_come_in_lists_and_tuples(tmp_path: Path) -> None:
    result = bench("other", wavering(1.0))
    page = written(tmp_path / "r.html", stats=[STATS, CPU_ONLY], results=(RESULTS[0], result))
    assert [len(table) for table in page.tables[:3]] == [9, 2, 3]
    assert len(written(tmp_path / "r.html", results=RESULTS[1]).tables[0]) == 2
    assert len(written(tmp_path / "r.html", results={"a": result}).tables[0]) == 2


def test_a_sweep_is_the_results_of_its_points(tmp_path: Path) -> None:
    swept = gpuprof.sweep(lambda n: lambda: n, {"n": [1, 2]}, warmup_s=0.0, max_time_s=0.01)
    assert len(written(tmp_path / "r.html", results=swept).tables[0]) == 3


def test_with_nothing_given_it_shows_this_process(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    check_python(f"""
        import gpuprof
        gpuprof.write_report({str(path)!r})
        assert "around some code adds one" in open({str(path)!r}).read()
        with gpuprof.timer("mine", backend="cpu"):
            pass
        gpuprof.write_report({str(path)!r}, title="A title")
    """)
    page = Page(path)
    assert page.tables[0][1][0] == "mine"
    assert page.text.count("A title") == 2


def test_statistics_without_rows_and_merged_ones_are_shown(tmp_path: Path) -> None:
    page = written(tmp_path / "r.html", stats=[Stats([]), STATS.merge(STATS)])
    ((head, *body),) = page.tables
    assert body[0][head.index("GPU p50")] == "-"
    assert body[0][head.index("GPU mean")] == "4.00 ms"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"stats": STATS["step"]}, "stats: expected Stats, or a list or dict of them, got a .*Row"),
        ({"stats": "stats.json"}, "stats: expected Stats, .* got 'stats.json'"),
        ({"results": [STATS]}, "results: expected a BenchResult, .* got a gpuprof.Stats"),
        ({"results": (1, 2, 3)}, "results: expected a BenchResult, .* got 1"),
        ({"results": [(1, 2)]}, "results: expected a BenchResult, .* got a tuple of 2"),
        ({"graphs": [3]}, "graphs: expected a CapturedGraph, .* got 3"),
        ({"history": 3}, "history: expected a History, or a list or dict of them, got 3"),
        ({"history": HISTORY.series}, "history: expected a History, .* got a .*HistorySeries"),
    ],
)
def test_other_arguments_are_refused_and_nothing_is_written(
    arguments: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match=why):
        gpuprof.write_report(tmp_path / "r.html", **arguments)
    assert not list(tmp_path.iterdir())


def test_a_title_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="title: expected a str, got 3"):
        gpuprof.write_report(tmp_path / "r.html", title=3)  # type: ignore[arg-type]


def test_many_results_keep_the_file_small(tmp_path: Path) -> None:
    many = [bench(f"test_{place}", wavering(1.0)) for place in range(1000)]
    page = written(tmp_path / "r.html", results=many)
    assert len(page.tables[0]) == 1001
    assert sum(tag == "details" for tag, _ in page.elements) == 300
    assert "700 more results have no histogram here" in page.text
    assert (tmp_path / "r.html").stat().st_size < 3 << 20
