"""``gpuprof ab``: its arguments, and how its answer is printed; `ab` has the answer."""

from __future__ import annotations

import argparse
import math
import sys

from gpuprof._cli.arguments import (
    USAGE,
    Commands,
    add_verdict_options,
    complain,
    discard_output,
    threshold,
    up_to,
)

MAX_RUNS, MAX_WARMUP = 10_000, 100
EXIT_CODES = (
    "exit codes: 0 nothing failed, 1 SLOW, MEMORY, LAUNCHES, or what --fail-on names, 2 wrong "
    "usage or a command that cannot be started, 3 a command failed or nothing could be compared, "
    "130 interrupted; a speed-up never fails"
)


def add_arguments(commands: Commands) -> None:
    """Add the command."""
    ab = commands.add_parser(
        "ab",
        help="run two commands in turns, and say which is slower",
        description="Run two commands in turns, process by process, and judge what they measured. "
        "{out} in a command becomes the name of a file for its results, as in "
        "'pytest --gpu-benchmark-json={out}'; the variable GPUPROF_AB_OUT has the same name. A run "
        "that leaves no file there counts with its wall time.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    ab.add_argument("command_a", metavar="'CMD A'", help="the command to compare with")
    ab.add_argument("command_b", metavar="'CMD B'", help="the command that may be slower")
    ab.add_argument(
        "--runs",
        type=up_to(MAX_RUNS),
        default=12,
        metavar="N",
        help="how many runs of each (default 12, which find 5%% where runs differ by 2%%; a "
        "verdict needs 8)",
    )
    ab.add_argument(
        "--warmup",
        type=_count,
        default=1,
        metavar="N",
        help="how many runs of each before, that do not count (default 1)",
    )
    ab.add_argument(
        "--measure",
        choices=("wall", "json", "stats"),
        help="what is compared: the wall time of the process, results of benchmarks, or statistics "
        "of scopes (default: what the first run leaves)",
    )
    ab.add_argument(
        "--threshold",
        type=threshold,
        metavar="2%",
        help="the smallest change to speak of (default 2%%)",
    )
    add_verdict_options(ab)
    ab.add_argument(
        "--seed", type=_seed, metavar="N", help="of the order of the runs (default: a new one)"
    )
    ab.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="how long a run may take (no limit)"
    )
    for side in "AB":
        small = side.lower()
        ab.add_argument(f"--cwd-{small}", metavar="DIR", help=f"the folder in which {side} runs")
    for suffix, whose in (("", "both commands"), ("-a", "A"), ("-b", "B")):
        ab.add_argument(
            f"--env{suffix}",
            type=_variable,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"a variable of the environment of {whose}; may be repeated",
        )
    ab.add_argument(
        "--shell",
        action="store_true",
        help="run the commands with /bin/sh -c; without it they are split into words",
    )


def _count(text: str) -> int:
    return 0 if text == "0" else up_to(MAX_WARMUP)(text)


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        message = f"{text!r}: expected a whole number of up to 19 digits"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        message = f"{text!r}: expected a number of seconds above 0"
        raise argparse.ArgumentTypeError(message)
    return value


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        message = f"{text!r}: expected NAME=VALUE"
        raise argparse.ArgumentTypeError(message)
    return name, value


def run(options: argparse.Namespace) -> int:
    """Compare, print, and return the exit code."""
    from gpuprof._cli import ab
    from gpuprof._cli.comparison import INCOMPARABLE
    from gpuprof._common.text import write_text

    try:
        code, text = ab.run(options)
    except ab.CommandError as error:
        complain(str(error))
        return USAGE
    except ab.RunError as error:
        write_text(sys.stderr, f"gpuprof: {error}\n")  # its lines are fit to be shown
        return INCOMPARABLE
    try:
        write_text(sys.stdout, text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # under pipefail a build must still fail
        discard_output()
    return code
