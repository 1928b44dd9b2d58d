"""``gpuprof ab``: two commands run in turns, process by process, and are judged name by name.

Blocks of four runs are ABBA or BAAB, by a coin of the seed that is shown. Without a number of runs
it ends early when all verdicts are clear, and goes on up to a time where they are not. A command
that fails ends it all: nothing is compared. Stopped by a signal it exits with 128 and the signal's
number, and shows what there is.
"""

from __future__ import annotations

import argparse
import math
import random
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import monotonic

from gpuprof._cli import ab_readings
from gpuprof._cli.ab_processes import Command, Ended, run_once, signals_noted
from gpuprof._cli.ab_readings import Reading, Time
from gpuprof._cli.command import Answer, Refused
from gpuprof._cli.compare import INCOMPARABLE, exit_code, text_of
from gpuprof._common import records
from gpuprof._common.text import plural, shown_text
from gpuprof._common.units import duration
from gpuprof._display.progress import Progress
from gpuprof._results.count_verdicts import beside_time
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.paired_verdict import DEFAULT_PAIRS, MOST_PAIRS, judge_processes_all, looks
from gpuprof._results.two_sides import Comparison, Line, Side
from gpuprof.errors import BaselineError

SIDES = ("A", "B")
_SIGNALLED = 128
_SHOWN_BLOCKS = 8  # of four runs; JSON has all


@dataclass
class Runs:
    """What the runs of both commands measured, in the order in which they ran."""

    options: argparse.Namespace
    measure: str | None
    begun: float = field(default_factory=monotonic)
    order: list[str] = field(default_factory=list)
    readings: dict[str, list[Reading]] = field(default_factory=lambda: {"A": [], "B": []})
    signal: int | None = None

    @property
    def pairs(self) -> int:
        """How many runs both commands have."""
        return min(map(len, self.readings.values()))

    def names(self, side: str) -> list[str]:
        readings = self.readings[side][: self.pairs]
        return list(dict.fromkeys(name for each in readings for name in each.times))

    def is_done(self) -> bool:
        pairs = self.pairs
        if self.options.runs is not None:
            return pairs == int(self.options.runs)
        if len(self.order) % 4:  # in the midst of a block
            return False
        if pairs in looks():
            verdicts = [each.verdict for each in _judged(self)[1].values()]
            if pairs == MOST_PAIRS or Verdict.AMBIGUOUS not in verdicts:
                return True
        return pairs >= DEFAULT_PAIRS and self._share_of_time() >= 1.0

    def share_done(self) -> float:
        if self.options.runs is not None:
            return self.pairs / int(self.options.runs)
        return min(self.pairs / DEFAULT_PAIRS, self._share_of_time())

    def _share_of_time(self) -> float:
        return (monotonic() - self.begun) / float(self.options.max_time)


def run(options: argparse.Namespace) -> Answer:
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    commands = {}
    for side in SIDES:
        text, folder, variables = (
            getattr(options, f"{name}_{side.lower()}") for name in ("command", "cwd", "env")
        )
        command = Command(side, text, folder, dict([*options.env, *variables]), options.shell)
        with _refusing(command, "split into words"):
            command.words("out")
        commands[side] = command
    with signals_noted() as signals, tempfile.TemporaryDirectory(prefix="gpuprof-ab-") as folder:
        found = _run_all(commands, order(seed), options, signals, Path(folder))
    comparison = compare(found, commands, seed)
    code = exit_code(comparison, options.fail_on)
    if found.signal is not None:
        code = _SIGNALLED + found.signal
    return Answer(text_of(comparison, options.format), code)


def order(seed: int) -> Iterator[str]:
    """Yield whose turn it is: blocks of ABBA or BAAB by a coin."""
    coin = random.Random(seed)
    while True:
        first, second = coin.choice(("AB", "BA"))
        yield from (first, second, second, first)


def _run_all(
    commands: Mapping[str, Command],
    turns: Iterator[str],
    options: argparse.Namespace,
    signals: Sequence[int],
    folder: Path,
) -> Runs:
    found = Runs(options, options.measure)
    out = folder / "run.json"  # for both the same: the length of a path can change a program's time
    with Progress("gpuprof ab", None) as progress:
        for place, side in enumerate(chain(SIDES * options.warmup, turns)):
            warming = place < 2 * options.warmup
            doing = f"{side}{' (warm-up)' * warming}, {plural(found.pairs, 'pair')} of runs"
            progress.update(found.share_done(), doing)
            out.unlink(missing_ok=True)
            with _refusing(commands[side], "started"):
                ended = run_once(commands[side], str(out), options.timeout, signals)
            if signals:
                found.signal = signals[0]
                break
            reading = _reading(commands[side], out, options.measure, ended)
            found.measure = _same_measure(commands[side], reading, found.measure)
            if warming:
                continue
            found.order.append(side)
            found.readings[side].append(reading)
            if found.is_done():
                break
    return found


@contextmanager
def _refusing(command: Command, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a quote without its end, or a NUL
        message = f"command {command.side}, {command.text!r}, cannot be {what}: {error}"
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
        return ab_readings.read(out, measure, ended.seconds, ended.cpu_seconds)
    except BaselineError as error:
        raise _failure(command, f"cannot be read: {error}", ended) from error


def _same_measure(command: Command, reading: Reading, measure: str | None) -> str:
    """Return what is measured; Refused if this run left something else than those before it."""
    if measure is None or measure == reading.measure:
        return reading.measure
    this, before = (
        "no file" if each == ab_readings.BOTH else f"a file of {each}"
        for each in (reading.measure, measure)
    )
    how = (
        f"left {this}, where the runs before it left {before}: choose with --measure what is "
        "compared"
    )
    raise _failure(command, how, None)


def _failure(command: Command, how: str, ended: Ended | None) -> Refused:
    lines = [f"command {command.side} {how}; nothing was compared", f"  {command.text}"]
    for what, text in () if ended is None else ended.tails.items():
        if text.strip():
            lines += [f"the end of its {what}:", *(f"  {line}" for line in text.splitlines())]
    return Refused(*lines, code=INCOMPARABLE)


def compare(found: Runs, commands: Mapping[str, Command], seed: int) -> Comparison:
    """Judge each name that runs of both commands have."""
    times, decisions = _judged(found)
    options, lines = found.options, []
    for name in times:
        decision = decisions[name]
        old = [base.result for base, _ in times[name] if base.result is not None]
        now = [new.result for _, new in times[name] if new.result is not None]
        if old and now:
            decision = beside_time(decision, old, now, memory_threshold=options.memory_threshold)
        lines.append(Line(name, "", decision))
    done = f"{found.pairs}{f' of {options.runs}' if options.runs else ''} pairs of runs"
    notes = [] if found.signal is None else [f"stopped by signal {found.signal} after {done}"]
    ambiguous = any(decision.verdict is Verdict.AMBIGUOUS for decision in decisions.values())
    if ambiguous and options.runs is None and not notes and found.pairs < MOST_PAIRS:
        longer = f"--max-time {4 * options.max_time:g}"
        notes.append(f"with {longer} it goes on for longer where a verdict is not clear")
    known = [found.names(side) for side in SIDES]
    readings = found.readings.items()
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
            "created": records.now(),
            "seed": seed,
            "measure": found.measure,
            "order": "".join(found.order),
            "wall_s": {side: [each.wall_s for each in runs] for side, runs in readings},
            "cpu_s": {side: [each.cpu_s for each in runs] for side, runs in readings},
            "times_ms": {
                name: {"A": [old.ms for old, _ in both], "B": [now.ms for _, now in both]}
                for name, both in times.items()
            },
        },
    )


def _judged(found: Runs) -> tuple[dict[str, list[tuple[Time, Time]]], dict[str, Decision]]:
    """Return the times of each name that both have, pair by pair, and the decisions on them."""
    base, new = (found.readings[side][: found.pairs] for side in SIDES)
    names, options = [found.names(side) for side in SIDES], found.options
    pairs: dict[str, tuple[list[float], list[float]]] = {}
    ticks: dict[str, float] = {}
    decisions: dict[str, Decision] = {}
    times: dict[str, list[tuple[Time, Time]]] = {}
    for name in [name for name in names[0] if name in names[1]]:
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
    decisions |= judge_processes_all(
        pairs, threshold=options.threshold, ticks=ticks, is_look=options.runs is None
    )
    return times, decisions


def _facts(found: Runs, seed: int) -> list[str]:
    blocks = ["".join(found.order[place : place + 4]) for place in range(0, len(found.order), 4)]
    taken = math.fsum(each.wall_s for runs in found.readings.values() for each in runs)
    said = ab_readings.SAID.get(found.measure or "", "nothing")
    facts = [f"compared: {said}; the runs took {duration(1e3 * taken)}"]
    more = " ..." if len(blocks) > _SHOWN_BLOCKS else ""
    shown = " ".join(blocks[:_SHOWN_BLOCKS]) or "no run"
    return [*facts, f"order: {shown}{more} (--seed {seed})"]
