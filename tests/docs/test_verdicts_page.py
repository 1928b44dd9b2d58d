"""The page on verdicts says what verdicts say, and the simulation finds what it promises."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.results.test_verdict import judge, run, runs
from tests.support.processes import ROOT


def test_the_simulation_finds_what_the_page_says(benchmark_scripts: Path) -> None:
    power = importlib.import_module("verdict_power")
    models = importlib.import_module("support.noise_models")
    assert power.shares(models.STEADY_MODES, 1.1, 10)["SLOW"] == 100.0
    unchanged = power.shares(models.STEADY_MODES, 1.0, 10)
    assert unchanged["SLOW"] == unchanged["FAST"] == 0.0
    assert len({model.name for model in models.MODELS}) == len(models.MODELS) == 30


def test_what_rules_are_not_good_at_shows_in_the_simulation(benchmark_scripts: Path) -> None:
    power = importlib.import_module("verdict_power")
    models = {each.name: each for each in importlib.import_module("support.noise_models").MODELS}
    states = power.shares(models["two layouts 12 % apart, 50 and 50 %"], 1.0, 40)
    assert states["min:5%"] > 0.0
    assert states["Mann-Whitney"] > 0.0
    assert power.shares(models["runs drift by 4 %"], 1.1, 40)["SLOW"] < 100.0


def test_the_sentences_on_the_page_are_those_that_are_said() -> None:
    page = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    base = runs(1.0, 1.01, 0.99, 1.0, 1.01)
    noisy = runs(1.0, 1.03, 0.98, 1.02, 0.97)
    assert f"```text\n{judge(noisy, runs(1.07))}\n```\n" in page
    for stored in (base, [*base, run(1.15)]):
        assert f"```text\n{judge(stored, runs(1.12), baseline='main')}\n```\n" in page
