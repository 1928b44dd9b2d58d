"""``gpuprof report``: files of results as one HTML page.

Exit codes: 0 written, 1 the page cannot be written, 2 wrong usage or an input that cannot be shown.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuprof._cli.arguments import EXIT_CODES, OK, USAGE, Commands, complain

DEFAULT_OUTPUT = "report.html"


def add_arguments(commands: Commands) -> None:
    """Add the command."""
    report = commands.add_parser(
        "report",
        help="show statistics and benchmarks as one HTML page",
        description="Write one HTML page that opens without a network, of files that hold "
        "statistics (Stats.to_json), benchmarks (--gpu-benchmark-json, BenchResult.to_json, a "
        "stored baseline), comparisons (CompareResult.to_json, gpuprof compare or ab with --format "
        "json) or histories (gpuprof history --json).",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    report.add_argument("files", nargs="+", metavar="FILE", help="what the page shows")
    report.add_argument(
        "-o",
        "--output",
        default=DEFAULT_OUTPUT,
        metavar="OUT",
        help=f"the page (default {DEFAULT_OUTPUT}); - is the standard output",
    )
    report.add_argument("--title", metavar="TEXT", help="the title of the page")


def run(options: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    from gpuprof._common import outputs
    from gpuprof._common.text import write_text
    from gpuprof._common.units import byte_size
    from gpuprof._report import files
    from gpuprof._report.html import write_report
    from gpuprof.errors import BaselineError

    wanted = outputs.Output("-o", outputs.HTML, options.output)
    if complaint := outputs.complaint([wanted], [("an input", each) for each in options.files]):
        complain(complaint)
        return USAGE
    try:
        found = files.read(options.files)
    except BaselineError as error:
        complain(str(error))
        return USAGE
    write_report(
        options.output,
        stats=found.stats or None,
        results=found.results or None,
        history=found.history or None,
        title=options.title,
    )
    if options.output != outputs.STANDARD:
        size = byte_size(Path(options.output).stat().st_size)
        write_text(sys.stderr, f"gpuprof: wrote {options.output} ({size})\n")
    return OK
