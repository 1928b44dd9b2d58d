"""The examples of the pages run, and print what the pages show of them."""

from __future__ import annotations

import ast
import operator
import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.examples import (
    NEEDS,
    ROOT,
    WAYS,
    Example,
    all_examples,
    examples,
    run,
    run_example,
    without_figures,
)
from tests.docs.names import wrong_names
from tests.support.warm_torch import WarmTorch

EXAMPLES = all_examples()
HERE = {f"{way}{need}" for way in WAYS for need in NEEDS}
place = operator.attrgetter("place")


def ways(need: str) -> list[Example]:
    return [each for each in EXAMPLES if each.way in {f"{way}{need}" for way in WAYS}]


def problem(example: Example) -> str | None:
    """Return what is wrong with the mark of an example."""
    if example.way in HERE:
        return None
    if match := re.fullmatch(r"run by ([\w./]+\.py)", example.way):
        return None if (ROOT / match[1]).is_file() else f"{match[1]} does not exist"
    if re.fullmatch(r"not run: .+", example.way):
        return None
    return f"the mark above it is {example.way!r}; tests/docs/examples.py lists them"


def test_every_python_block_is_marked() -> None:
    wrong = {each.place: said for each in EXAMPLES if (said := problem(each))}
    assert wrong == {}


def test_a_block_without_a_mark_or_with_a_wrong_one_would_be_found() -> None:
    block = "```python\npass\n```\n"
    marks = {
        "": False,
        "<!-- example: run -->\n": True,
        "<!-- example: run -->\n\n": False,  # not directly above
        "<!-- example: runs -->\n": False,
        "<!-- example: run by tests/docs/examples.py -->\n": True,
        "<!-- example: run by tests/docs/gone.py -->\n": False,
        "<!-- example: not run: -->\n": False,
        "<!-- measured:end -->\n": False,
    }
    for mark, is_right in marks.items():
        (example,) = examples(f"Text.\n\n{mark}{block}", "page.md")
        assert (problem(example) is None) is is_right, mark


def test_code_before_a_block_and_earlier_blocks_are_part_of_it() -> None:
    text = (
        "<!-- example: run, after\na = 1\n-->\n```python\nb = a\n```\n\n```text\nout\n```\n"
        "<!-- example: run, continued, after\nc = 2\n-->\n```python\nprint(b, c)\n```\n"
    )
    first, second = examples(text, "page.md")
    assert (first.script, first.shown) == ("a = 1\nb = a\n", "out\n")
    assert (second.script, second.shown) == ("a = 1\nb = a\nc = 2\nprint(b, c)\n", None)
    assert second.place == "page.md:14"


@pytest.mark.parametrize("example", EXAMPLES, ids=place)
def test_examples_are_python_and_use_names_that_exist(example: Example) -> None:
    # Also those that need a GPU, which only a machine with one runs.
    assert wrong_names(ast.parse(example.script)) == []


def check(example: Example, folder: Path, **options: Any) -> None:
    done = run_example(example, folder, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    if example.shown is not None and not example.shown.startswith("$ "):
        assert without_figures(example.shown) == without_figures(done.stdout)
    elif example.way.startswith("run by pytest"):
        assert " passed" in done.stdout


@pytest.mark.parametrize("example", ways(""), ids=place)
def test_examples_run_and_print_what_the_page_shows(example: Example, tmp_path: Path) -> None:
    check(example, tmp_path)


# That of the README is in tests/docs/test_docs.py.
WITH_TORCH = [each for each in ways(" with torch") if each.page != "README.md"]


@pytest.mark.torch
@pytest.mark.parametrize("example", WITH_TORCH, ids=place)
def test_examples_with_torch_run_and_print_what_the_page_shows(
    example: Example, tmp_path: Path, warm_torch: WarmTorch
) -> None:
    check(example, tmp_path, by=warm_torch.run)


def test_a_script_that_prints_something_else_would_be_found(tmp_path: Path) -> None:
    text = "<!-- example: run -->\n```python\nprint('one', 1)\n```\n\n```text\ntwo 1\n```\n"
    (example,) = examples(text, "page.md")
    with pytest.raises(AssertionError):
        check(example, tmp_path)
    assert example.shown is not None
    assert without_figures(example.shown) == without_figures("two 22.5")
    assert without_figures(run("-c", example.script).stdout) == without_figures("one 1")
