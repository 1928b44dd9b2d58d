"""The examples of the pages: which Python blocks there are, how each is run, and running them.

Each Python block has a mark directly above it, an HTML comment that readers do not see:

    <!-- example: run -->                      a script; what it prints may stand below it
    <!-- example: run with torch -->           the same, with torch on the CPU
    <!-- example: run on a GPU -->             with torch on a GPU; what it prints is not compared
    <!-- example: run by pytest -->            a file of tests
    <!-- example: run by pytest with torch -->
    <!-- example: run by pytest on a GPU -->
    <!-- example: run by tests/run/test_x.py --> that file runs it
    <!-- example: not run: WHY -->

`, continued` behind it puts the page's previous example before the block, and `, after` puts there
what follows in the comment: code that the reader is spared.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tests.support.processes import run_command

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts),
    ]
)
FENCE = re.compile(
    r"^(?P<fence>```+)(?P<kind>[^\n`]*)\n(?P<code>.*?)^(?P=fence)[ \t]*$", re.M | re.S
)
WAYS = ("run", "run by pytest")
NEEDS = ("", " with torch", " on a GPU")

_MARK = re.compile(
    r"<!-- example: (?P<way>[^\n]+?)(?P<continued>, continued)?"
    r"(?: -->|, after\n(?P<before>.*?)-->)\n\Z",
    re.S,
)


@dataclass(frozen=True)
class Example:
    """A Python block of a page, with what its mark says and the output that directly follows."""

    page: str
    line: int
    way: str
    before: str
    code: str
    shown: str | None

    @property
    def script(self) -> str:
        """The whole program, with what stands before the block."""
        return self.before + self.code

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    """Return the path of a page as the pages of a checkout have it."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str, kind: str) -> list[str]:
    """Return the fenced blocks of a kind."""
    return [found["code"] for found in FENCE.finditer(text) if found["kind"].strip() == kind]


def examples(text: str, page: str) -> list[Example]:
    """Return the Python blocks of a page; one without a mark has an empty way."""
    fences = list(FENCE.finditer(text))
    found: list[Example] = []
    for block, after in zip_longest(fences, fences[1:]):
        if block["kind"].strip() not in {"python", "py"}:
            continue
        mark = _MARK.match(text, max(text.rfind("<!--", 0, block.start()), 0), block.start())
        follows = (
            after and after["kind"] == "text" and not text[block.end() : after.start()].strip()
        )
        before = (mark["before"] or "") if mark else ""
        if mark and mark["continued"]:
            before = found[-1].script + before
        line = text[: block.start()].count("\n") + 1
        way = mark["way"] if mark else ""
        shown = after["code"] if after and follows else None
        found.append(Example(page, line, way, before, block["code"], shown))
    return found


def all_examples() -> list[Example]:
    """Return the Python blocks of all pages."""
    return [
        each for page in PAGES for each in examples(page.read_text(encoding="utf-8"), name_of(page))
    ]


def of_integration(name: str) -> list[Example]:
    """Return the Python blocks of a page on an integration; the first may be one to copy."""
    page = ROOT / "docs" / "integrations" / f"{name}.md"
    return examples(page.read_text(encoding="utf-8"), name_of(page))


def run(
    *arguments: str, folder: str | Path = ROOT, visible: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python afresh; without visible GPUs the examples show the CPU clock."""
    hidden = {} if visible else {"CUDA_VISIBLE_DEVICES": ""}
    return run_command(sys.executable, *arguments, cwd=Path(folder), timeout=240, **hidden)


def run_example(
    example: Example, folder: Path, by: Callable[..., subprocess.CompletedProcess[str]] = run
) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder of its own, where it may write files."""
    if not example.way.startswith("run by pytest"):
        # From a file: what compiles functions wants to read their source.
        (folder / "example.py").write_text(example.script, encoding="utf-8")
        warnings = ["-W", "error"]
        if "torch" in example.way:  # which uses what it deprecates itself
            warnings += ["-W", "ignore::DeprecationWarning", "-W", "ignore::FutureWarning"]
        elif "GPU" in example.way:  # where torch may also warn of the machine
            warnings = ["-W", "error:::__main__"]
        return by(*warnings, "example.py", folder=folder)
    (folder / "test_example.py").write_text(example.script, encoding="utf-8")
    options = ("-p", "no:cacheprovider", "-q", "--rootdir", str(folder), "test_example.py")
    return by("-m", "pytest", *options, folder=folder)


def without_figures(output: str) -> list[list[str]]:
    """Return the words of an output, every figure replaced and units and padding left out."""
    lines = [re.sub(r"-{5,}", "rule", line).split() for line in output.splitlines()]
    units = {"ns", "µs", "ms", "s"}
    return [
        [re.sub(r"\d[\d.,]*", "#", word) for word in line if word.rstrip(",") not in units]
        for line in lines
    ]
