"""The documentation is true: commands are there, names exist, links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprof import errors
from tests.docs.examples import FENCE, PAGES, ROOT, blocks, examples, name_of, run_example
from tests.support.warm_torch import WarmTorch

README = ROOT / "README.md"

SETUP = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/gpuprof demo"
TESTS = (
    "python3 -m venv .venv && .venv/bin/pip install '.[test]' && .venv/bin/python -m pytest -n auto"
)

_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.M)


@pytest.mark.parametrize("command", [SETUP, TESTS])
def test_the_readme_has_each_set_up_command_once_in_a_block_of_its_own(command: str) -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count(command) == 1
    assert f"{command}\n" in blocks(text, "sh")


def test_the_readme_is_short_and_has_one_picture() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert len(re.findall(r"^!\[", text, re.M)) == 1


def test_the_start_page_lists_no_page_twice_and_has_a_picture() -> None:
    page = ROOT / "docs" / "index.md"
    text = page.read_text(encoding="utf-8")
    lists = re.findall(r"^```\{toctree\}\n((?:.+\n)*)\n((?:.+\n)+)```$", text, re.M)
    listed = [name for _, names in lists for name in names.split()]
    listed += [path.relative_to(page.parent).stem for path, _ in targets(page)]
    assert len(listed) > 40
    assert len(listed) == len({*listed})
    assert re.search(r"^!\[", text, re.M)


def test_examples_can_be_pasted() -> None:
    # A prompt cannot. What a script prints stands in a block of its own.
    assert not [name_of(page) for page in PAGES if ">>> " in page.read_text(encoding="utf-8")]


def columns(table: str) -> tuple[list[str], list[int]]:
    """Return the headings of a printed table, and how many words each of its rows has."""
    others = ("clock:", "---", "torch memory on")  # the last one is below what ran on a GPU
    lines = [line.split() for line in table.splitlines() if not line.startswith(others)]
    units = {"ns", "µs", "ms", "s"}
    return lines[0], [len([word for word in line if word not in units]) for line in lines[1:]]


@pytest.mark.torch
def test_the_example_of_the_readme_runs_and_prints_a_table_like_that(
    tmp_path: Path, warm_torch: WarmTorch
) -> None:
    text = README.read_text(encoding="utf-8")
    (example,) = [each for each in examples(text, "README.md") if each.way == "run with torch"]
    done = run_example(example, tmp_path, warm_torch.run)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = blocks(text, "text")[0]
    heading, figures = columns(shown)
    printed = columns(done.stdout)
    assert heading[1:3] == ["GPU", "p50"]
    if "GPU" not in printed[0]:  # a machine without one, whose table has no such column
        del heading[1:3]
        figures = [count - 1 for count in figures]
    assert (heading, figures) == printed


def targets(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield where the links of a page lead, as file and anchor, leaving other sites out."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        yield (page.parent / path).resolve() if path else page, anchor


def anchors(page: Path) -> set[str]:
    titles = _HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_local_files_lead_somewhere(page: Path) -> None:
    broken = [
        f"{path}#{anchor}"
        for path, anchor in targets(page)
        if not path.exists() or (anchor and anchor not in anchors(path))
    ]
    assert not broken


def test_every_promise_names_its_test_file() -> None:
    text = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (P\d+) \|.*\| `(test_p\d\d_\w+\.py)` \|$", text, re.M)
    assert [promise for promise, _ in rows] == [f"P{number}" for number in range(1, 11)]
    named = {file for _, file in rows}
    there = {path.name for path in (ROOT / "tests" / "promises").glob("test_p*.py")}
    assert named == there


def test_the_api_page_names_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    public = re.findall(r"^\.\. auto(?:function|class):: ([\w.]+)$", reference, re.M)
    public = [name.removeprefix("gpuprof.") for name in public]
    public += [name for name in errors.__all__ if name.endswith("Error")]
    assert len(public) > 80
    assert not {*public} - {*re.findall(r"`([\w.]+)[`(]", text)}
    assert "```{" not in text  # readable where Sphinx is not


def test_the_pages_speak_of_every_variable_that_is_read() -> None:
    # `gpuprof info` shows variables and reads none.
    sources = {*ROOT.glob("src/**/*.[ch]pp"), *ROOT.glob("python/gpuprof/**/*.py")}
    sources.remove(ROOT / "python" / "gpuprof" / "_cli" / "info.py")
    read = {
        name
        for source in sources
        for name in re.findall(r'"(GPUPROF_[A-Z_]+)"', source.read_text(encoding="utf-8"))
        if not name.endswith("_VERSION")
    }
    page = (ROOT / "docs" / "timing.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(GPUPROF_[A-Z_]+)", page, re.M))
    assert read == documented


def test_quoted_messages_are_what_the_sources_say() -> None:
    sources = [*ROOT.glob("src/**/*.cpp"), *ROOT.glob("python/gpuprof/**/*.py")]
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    said = re.sub(r'"\s*"', "", text).replace('\\"', '"')  # literals side by side are one
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    quotes = re.findall(r"^> (.+)$", page, re.M)
    assert len(quotes) > 5
    parts = [part for quote in quotes for part in quote.split("...") if part]
    assert not [part for part in parts if part.strip() not in said]


def test_the_map_for_contributors_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:src|python|tests|benchmarks|docs|\.ci)/[\w./]+)`", text))
    assert len(named) > 80
    assert not {name for name in named if not (ROOT / name).exists()}


def test_the_page_on_dependencies_names_files_and_extras_that_are_there() -> None:
    text = (ROOT / "docs" / "design" / "dependencies.md").read_text(encoding="utf-8")
    files = set(re.findall(r"`((?:src|python)/[\w/]+\.\w+)`", text))
    assert len(files) > 12
    assert not {name for name in files if not (ROOT / name).is_file()}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = set(re.findall(r"as the extra `(\w+)`", text))
    assert extras
    assert not {extra for extra in extras if not re.search(rf"^{extra} = \[", project, re.M)}


def test_the_map_for_contributors_has_a_line_for_each_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = {f"src/{path.name}/" for path in (ROOT / "src").iterdir() if path.is_dir()}
    packages |= {f"{path.parent.name}/" for path in ROOT.glob("python/gpuprof/*/__init__.py")}
    assert not {package for package in packages if f"| `{package}` |" not in text}
