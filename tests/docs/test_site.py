"""The built pages: no warnings, a search that finds, and versions side by side in one folder."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.examples import ROOT, run
from tests.support import chromium
from tests.support.chromium import Chromium

SCRIPT = str(ROOT / "docs" / "build_site.py")
LISTED = "[...document.querySelectorAll('#site-version option')].map((e) => e.text)"


def build(version: str, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(SCRIPT, "--version", version, "--out", str(out), *arguments)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the pages as they are; return the folder of the version."""
    out = tmp_path_factory.mktemp("site")
    done = build("1.0", out)
    assert done.returncode == 0, done.stderr
    return out / "1.0"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build two releases and a development version of a small set of pages."""
    folder = tmp_path_factory.mktemp("small")
    source = folder / "source"
    source.mkdir()
    (source / "index.md").write_text("# Start\n\n```{toctree}\ntopic\n```\n", encoding="utf-8")
    (source / "topic.md").write_text("# Topic\n\nWords.\n", encoding="utf-8")
    for version in ("1.9", "dev", "1.10"):
        if version == "1.10":
            (source / "index.md").write_text(
                "# Start\n\n```{toctree}\ntopic\nnew\n```\n", encoding="utf-8"
            )
            (source / "new.md").write_text("# New\n\nWords.\n", encoding="utf-8")
        done = build(version, folder / "site", "--source", str(source))
        assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    if chromium.chromium() is None:
        pytest.skip("Chromium is not installed")
    with Chromium() as page:
        yield page


def test_the_pages_build_without_warnings(pages: Path) -> None:
    assert (pages / "index.html").is_file()


def test_the_pages_load_nothing_from_elsewhere(pages: Path) -> None:
    for page in ("index.html", "search.html", "design/index.html"):
        text = (pages / page).read_text(encoding="utf-8")
        assert 'src="http' not in text
        assert '<link rel="stylesheet" type="text/css" href="http' not in text


def test_the_search_index_has_pages_by_their_words(pages: Path) -> None:
    text = (pages / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    found = index["terms"]["perfetto"]
    names = {index["docnames"][each] for each in ([found] if isinstance(found, int) else found)}
    assert "trace" in names
    assert "gpuprof" in index["objects"]


def test_the_search_works_from_a_disk(pages: Path, browser: Chromium) -> None:
    browser.go(f"{(pages / 'search.html').as_uri()}?q=calibrate")
    browser.wait_for("document.querySelector('#search-results li') !== null")
    links = browser.evaluate(
        "[...document.querySelectorAll('#search-results li a')].map((e) => e.href)"
    )
    assert f"{(pages / 'reference.html').as_uri()}#gpuprof.calibrate" in links


def test_tables_fit_a_screen_of_1280_pixels(pages: Path, browser: Chromium) -> None:
    wide = """[...document.querySelectorAll(".table-wrapper")]
        .filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.scrollWidth)"""
    found = {}
    browser.resize(1280, 800)
    for page in sorted(pages.rglob("*.html")):
        browser.go(page.as_uri())
        if widths := browser.evaluate(wide):
            found[page.relative_to(pages).as_posix()] = widths
    assert found == {}


def test_versions_are_listed_the_newest_release_first(site: Path) -> None:
    versions = json.loads((site / "versions.json").read_text(encoding="utf-8"))
    assert [(each["version"], each["newest"]) for each in versions] == [
        ("1.10", True),
        ("1.9", False),
        ("dev", False),
    ]
    for each in versions:
        assert "topic.html" in each["pages"]
        assert all((site / each["version"] / page).is_file() for page in each["pages"])
    assert "new.html" in versions[0]["pages"]
    assert "new.html" not in versions[1]["pages"]
    script = (site / "versions.js").read_text(encoding="utf-8")
    assert json.loads(script.removeprefix("window.gpuprofVersions = ").rstrip(";\n")) == versions


def test_only_versions_are_left_in_the_folder(site: Path) -> None:
    assert {path.name for path in site.iterdir()} == {
        *("1.9", "1.10", "dev"),
        *("index.html", "versions.json", "versions.js", ".nojekyll"),
    }


def test_a_build_with_a_warning_leaves_the_site_as_it_was(site: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    (tmp_path / "index.md").write_text("# Start\n\n[none](nowhere.md)\n", encoding="utf-8")
    done = build("1.9", site, "--source", str(tmp_path))
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr
    assert "1.9 was not built; the site is as it was" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in before if path != site} == {
        path: at for path, at in before.items() if path != site
    }


def test_a_version_that_is_no_folder_of_the_site_is_refused(tmp_path: Path) -> None:
    done = build("../1.0", tmp_path / "site")
    assert done.returncode == 2
    assert "expected letters, digits" in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_the_site_leads_to_the_newest_release(site: Path, browser: Chromium) -> None:
    browser.go((site / "index.html").as_uri())
    start = (site / "1.10" / "index.html").as_uri()
    browser.wait_to_be_at(start)


def choose(browser: Chromium, version: str) -> None:
    browser.evaluate(
        f"""((list) => {{ list.value = {version!r}; list.dispatchEvent(new Event("change")); }})
        (document.getElementById("site-version"))"""
    )


def test_each_page_lists_the_versions_and_leads_to_the_same_page_of_another(
    site: Path, browser: Chromium
) -> None:
    browser.go((site / "1.9" / "topic.html").as_uri())
    shown = browser.evaluate(LISTED)
    assert shown == ["1.10 (newest)", "1.9", "dev"]
    assert browser.evaluate("document.getElementById('site-version').value") == "1.9"
    choose(browser, "1.10")
    there = (site / "1.10" / "topic.html").as_uri()
    browser.wait_to_be_at(there)
    browser.go((site / "1.10" / "new.html").as_uri())
    choose(browser, "dev")  # which does not have that page
    start = (site / "dev" / "index.html").as_uri()
    browser.wait_to_be_at(start)


def test_pages_in_folders_find_the_list(pages: Path, browser: Chromium) -> None:
    browser.go((pages / "design" / "timing.html").as_uri())
    shown = browser.evaluate(LISTED)
    assert shown == ["1.0 (newest)"]
