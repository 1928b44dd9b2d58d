"""Box plots as SVG: well-formed whatever the names and times are, with a readable axis."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from gpuprof._display.boxes import Box, svg

MS = (1.0, "ms")


def box(name: str, median: float, *, mark: float | None = None, outside: int = 0) -> Box:
    times = [median * factor for factor in (0.9, 0.95, 1.0, 1.05, 1.1)]
    return Box(name, *times, outside=outside, mark=mark)


def drawn(*boxes: Box, title: str = "a title") -> ET.Element:
    return ET.fromstring(svg(boxes, title, MS))


def texts(root: ET.Element) -> list[str]:
    return [each.text or "" for each in root.iter() if each.tag.endswith("}text")]


def test_names_are_text_and_no_markup() -> None:
    names = ["<script>", "a & b", 'quo"te', "nul\0", "\ud800", "日本語", "x" * 500, ""]
    root = drawn(*(box(name, 1.0) for name in names), title="<b>\x1b[31m")
    shown = texts(root)
    assert "<script>" in shown
    assert "a & b" in shown
    assert "<b>\\x1b[31m" in shown
    assert not [each for each in root.iter() if each.tag.endswith(("script", "}b"))]


def test_the_axis_covers_all_rows_with_a_few_ticks() -> None:
    root = drawn(box("a", 1.0), box("b", 3.0, mark=4.0))
    ticks = [float(text) for text in texts(root) if text.replace(".", "").isdigit()]
    assert ticks == sorted(ticks)
    assert 4 <= len(ticks) <= 9
    assert ticks[0] <= 0.9
    assert ticks[-1] >= 4.0
    assert "dashed: the baseline" in texts(root)
    xs = [float(each.get("x1", "0")) for each in root.iter() if each.tag.endswith("}line")]
    assert max(xs) <= float(root.get("width", "0"))


@pytest.mark.parametrize("ms", [0.0, 1e-9, 5e-324, 1e9, 1e300])
def test_any_time_can_be_drawn(ms: float) -> None:
    equal = Box("same", ms, ms, ms, ms, ms)
    assert "same" in texts(drawn(equal))
    assert "nan" not in svg([equal], "", MS)


def test_samples_further_out_are_counted_in_the_tooltip() -> None:
    root = drawn(box("a", 1.0, outside=1234))
    (tip,) = (each.text for each in root.iter() if each.tag.endswith("}title"))
    assert tip is not None
    assert tip.startswith("a: median 1.00 ms, quartiles ")
    assert "1,234 samples further out" in tip
