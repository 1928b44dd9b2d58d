"""The simulation finds what the page on verdicts promises."""

from __future__ import annotations

import importlib
from pathlib import Path


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
