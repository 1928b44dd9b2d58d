"""``gpuprof ab``: two commands run in turns, process by process, and are judged name by name.

Blocks of four runs are ABBA or BAAB, by a coin of the seed that is shown. A command that fails ends
it all: nothing is compared. Exit codes: those of `comparison`; 2 for a command that cannot be
started; 3 also for one that failed; 128 and the signal's number when stopped, with what there is.
"""

from __future__ import annotations

import argparse
import math
import random
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from gpuprof._cli import ab_readings
from gpuprof._cli.ab_processes import Command, Ended, run_once, signals_noted
from gpuprof._cli.ab_readings import Reading, ReadingError, Time
from gpuprof._cli.command import Answer, Refused
from gpuprof._cli.comparison import INCOMPARABLE, exit_code, text_of
from gpuprof._common.text import shown_text
from gpuprof._common.units import duration
from gpuprof._display.progress import Progress
from gpuprof._results.count_verdicts import beside_time
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.paired_verdict import judge_processes_all
from gpuprof._results.two_sides import Comparison, Line, Side

SIDES = ("A", "B")
_SIGNALLED = 128


@dataclass
class Runs:
    """What the runs of both commands measured, in the order in which they ran."""

    measure: str | None
    order: list[str] = field(default_factory=list)
    readings: dict[str, list[Reading]] = field(default_factory=lambda: {"A": [], "B": []})
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"A": [], "B": []})
    signal: int | None = None

    @property
    def pairs(self) -> int:
        """How many runs both commands have."""
        return min(map(len, self.readings.values()))


def run(options: argparse.Namespace) -> Answer:
    """Run both commands in turns, and return what to print; Refused says why a command failed."""
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    of_side = (
        (options.command_a, options.cwd_a, options.env_a),
        (options.command_b, options.cwd_b, options.env_b),
    )
    commands = {
        side: Command(side, text, folder, dict([*options.env, *variables]), options.shell)
        for side, (text, folder, variables) in zip(SIDES, of_side, strict=True)
    }
    for command in commands.values():
        try:
            command.words("out")
        except ValueError as error:
            what = f"command {command.side}, {command.text!r}, cannot be split into words"
            message = f"{what}: {error}"
            raise Refused(message) from error
    plan = ["A", "B"] * options.warmup + order(options.runs, seed)
    with signals_noted() as signals, tempfile.TemporaryDirectory(prefix="gpuprof-ab-") as folder:
        found = _run_all(commands, plan, options, signals, Path(folder))
    comparison = compare(found, commands, seed, options)
    code = exit_code(comparison, options.fail_on)
    if found.signal is not None:
        code = _SIGNALLED + found.signal
    return Answer(text_of(comparison, options.format), code)


def order(pairs: int, seed: int) -> list[str]:
    """Return whose turn it is, for that many runs of both: blocks of ABBA or BAAB by a coin."""
    coin = random.Random(seed)
    turns: list[str] = []
    while len(turns) < 2 * pairs:
        first, second = coin.choice(("AB", "BA"))
        turns += [first, second, second, first]
    return turns[: 2 * pairs]


def _run_all(
    commands: Mapping[str, Command],
    plan: Sequence[str],
    options: argparse.Namespace,
    signals: Sequence[int],
    folder: Path,
) -> Runs:
    found = Runs(options.measure)
    out = folder / "run.json"  # for both the same: the length of a path can change a program's time
    with Progress("gpuprof ab", None) as progress:
        for place, side in enumerate(plan):
            warming = place < 2 * options.warmup
            progress.update(place / len(plan), f"{side}{' (warm-up)' * warming}")
            ended = _run(commands[side], out, options.timeout, signals)
            if signals:
                found.signal = signals[0]
                break
            reading = _reading(commands[side], out, options.measure, ended)
            found.measure = _same_measure(commands[side], reading, found.measure)
            if not warming:
                found.order.append(side)
                found.readings[side].append(reading)
                found.seconds[side].append(ended.seconds)
    return found


def _run(command: Command, out: Path, timeout_s: float | None, signals: Sequence[int]) -> Ended:
    out.unlink(missing_ok=True)
    try:
        return run_once(command, str(out), timeout_s, signals)
    except (OSError, ValueError) as error:  # ValueError: a NUL in a word
        what = f"command {command.side}, {command.text!r}, cannot be started"
        message = f"{what}: {error}"
        raise Refused(message) from error


def _reading(command: Command, out: Path, measure: str | None, ended: Ended) -> Reading:
    if ended.status or ended.timed_out:
        if ended.timed_out:
            how = f"was ended after {duration(1e3 * ended.seconds)}, when its time was up"
        elif ended.status < 0:
            how = f"was ended by signal {-ended.status}"
        else:
            how = f"failed with exit code {ended.status}"
        raise _failure(command, how, ended)
    try:
        return ab_readings.read(out, measure, ended.seconds)
    except ReadingError as error:
        raise _failure(command, f"cannot be read: {error}", ended) from error


def _same_measure(command: Command, reading: Reading, measure: str | None) -> str:
    """Return what is measured; Refused if this run left something else than those before it."""
    if measure is None or measure == reading.measure:
        return reading.measure
    left = "no file" if reading.measure == ab_readings.WALL else f"a file of {reading.measure}"
    how = (
        f"left {left}, where the runs before it gave {measure}: choose with --measure what is "
        "compared"
    )
    raise _failure(command, how, None)


def _failure(command: Command, how: str, ended: Ended | None) -> Refused:
    lines = [f"command {command.side} {how}; nothing was compared", f"  {command.text}"]
    for what, text in () if ended is None else ended.tails.items():
        if text.strip():
            lines += [f"the end of its {what}:", *(f"  {line}" for line in text.splitlines())]
    return Refused(*lines, code=INCOMPARABLE)


def compare(
    found: Runs, commands: Mapping[str, Command], seed: int, options: argparse.Namespace
) -> Comparison:
    """Judge each name that runs of both commands have."""
    base, new = (found.readings[side][: found.pairs] for side in SIDES)
    known = [
        list(dict.fromkeys(name for each in side for name in each.times)) for side in (base, new)
    ]
    shared = [name for name in known[0] if name in known[1]]
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    ticks: dict[str, float] = {}
    decisions: dict[str, Decision] = {}
    times: dict[str, list[tuple[Time, Time]]] = {}
    for name in shared:
        both = times[name] = [
            (old.times[name], now.times[name])
            for old, now in zip(base, new, strict=True)
            if name in old.times and name in now.times
        ]
        differences = (each.difference(both[-1][1]) for pair in both for each in pair)
        if reason := next(filter(None, differences), None):
            decisions[name] = Decision(Verdict.INCOMPARABLE, runs=len(both), rule=reason)
            continue
        pairs[name] = [old.ms for old, _ in both], [now.ms for _, now in both]
        ticks[name] = max((time.tick_ms for pair in both for time in pair), default=0.0)
    decisions |= judge_processes_all(pairs, threshold=options.threshold, ticks=ticks)
    lines = []
    for name in shared:
        decision = decisions[name]
        old = [base.result for base, _ in times[name] if base.result is not None]
        now = [new.result for _, new in times[name] if new.result is not None]
        if old and now:
            decision = beside_time(decision, old, now, memory_threshold=options.memory_threshold)
        lines.append(Line(name, "", decision))
    done = f"after {found.pairs} of {options.runs} pairs of runs"
    notes = [] if found.signal is None else [f"stopped by signal {found.signal} {done}"]
    a, b = (Side(shown_text(commands[side].label), found.pairs) for side in SIDES)
    return Comparison(
        a,
        b,
        tuple(lines),
        tuple(name for name in known[0] if name not in known[1]),
        tuple(name for name in known[1] if name not in known[0]),
        notes=tuple(notes),
        names=("A", "B"),
        facts=tuple(_facts(found, seed)),
        data={
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "seed": seed,
            "measure": found.measure,
            "order": "".join(found.order),
            "wall_s": found.seconds,
            "times_ms": {
                name: {"A": [old.ms for old, _ in both], "B": [now.ms for _, now in both]}
                for name, both in times.items()
            },
        },
    )


def _facts(found: Runs, seed: int) -> list[str]:
    blocks = ["".join(found.order[place : place + 4]) for place in range(0, len(found.order), 4)]
    taken = math.fsum(second for side in found.seconds.values() for second in side)
    said = ab_readings.SAID.get(found.measure or "", "nothing")
    facts = [f"compared: {said}; the runs took {duration(1e3 * taken)}"]
    return [*facts, f"order: {' '.join(blocks) or 'no run'} (--seed {seed})"]
