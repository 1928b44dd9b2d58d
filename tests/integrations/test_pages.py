"""The scripts of the pages on JAX and Ray run and print what the pages show."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.docs.examples import Example, all_examples, run_example, without_figures

MODULES = {"jax": "JAX", "ray": "Ray"}
EXAMPLES = [
    each
    for each in all_examples()
    if each.way == "run by tests/integrations/test_pages.py" and each.shown
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: Path(example.page).stem)
def test_scripts_run_and_print_what_the_page_shows(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else Ray writes a token into the home folder
    module = Path(example.page).stem
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{MODULES[module]} is not installed")
    done = run_example(example, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert example.shown is not None
    assert without_figures(done.stdout) == without_figures(example.shown)


def test_each_page_has_a_script() -> None:
    assert [Path(each.page).stem for each in EXAMPLES] == sorted(MODULES)
