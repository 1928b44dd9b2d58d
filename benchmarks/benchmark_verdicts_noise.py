"""How often verdicts on stored runs are wrong with other noise than drift.

The machines are simulated, see support/verdict_simulation.py; the verdicts are gpuprof's.
"False SLOW" is unchanged code that is called SLOW after the automatic second measurement; "missed"
is slower code that is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from support import measure
from support.results import Row
from support.verdict_simulation import Simulation

_SEED = 20260201
_FALSE_TARGET = 1.0
_MISSED_TARGET = 5.0
_OUTSIDE_TARGET = 10.0


def _rows(simulation: Simulation, trials: int) -> Iterator[Row]:
    machines = simulation.noisy()
    for clock, ratio, slower in (("cuda", 1.12, "12 % slower"), ("cpu", 2.0, "twice as long")):
        on = "on the GPU's clock" if clock == "cuda" else "on the CPU's clock"
        for machine in machines:
            share = simulation.slow_share(machine, 1.0, trials, clock=clock)
            name = f"false SLOW {on}, {machine.name}"
            yield Row(name, 100.0 * share, "%", target=_FALSE_TARGET)
        for machine in machines:
            missed = 1.0 - simulation.slow_share(machine, ratio, trials, clock=clock)
            name = f"missed, {slower} {on}, {machine.name}"
            target = _MISSED_TARGET if clock == "cpu" else None
            yield Row(name, 100.0 * missed, "%", target=target)
    for memory, count in ((0.0, 100), (0.9, 100), (0.9, 500)):
        share = simulation.outside_share(memory, count, trials)
        name = f"the median is outside of the 95 % interval, AR(1) {memory:g}, {count} samples"
        yield Row(name, 100.0 * share, "%", target=_OUTSIDE_TARGET)


def main() -> None:
    """Simulate and report."""
    options = measure.arguments(__doc__)
    trials = 100 if options.quick else 1000
    notes = [f"noise of other makes, made up: {trials:,} trials a row, 5 old runs where not said"]
    rows = [*_rows(Simulation(_SEED), trials)]
    measure.report("benchmark_verdicts_noise", rows, notes, options.json)


if __name__ == "__main__":
    main()
