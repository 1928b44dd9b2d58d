"""The examples of the pages that need a GPU, each in a process of its own."""

from __future__ import annotations

import functools
import operator
from pathlib import Path

import pytest

from tests.docs.examples import WAYS, Example, all_examples, run, run_example

EXAMPLES = [each for each in all_examples() if each.way in {f"{way} on a GPU" for way in WAYS}]


@pytest.mark.parametrize("example", EXAMPLES, ids=operator.attrgetter("place"))
def test_examples_run_on_a_gpu(example: Example, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = run_example(example, tmp_path, functools.partial(run, visible="all"))
    assert done.returncode == 0, done.stdout + done.stderr
    # A test that was skipped is not a test that ran.
    if example.way.startswith("run by pytest"):
        assert " passed" in done.stdout
        assert " skipped" not in done.stdout
