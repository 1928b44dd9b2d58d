"""Plots of a series of values: as text, and as SVG that a strict parser reads."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from gpuprof._display.series_plot import Mark, stacked, svg, text

SVG = "{http://www.w3.org/2000/svg}"
ENDS = ("first", "last")


def marks(*values: float, around: float = 0.0) -> list[Mark]:
    return [Mark(value, value - around, value + around, f"run {value}") for value in values]


def test_text_has_the_values_between_the_two_labels() -> None:
    lines = text(marks(1.0, 2.0, 3.0), None, ENDS)
    assert lines[0].split()[:2] == ["3.0", "ms"]
    assert lines[7].split()[:2] == ["1.0", "ms"]
    columns = {line.index("o"): number for number, line in enumerate(lines) if "o" in line}
    assert [columns[place] for place in sorted(columns)] == [7, 4, 0]
    assert lines[-1].split() == ["first", "last"]


def test_text_shows_intervals_the_change_and_what_is_not_compared() -> None:
    found = [*marks(2.0, around=1.0), Mark(2.0, 2.0, 2.0, faint=True), *marks(2.0)]
    lines = text(found, 2, ENDS)
    body = "\n".join(lines)
    assert (body.count("o"), body.count(".")) == (2, 1 + lines[0].count(".") + lines[7].count("."))
    assert body.count(":") == 8
    assert sum("|" in line.partition("|")[2] for line in lines[:8]) == 7  # less the value itself


def test_one_wide_interval_does_not_squeeze_the_values() -> None:
    found = [*marks(1.0, 1.5), Mark(1.2, 0.5, 70.0), *marks(2.0)]
    lines = text(found, None, ENDS)
    assert lines[0].split()[:2] == ["2.5", "ms"]
    rows = [number for number, line in enumerate(lines) if "o" in line]
    assert rows[-1] - rows[0] >= 3
    root = ElementTree.fromstring(svg(found, None, ENDS, "title"))
    heights = [float(each.get("y1", "nan")) for each in root.findall(f".//{SVG}g/{SVG}line")]
    assert min(heights) >= 28.0


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [0.0], [1e-9, 5e5], [1.0] * 100])
def test_any_values_can_be_drawn(values: list[float]) -> None:
    lines = text(marks(*values), None, ENDS)
    assert len(lines) == 10
    assert max(map(len, lines)) <= 120
    ElementTree.fromstring(svg(marks(*values), None, ENDS, "title"))


def test_svg_has_a_point_for_each_value_and_a_line_at_the_change() -> None:
    root = ElementTree.fromstring(svg(marks(1.0, 2.0, 3.0), 1, ENDS, "steps"))
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


def test_names_are_no_markup() -> None:
    odd = '<script>&"\x1b\x00'
    found = [Mark(1.0, 1.0, 1.0, odd)]
    root = ElementTree.fromstring(svg(found, None, (odd, odd), odd))
    assert not root.findall(f".//{SVG}script")
    assert odd[:9] in str(root.get("aria-label"))
    assert "\x1b" not in "".join(text(found, None, (odd, odd)))


def test_stacked_plots_are_one_document() -> None:
    one = svg(marks(1.0), None, ENDS, "one")
    root = ElementTree.fromstring(stacked([one, svg(marks(2.0), None, ENDS, "two")]))
    places = [each.get("transform") for each in root.findall(f"{SVG}g") if each.find(f"{SVG}svg")]
    assert places == ["translate(0 0)", "translate(0 200)"]
    assert root.get("height") == "400"
    ElementTree.fromstring(stacked([]))
