"""The report as a browser shows it, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.report.contents import BESIDE_TIME, EVERYTHING, HISTORY, HOSTILE, LONG, SHOWN
from tests.support import chromium
from tests.support.chromium import Chromium

PER_THREAD_STREAM = 2  # the driver's handle
WIDE_DRAWING = """#!/bin/sh
cat > /dev/null
echo '<svg xmlns="http://www.w3.org/2000/svg" width="3000pt" height="90pt" viewBox="0 0 3000 90">'
echo '<text x="9" y="40">drawn</text></svg>'
"""
COMPLAINTS = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    if chromium.chromium() is None:
        pytest.skip("Chromium is not installed")
    with Chromium() as page:
        for domain in ("Network", "Log", "Runtime"):
            page.send(f"{domain}.enable")
        page.send(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        yield page


@pytest.fixture
def report(fake: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    dot = tmp_path / "dot"
    dot.write_text(WIDE_DRAWING)
    dot.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with gpuprof.capture(PER_THREAD_STREAM, name=HOSTILE) as cap:
        fake.work(PER_THREAD_STREAM, 1)
    path = tmp_path / "report.html"
    gpuprof.write_report(path, graphs=cap.graph, **EVERYTHING)
    return path


def opened(browser: Chromium, path: Path, width: int = 1200) -> Chromium:
    browser.resize(width, 900)
    browser.events.clear()
    browser.go(path.as_uri())
    return browser


def requests(page: Chromium) -> list[str]:
    return [
        event["params"]["request"]["url"]
        for event in page.events
        if event["method"] == "Network.requestWillBeSent"
    ]


def complaints(page: Chromium) -> list[dict[str, Any]]:
    return [event for event in page.events if event["method"] in COMPLAINTS]


def column(page: Chromium, heading: str, table: int = 0) -> list[str]:
    """Return the visible texts of a column, from the top."""
    found = page.evaluate(
        f"""((table) => {{
          const place = [...table.tHead.rows[0].cells].findIndex((e) => e.innerText == "{heading}");
          return [...table.tBodies[0].rows].map((row) => row.cells[place].innerText.trim());
        }})(document.querySelectorAll("table.sorted")[{table}])"""
    )
    assert isinstance(found, list)
    return found


def click(page: Chromium, heading: str, table: int = 0) -> str | None:
    """Click a heading as a hand does, and return how the column is sorted then."""
    button = f"""[...document.querySelectorAll("table.sorted")[{table}].querySelectorAll("button")]
        .find((e) => e.innerText == "{heading}")"""
    x, y = page.evaluate(
        f"""(({{left, top, width, height}}) => [left + width / 2, top + height / 2])
        ((({button}).scrollIntoView({{block: "center"}}), {button}).getBoundingClientRect())"""
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    order = page.evaluate(f"({button}).parentElement.getAttribute('aria-sort')")
    assert order is None or isinstance(order, str)
    return order


def test_it_opens_without_a_network_and_without_an_error(browser: Chromium, report: Path) -> None:
    page = opened(browser, report)
    assert requests(page) == [report.as_uri()]
    assert complaints(page) == []
    assert page.evaluate("document.title") == f"Nightly {SHOWN}"


def test_its_policy_stops_what_is_not_its_own(browser: Chromium, report: Path) -> None:
    # Were a name once not escaped, the browser would still not run it, and not load what it names.
    text = report.read_text("utf-8")
    injected = """<main><script>document.title = "owned"</script>
        <img src="http://127.0.0.1:9/x.png" onerror="document.title = 'owned'">
        <script src="http://127.0.0.1:9/x.js"></script>"""
    report.write_text(text.replace("<main>", injected), "utf-8")
    page = opened(browser, report)
    assert page.evaluate("document.title") == f"Nightly {SHOWN}"
    blocked = [
        event["params"].get("blockedReason")
        for event in page.events
        if event["method"] == "Network.loadingFailed"
    ]
    assert blocked == ["csp", "csp"]
    assert len(complaints(page)) == 4


def test_names_stay_text(browser: Chromium, report: Path) -> None:
    page = opened(browser, report)
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.scripts.length") == 1
    names = column(page, "scope")
    assert names[:5] == ["step", "fwd", "bwd", SHOWN, "eval"]
    assert LONG in names


def test_tables_show_figures_and_verdicts(browser: Chromium, report: Path) -> None:
    page = opened(browser, report)
    assert column(page, "GPU mean")[:3] == ["4.00 ms", "1.00 ms", "2.50 ms"]
    assert column(page, "verdict", 2) == ["", "SLOW", ""]
    assert column(page, "verdict", 3) == ["", "SAME", "SLOW"]


def test_what_grew_beside_the_time_is_red_and_sorted_as_numbers(
    browser: Chromium, tmp_path: Path
) -> None:
    path = tmp_path / "grown.html"
    gpuprof.write_report(path, results=BESIDE_TIME)
    page = opened(browser, path)
    assert column(page, "verdict") == ["SAME", "SAME, MEMORY, LAUNCHES"]
    same_colour = page.evaluate(
        """((style) => style("$=LAUNCHES").color == style("=SAME").color)(
          (value) => getComputedStyle(document.querySelector(`td[data-value${value}]`)))"""
    )
    assert same_colour is False
    # It is seen without scrolling.
    assert (
        page.evaluate(
            "document.querySelector('[data-value$=LAUNCHES]').getBoundingClientRect().right"
        )
        < 800
    )
    assert click(page, "launches") == "descending"
    assert column(page, "launches") == ["30 kernels", "3 kernels, 1 memory copy"]
    assert click(page, "memory") == "descending"
    assert column(page, "memory") == ["3.00 MiB", ""]


def test_each_history_is_drawn_within_the_page(browser: Chromium, report: Path) -> None:
    page = opened(browser, report, 400)
    boxes = page.evaluate(
        """[...document.querySelectorAll(".plot svg")].map((plot) => {
          const {width, height} = plot.getBoundingClientRect();
          return [plot.querySelectorAll("circle").length, width > 200, width <= innerWidth,
                  Math.abs(width / height - 3.6) < 0.1];
        })"""
    )
    assert boxes == [[len(each.points), True, True, True] for each in HISTORY.series]
    inside = page.evaluate(
        """[...document.querySelectorAll(".plot circle")].every((dot) => {
          const outer = dot.closest("svg").getBoundingClientRect();
          const inner = dot.getBoundingClientRect();
          return inner.top >= outer.top && inner.bottom <= outer.bottom
            && inner.left >= outer.left && inner.right <= outer.right;
        })"""
    )
    assert inside
    # What stands beside the pointer is text, whatever the commit and the machine are.
    title = page.evaluate(
        "document.querySelector('.plot circle').parentNode.firstChild.textContent"
    )
    assert SHOWN in title
    assert complaints(page) == []


def test_a_click_sorts_within_the_tree_and_a_third_one_restores(
    browser: Chromium, report: Path
) -> None:
    page = opened(browser, report)
    hostile, before = SHOWN, column(page, "scope")
    assert click(page, "total") == "descending"
    assert column(page, "scope") == (["eval", "step", "bwd", "fwd", hostile, LONG, "load", "later"])
    assert click(page, "total") == "ascending"
    assert column(page, "scope") == (["load", LONG, "step", hostile, "fwd", "bwd", "eval", "later"])
    assert click(page, "total") is None
    assert column(page, "scope") == before
    assert click(page, "scope") == "ascending"
    assert column(page, "scope")[:3] == [LONG, "eval", "later"]
    assert complaints(page) == []


def test_numbers_are_sorted_as_numbers_and_texts_as_texts(browser: Chromium, report: Path) -> None:
    page = opened(browser, report)
    click(page, "median", 2)
    assert column(page, "median", 2) == ["31.5 ms", "2.10 ms", "524 µs"]
    click(page, "verdict", 2)
    assert column(page, "verdict", 2) == ["SLOW", "", ""]
    assert column(page, "scope")[0] == "step"  # the other tables stay


def test_headings_can_be_reached_and_pressed_with_the_keyboard(
    browser: Chromium, report: Path
) -> None:
    page = opened(browser, report)
    page.evaluate("document.querySelectorAll('table.sorted button')[2].focus()")
    for kind in ("keyDown", "keyUp"):
        page.send(
            "Input.dispatchKeyEvent",
            type=kind,
            key="Enter",
            code="Enter",
            text="\r" if kind == "keyDown" else "",
            windowsVirtualKeyCode=13,
        )
    assert column(page, "scope")[0] == "eval"


@pytest.mark.parametrize("width", [320, 400, 800, 1600])
def test_the_page_is_never_wider_than_the_screen(
    browser: Chromium, report: Path, width: int
) -> None:
    page = opened(browser, report, width)
    page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # What is wider scrolls by itself.
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every((e) => e.clientWidth <= innerWidth)"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('svg text')].some((e) => e.textContent == 'drawn')"
    )


def test_it_is_dark_for_those_who_like_it_dark(browser: Chromium, report: Path) -> None:
    found = {}
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.send("Emulation.setEmulatedMedia", features=[feature])
        page = opened(browser, report)
        found[scheme] = page.evaluate(
            "((style) => [style.backgroundColor, style.color])(getComputedStyle(document.body))"
        )
    browser.send("Emulation.setEmulatedMedia", features=[])
    assert found["light"][0] == "rgb(255, 255, 255)"
    assert brightness(found["dark"][0]) < 60
    assert brightness(found["dark"][1]) > 200


def brightness(colour: str) -> float:
    parts = [int(each) for each in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(parts) / 3
