"""``gpuprof compare``: its arguments, and how its answer is printed; `compare` has the answer."""

from __future__ import annotations

import argparse
import sys

from gpuprof._cli.arguments import (
    USAGE,
    Commands,
    add_storage,
    add_verdict_options,
    complain,
    discard_output,
    threshold,
)

COMPARE_EXIT_CODES = (
    "exit codes: 0 nothing failed, 1 SLOW, MEMORY, LAUNCHES, or what --fail-on names, 2 wrong "
    "usage or an input that cannot be read, 3 nothing could be compared, 130 interrupted; a "
    "speed-up never fails"
)


def add_arguments(commands: Commands) -> None:
    """Add the command."""
    compare = commands.add_parser(
        "compare",
        help="say whether saved benchmarks became slower",
        description="Compare saved benchmarks: baselines by name, files that "
        "--gpu-benchmark-json wrote, or saved results.",
        epilog=COMPARE_EXIT_CODES,
        allow_abbrev=False,
    )
    compare.add_argument("base", metavar="BASE", help="name of a saved baseline, or a file")
    compare.add_argument("new", metavar="NEW", help="what to compare with it; all runs are used")
    compare.add_argument(
        "--threshold",
        type=threshold,
        metavar="5%",
        help="the smallest change to speak of (default 5%% with 5 baseline runs or more, else "
        "10%%; on the CPU clock 20%%, unless the runs carry a smaller one)",
    )
    add_verdict_options(compare)
    add_storage(compare)


def run(options: argparse.Namespace) -> int:
    """Compare, print, and return the exit code."""
    from gpuprof._cli import compare
    from gpuprof._common.text import write_text

    try:
        code, text = compare.run(options)
    except (compare.InputError, ModuleNotFoundError) as error:
        complain(str(error))
        return USAGE if isinstance(error, compare.InputError) else compare.INCOMPARABLE
    try:
        write_text(sys.stdout, text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # under pipefail a build must still fail
        discard_output()
    return code
