"""``gpuprof list``: its arguments, and how its answer is printed; `saved` has the answer.

Exit codes: 0 done, also where nothing is saved; 1 failed, as where a folder cannot be read; 2 wrong
usage, a baseline that is not there, or a file that holds no benchmarks; 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys

from gpuprof._cli.arguments import (
    EXIT_CODES,
    FORMATS,
    OK,
    USAGE,
    Commands,
    add_storage,
    complain,
)


def add_arguments(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "list",
        help="list the saved baselines, or the benchmarks in one",
        description="List the saved baselines; with a name or a file, the benchmarks in it: a line "
        "for each of its runs.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    parser.add_argument(
        "what",
        metavar="NAME",
        nargs="?",
        help="name of a saved baseline, or a file as for compare; all baselines if left out",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="table",
        help="how to print (default table); the times of csv and json are seconds",
    )
    add_storage(parser)


def run(options: argparse.Namespace) -> int:
    """List, print, and return the exit code."""
    from gpuprof._cli import saved
    from gpuprof._cli.compare import InputError
    from gpuprof._common.text import write_text

    try:
        text = saved.run(options)
    except InputError as error:
        complain(str(error))
        return USAGE
    write_text(sys.stdout, text)
    return OK
