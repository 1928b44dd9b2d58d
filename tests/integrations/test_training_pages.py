"""The scripts of the pages on training run, and their tables have the rows that the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.examples import of_integration, without_figures
from tests.support.training_loops import framework

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

FRAMEWORKS = {
    "accelerate": "accelerate",
    "dataloader": "torch",
    "lightning": "lightning.pytorch",
    "transformers": "transformers",
}


# In this process, for the frameworks take seconds to import.
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_script_of_a_page_prints_the_table_that_the_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    framework(FRAMEWORKS[name], name)
    example = of_integration(name)[-1]
    monkeypatch.chdir(tmp_path)
    exec(compile(example.script, example.page, "exec"), {"__name__": "__main__"})
    printed = without_figures(capsys.readouterr().out)
    assert example.shown is not None
    assert [line for line in without_figures(example.shown) if line not in printed] == []
