"""``gpuprof history``: the runs of saved benchmarks as plots, with the run where each changed."""

from __future__ import annotations

import argparse
import sys

from gpuprof._cli.arguments import (
    EXIT_CODES,
    FAILED,
    OK,
    USAGE,
    Commands,
    add_storage,
    complain,
    threshold,
)


def add_arguments(commands: Commands) -> None:
    """Add the command."""
    history = commands.add_parser(
        "history",
        help="show the runs of saved benchmarks, and where they changed",
        description="Show the runs that --gpu-benchmark-save has kept, up to 20 of each benchmark, "
        "in the order of time, and the run from which on a benchmark takes another time.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    history.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="only benchmarks of this name, or that match it: * is any text, ? one character",
    )
    history.add_argument(
        "--baseline",
        metavar="NAME",
        help="only runs that were saved under this name; "
        "@autosave for those of --gpu-benchmark-autosave, which are taken together",
    )
    history.add_argument(
        "--threshold",
        type=threshold,
        default=0.01,
        metavar="1%",
        help="the smallest change to speak of (default 1%%)",
    )
    history.add_argument("--svg", metavar="FILE", help="write the plots to a file, as SVG")
    form = history.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--csv", action="store_true", help="print CSV, a line for each run")
    add_storage(history)


def run(options: argparse.Namespace) -> int:
    """Print or write what was asked for, and return the exit code."""
    from gpuprof._common import outputs
    from gpuprof._common.outputs import write_whole
    from gpuprof._common.text import write_text
    from gpuprof._results.baselines import Baselines
    from gpuprof._results.history import history
    from gpuprof._results.history_data import records

    wanted = [] if options.svg is None else [outputs.Output("--svg", outputs.SVG, options.svg)]
    if complaint := outputs.complaint(wanted):
        complain(complaint)
        return USAGE
    try:
        found = history(
            options.storage,
            options.name,
            baseline=options.baseline,
            threshold=options.threshold,
        )
    except ValueError as error:  # no name of a baseline
        complain(str(error))
        return FAILED
    if not found.series:
        if not Baselines(options.storage).names():
            complain(
                f"nothing is saved in {options.storage}: pytest --gpu-benchmark-save=NAME saves "
                "a run"
            )
        else:
            names = history(options.storage, baseline=options.baseline).names
            shown = ", ".join(names[:20]) + (" and more" if len(names) > 20 else "")
            complain(f"no saved benchmark is called {options.name!r}; there are {shown}")
        return FAILED
    if options.svg is not None:
        write_whole(options.svg, found.to_svg())
        write_text(sys.stderr, f"wrote {options.svg}\n")
    if options.json:
        write_text(sys.stdout, found.to_json(indent=2) + "\n")
    elif options.csv:
        write_text(sys.stdout, records(found.series).csv(printed=True))
    elif options.svg is None:
        write_text(sys.stdout, f"{found}\n")
    return OK
