"""What the page on verdicts shows of a result; the simulation finds what the page promises."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def page(benchmark_scripts: Path) -> Any:
    return importlib.import_module("render").PAGES["verdicts"]


@pytest.fixture
def result(results: Any) -> Any:
    rows = [
        results.Row("false SLOW", 0.25, "%", target=1.0),
        results.Row("missed", 7.5, "%", target=5.0),
        results.Row("drift", 1.25, "%"),
    ]
    machine = {"gpu": "Some GPU", "driver": "580.1", "cpu": "Some CPU", "os": "Linux"}
    versions = {"python": "3.12.3", "gpuprof": "0.1.0"}
    return results.Result("benchmark_verdicts", "2026-01-31", machine, versions, rows, ["a note"])


def test_a_share_stands_beside_what_was_asked_for(page: Any, result: Any, results: Any) -> None:
    results.validate(result.to_dict())
    shown = page.render([result]).splitlines()
    assert shown[0].startswith("Measured on 2026-01-31 on an Some GPU, driver 580.1")
    assert "| what | measured | target | met |" in shown  # no column of ratios: there is none
    assert "| false SLOW | 0.25 % | at most 1.00 % | yes |" in shown
    assert "| missed | 7.50 % | at most 5.00 % | **no** |" in shown
    assert "| drift | 1.25 % |  |  |" in shown
    assert "- A note." in shown


def test_results_of_other_scripts_are_not_shown(page: Any, result: Any) -> None:
    from dataclasses import replace

    assert page.render([replace(result, script="timing_import")]) == (
        "Nothing has been measured yet.\n"
    )
    with pytest.raises(ValueError, match="verdicts:begin"):
        page.replace("no marks", "")


def test_a_small_simulation_keeps_the_promises_at_1_percent_drift(benchmark_scripts: Path) -> None:
    simulation = importlib.import_module("support.verdict_simulation").Simulation(seed=1)
    machine = simulation.drifting(0.01)
    assert simulation.slow_share(machine, 1.0, 200) == 0.0
    assert simulation.slow_share(machine, 1.12, 60) > 0.95
    assert simulation.slow_share_in_turns(0.01, 1.0, 60) == 0.0
    assert simulation.slow_share_in_turns(0.01, 1.05, 60) > 0.95


def test_a_simulated_slow_run_in_five_is_found_out(benchmark_scripts: Path) -> None:
    # What the rule is not good at must show: a share of 0 would mean that nothing is simulated.
    simulation = importlib.import_module("support.verdict_simulation").Simulation(seed=1)
    odd = simulation.bimodal(0.2, 0.1)
    assert odd.name == "20 % of runs 10 % slower"
    assert 0.0 < simulation.slow_share(odd, 1.0, 200) < 0.15


def test_noise_of_any_make_seldom_looks_slower_on_the_cpus_clock(benchmark_scripts: Path) -> None:
    simulation = importlib.import_module("support.verdict_simulation").Simulation(seed=1)
    machines = simulation.noisy()
    assert len(machines) == 8
    for machine in machines:
        assert simulation.slow_share(machine, 1.0, 20, clock="cpu") <= 0.05, machine.name
        assert simulation.slow_share(machine, 2.0, 20, clock="cpu") >= 0.95, machine.name


def test_the_share_of_medians_outside_of_their_interval_is_simulated(
    benchmark_scripts: Path,
) -> None:
    simulation = importlib.import_module("support.verdict_simulation").Simulation(seed=1)
    assert simulation.outside_share(0.9, 200, 100) < 0.15


def test_the_pages_sections_come_in_the_order_of_their_scripts(page: Any, result: Any) -> None:
    from dataclasses import replace

    busy = replace(result, script="benchmark_verdicts_busy", date="2026-02-01")
    shown = page.render([busy, result])
    assert shown.index("2026-01-31") < shown.index("2026-02-01")


def test_the_second_simulation_finds_what_the_page_says(benchmark_scripts: Path) -> None:
    power = importlib.import_module("verdict_power")
    models = importlib.import_module("support.noise_models")
    few = power.Case(5, 50, 0)
    assert power.shares(models.STEADY_MODES, few, 1.1, trials=10)["SLOW"] == 100.0
    unchanged = power.shares(models.STEADY_MODES, few, 1.0, trials=10)
    assert unchanged["SLOW"] == unchanged["FAST"] == 0.0
    # What the minimum is not good at must show.
    assert power.shares(models.ALIKE, few, 1.0, trials=60)["minimum"] > 0.0
    assert len({model.name for model in models.MODELS}) == len(models.MODELS)


def test_samples_of_the_second_simulation_are_as_many_as_the_loop_takes(
    benchmark_scripts: Path,
) -> None:
    import numpy

    power = importlib.import_module("verdict_power")
    models = importlib.import_module("support.noise_models")
    random = numpy.random.default_rng(1)
    quiet = models.mixed(0.0)(random, 1, 5000)[0]
    assert power.taken_by_loop(quiet).count == 100
    alike = [power.taken_by_loop(each).count for each in models.ALIKE.fill(random, 9, 5000)]
    assert sorted(alike)[4] > 500


def test_wilsons_interval_is_that_of_the_textbooks(benchmark_scripts: Path) -> None:
    power = importlib.import_module("verdict_power")
    assert power.wilson(0.0, 1000) == pytest.approx((0.0, 0.38), abs=0.005)
    assert power.wilson(50.0, 100) == pytest.approx((40.4, 59.6), abs=0.05)
