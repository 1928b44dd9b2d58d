"""``gpuprof compare``: whether saved benchmarks became slower.

Exit codes: 0 nothing failed, 1 SLOW or what ``--fail-on`` names, 2 wrong usage or an input that
cannot be read, 3 nothing could be compared. A speed-up never fails. A reader that goes away early
changes none of this.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuprof._cli.compare_inputs import Source
    from gpuprof._cli.compare_report import Comparison
    from gpuprof._results.result import BenchResult

OK, SLOWER, INCOMPARABLE = 0, 1, 3
STORAGE = ".gpuprof"
NEVER = "never"
MAY_FAIL = ("slow", "ambiguous", "nodata", "incomparable")
EXIT_CODES = (
    "exit codes: 0 nothing failed, 1 SLOW or what --fail-on names, 2 wrong usage or an input that "
    "cannot be read, 3 nothing could be compared, 130 interrupted; a speed-up never fails"
)


def _threshold(text: str) -> float:
    number = text.strip().removesuffix("%").strip()
    message = f"{text!r}: expected a percentage such as 5%, or a fraction below 1 such as 0.05"
    try:
        value = float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(message) from None
    value = value / 100 if text.strip().endswith("%") else value
    if not (math.isfinite(value) and 0 <= value < 1):
        raise argparse.ArgumentTypeError(message)
    return value


def _storage(text: str) -> str:
    if not text.strip():
        message = (
            f"{text!r}: expected a folder, not an empty text as from a variable that is not set"
        )
        raise argparse.ArgumentTypeError(message)
    return text


def _fail_on(text: str) -> frozenset[str]:
    names = frozenset(name.strip().lower() for name in text.split(",")) - {""}
    if not names or names - {*MAY_FAIL, NEVER} or (NEVER in names and len(names) > 1):
        message = (
            f"{text!r}: expected {NEVER}, or some of {', '.join(MAY_FAIL)} separated by commas"
        )
        raise argparse.ArgumentTypeError(message)
    return names - {NEVER}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of ``gpuprof``."""
    compare = commands.add_parser(
        "compare",
        help="say whether saved benchmarks became slower",
        description="Compare saved benchmarks: baselines by name, files that "
        "--gpu-benchmark-json wrote, or saved results.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    compare.add_argument("base", metavar="BASE", help="name of a saved baseline, or a file")
    compare.add_argument("new", metavar="NEW", help="what to compare with it; all runs are used")
    compare.add_argument(
        "--threshold",
        type=_threshold,
        metavar="5%",
        help="the smallest change to speak of (default 5%% with 5 baseline runs or more, else "
        "10%%; on the CPU clock 20%%, unless the runs carry a smaller one)",
    )
    compare.add_argument(
        "--fail-on",
        type=_fail_on,
        default=frozenset({"slow"}),
        metavar="VERDICTS",
        help=f"which verdicts end with 1: some of {','.join(MAY_FAIL)}, or {NEVER} (default slow)",
    )
    compare.add_argument(
        "--format",
        choices=("table", "md", "json"),
        default="table",
        help="how to print (default table)",
    )
    compare.add_argument(
        "--storage",
        type=_storage,
        default=STORAGE,
        metavar="DIR",
        help=f"where baselines are saved (default {STORAGE})",
    )


def run(options: argparse.Namespace) -> tuple[int, str]:
    """Compare; return the exit code and the text to print.

    Raises
    ------
    InputError, ModuleNotFoundError
    """
    from gpuprof._cli import compare_report
    from gpuprof._cli.compare_inputs import load

    base, new = load(options.base, options.storage), load(options.new, options.storage)
    found = compare(base, new, options.threshold)
    return exit_code(found, options.fail_on), compare_report.write(found, options.format)


def exit_code(found: Comparison, fail_on: frozenset[str]) -> int:
    """Return how the command ends. What only one side has counts as ``nodata``."""
    verdicts = {verdict.value for verdict in found.verdicts}
    if found.only_base or found.only_new:
        verdicts.add("nodata")
    if verdicts & fail_on:
        return SLOWER
    return OK if found.compared else INCOMPARABLE


def compare(base: Source, new: Source, threshold: float | None) -> Comparison:
    """Compare two sides.

    Raises
    ------
    ModuleNotFoundError
        Without NumPy and SciPy.
    """
    from gpuprof._cli.compare_report import Comparison, Line
    from gpuprof._results.verdict import judge_all

    old, now = _by_name(base), _by_name(new)
    notes = []
    names = {name: name for name in now if name in old}
    if base.is_one_result and new.is_one_result and not names:
        # Two results that were saved one by one are meant, whatever they are called.
        ((old_name, _),), ((new_name, _),) = old.items(), now.items()
        names = {new_name: old_name}
        notes.append(f"the base is called {old_name!r}, the new one {new_name!r}")
    groups: list[tuple[str, str]] = []
    pairs: dict[str, tuple[list[BenchResult], list[BenchResult]]] = {}
    for name, old_name in names.items():
        for machine, results in now[name].items():
            # Without runs of this machine the verdict is INCOMPARABLE, and says what differs.
            others = [result for runs in old[old_name].values() for result in runs]
            pairs[str(len(groups))] = (old[old_name].get(machine, others), results)
            groups.append((name, machine))
    decisions = judge_all(pairs, threshold=threshold)
    lines = [Line(*groups[int(key)], decision) for key, decision in decisions.items()]
    only_base = [name for name in old if name not in names.values()]
    only_new = [name for name in now if name not in names]
    return Comparison(base, new, lines, only_base, only_new, notes)


def _by_name(source: Source) -> dict[str, dict[str, list[BenchResult]]]:
    """Return the results of a side by name and by the machine's key, oldest first."""
    found: dict[str, dict[str, list[BenchResult]]] = {}
    for machine, runs in source.runs.items():
        for run in runs:
            for name, result in run.results.items():
                found.setdefault(name, {}).setdefault(machine, []).append(result)
    return found
