"""How often verdicts are wrong: on simulated runs with a known change, and on real runs on a GPU.

The rows are shares in percent. "False SLOW" is unchanged code that is called SLOW, after the
automatic second measurement; "missed" is slower code that is not. Simulated runs are described in
support/verdict_simulation.py. Real ones come from processes of their own, see
support/verdict_runs.py; without a GPU they are left out and that is said.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator

from support import environment, measure, verdict_runs
from support.results import Row
from support.verdict_simulation import Simulation

_SEED = 20260131
_DRIFTS = (0.0, 0.0025, 0.005, 0.01, 0.02)
_PROMISED_DRIFT = 0.01
_FALSE_TARGET = 1.0
_MISSED_TARGET = 5.0


def _stored(simulation: Simulation, trials: int) -> Iterator[Row]:
    machines = {drift: simulation.drifting(drift) for drift in _DRIFTS}
    for drift, machine in machines.items():
        share = simulation.slow_share(machine, 1.0, trials)
        target = _FALSE_TARGET if drift <= _PROMISED_DRIFT else None
        yield _row(f"false SLOW, 5 runs against 1, {machine.name}", share, target)
    odd = simulation.bimodal(0.2, 0.1)
    share = simulation.slow_share(odd, 1.0, trials)
    yield _row(f"false SLOW, 5 runs against 1, {odd.name}", share)
    for drift, machine in machines.items():
        missed = 1.0 - simulation.slow_share(machine, 1.12, trials)
        target = _MISSED_TARGET if drift <= _PROMISED_DRIFT else None
        yield _row(f"missed, 12 % slower, 5 runs against 1, {machine.name}", missed, target)
    machine = machines[_PROMISED_DRIFT]
    for percent in (10, 8, 6):
        missed = 1.0 - simulation.slow_share(machine, 1.0 + percent / 100, trials)
        yield _row(f"missed, {percent} % slower, 5 runs against 1, {machine.name}", missed)


def _in_turns(simulation: Simulation, trials: int) -> Iterator[Row]:
    def worst(ratio: float, *, missed: bool) -> float:
        shares = [simulation.slow_share_in_turns(drift, ratio, trials) for drift in _DRIFTS]
        return 1.0 - min(shares) if missed else max(shares)

    drifts = f"drift up to {max(_DRIFTS):.0%}".replace("%", " %")
    yield _row(f"false SLOW, in turns, {drifts}", worst(1.0, missed=False), _FALSE_TARGET)
    for percent, target in ((5, _MISSED_TARGET), (3, None), (2, None)):
        share = worst(1.0 + percent / 100, missed=True)
        yield _row(f"missed, {percent} % slower, in turns, {drifts}", share, target)


def _row(name: str, share: float, target: float | None = None) -> Row:
    return Row(name, 100.0 * share, "%", target=target)


def _real(notes: list[str]) -> list[Row]:
    if environment.machine()["gpu"] is None or importlib.util.find_spec("torch") is None:
        notes.append("real runs need a GPU and torch: left out")
        return []
    return list(verdict_runs.rows(notes))


def main() -> None:
    """Simulate, measure and report, or be one of the processes."""
    if sys.argv[1:2] in (["runs"], ["interleaved"]):
        verdict_runs.main()
        return
    options = measure.arguments(__doc__)
    trials = 200 if options.quick else 2000
    notes = [
        f"made-up runs: {trials:,} trials a row, of 50 samples a run; false SLOW is unchanged "
        "code, missed is slower code, both after the automatic second measurement"
    ]
    simulation = Simulation(_SEED)
    rows = [*_stored(simulation, trials), *_in_turns(simulation, trials), *_real(notes)]
    measure.report("benchmark_verdicts", rows, notes, options.json)


if __name__ == "__main__":
    main()
