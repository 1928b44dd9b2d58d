"""The command ``gpuprof``.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. For the commands on traces, 1 is also
that a trace has faults, and 2 that an input cannot be read as a trace; `_cli.compare` says what
they are for ``compare``. A reader that goes away early, as ``head`` does, is no failure.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence

from gpuprof._cli.exit import FAILED, INTERRUPTED, OK, USAGE, leave_the_reader

MAX_STEPS = 100_000
MAX_ROWS = 100_000
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted"
TRACE_EXIT_CODES = (
    "exit codes: 0 done, 1 failed or faults found, 2 wrong usage or an input that is no trace, "
    "130 interrupted"
)


def _steps(text: str) -> int:
    steps = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= steps <= MAX_STEPS:
        message = f"{text!r}: expected a whole number from 1 to {MAX_STEPS:,}"
        raise argparse.ArgumentTypeError(message)
    return steps


def _rows(text: str) -> int:
    rows = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= rows <= MAX_ROWS:
        message = f"{text!r}: expected a whole number from 1 to {MAX_ROWS:,}"
        raise argparse.ArgumentTypeError(message)
    return rows


def _parser() -> argparse.ArgumentParser:
    from gpuprof._cli import compare
    from gpuprof._cli.demo import DEFAULT_STEPS
    from gpuprof._core import __version__

    parser = argparse.ArgumentParser(
        prog="gpuprof", description="Time GPU code.", epilog=EXIT_CODES, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"gpuprof {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    info = commands.add_parser(
        "info",
        help="say what this machine offers: driver, devices, clocks, versions",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    info.add_argument("--json", action="store_true", help="print JSON")
    demo = commands.add_parser(
        "demo",
        help="time some real work and show the table",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    demo.add_argument(
        "--steps",
        type=_steps,
        default=DEFAULT_STEPS,
        metavar="N",
        help=f"how many steps of work (default {DEFAULT_STEPS})",
    )
    demo.add_argument(
        "--trace",
        metavar="FILE",
        help="also write a trace of the steps, for Perfetto; compressed if it ends in .gz",
    )
    _add_trace(commands)
    compare.add(commands)
    return parser


def _add_trace(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from gpuprof._trace.tools import DEFAULT_TOP, GROUPINGS

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return tools.add_parser(
            name, help=text, description=text, epilog=TRACE_EXIT_CODES, allow_abbrev=False
        )

    trace = commands.add_parser(
        "trace",
        help="sum up, check, repair and merge traces",
        description="Work on traces of gpuprof, torch.profiler, viztracer and others, "
        "compressed or not.",
        epilog=TRACE_EXIT_CODES,
        allow_abbrev=False,
    )
    tools = trace.add_subparsers(dest="tool", metavar="TOOL", required=True)
    summary = command("summary", "show which ranges took the most time, and gaps on GPU tracks")
    summary.add_argument("file", metavar="FILE")
    summary.add_argument("--by", choices=GROUPINGS, default="name", help="group ranges by this")
    summary.add_argument(
        "--top",
        type=_rows,
        default=DEFAULT_TOP,
        metavar="N",
        help=f"how many groups of each kind (default {DEFAULT_TOP})",
    )
    summary.add_argument("--json", action="store_true", help="print JSON")
    validate = command("validate", "say what is wrong with a trace, and at which event")
    validate.add_argument("files", nargs="+", metavar="FILE")
    validate.add_argument("--json", action="store_true", help="print JSON")
    repair = command("repair", "write a strict copy of a damaged or cut off trace")
    repair.add_argument("file", metavar="FILE")
    repair.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="where to (default: FILE without .part, or with .repaired before its suffix)",
    )
    merge = command("merge", "make one trace of several, on one clock")
    merge.add_argument("files", nargs="+", metavar="FILE")
    merge.add_argument("-o", "--output", metavar="OUT", required=True, help="where to")
    merge.add_argument(
        "--no-align", action="store_true", help="leave times as they are in the files"
    )


def _run_trace(options: argparse.Namespace) -> int:
    """Run a tool; without the garbage collector, which finds nothing in a trace's events."""
    had_collector = gc.isenabled()
    gc.disable()
    try:
        return _run_tool(options)
    finally:
        if had_collector:
            gc.enable()


def _run_tool(options: argparse.Namespace) -> int:
    from gpuprof._common import text as common_text
    from gpuprof._trace import files
    from gpuprof._trace import tools as trace_tools
    from gpuprof.errors import TraceError

    try:
        if options.tool == "summary":
            found = trace_tools.summary(options.file, by=options.by, top=options.top)
            text = json.dumps(found.to_dict(), indent=2) if options.json else str(found)
            common_text.write_text(sys.stdout, text + "\n")
            if found.cut:
                text = (
                    f"gpuprof: {found.path}: {found.cut}; `gpuprof trace repair` makes it whole\n"
                )
                common_text.write_text(sys.stderr, common_text.shown_text(text.rstrip()) + "\n")
            return USAGE if found.cut else OK
        if options.tool == "validate":
            return _validate(options)
        if options.tool == "repair":
            repaired = trace_tools.repair(options.file, options.output)
            out = files.report_file(repaired.output)
            common_text.write_text(out, f"{repaired}\n")
            return OK
        merged = trace_tools.merge(options.files, options.output, align=not options.no_align)
        out = files.report_file(merged.output)
        common_text.write_text(out, f"{merged}\n")
        return OK
    except (TraceError, ValueError) as error:
        common_text.write_text(sys.stderr, f"gpuprof: {common_text.shown_text(str(error))}\n")
        return USAGE


def _validate(options: argparse.Namespace) -> int:
    """Check one file after the other; the worst of the exit codes."""
    from gpuprof._common import text as common_text
    from gpuprof._trace import tools as trace_tools
    from gpuprof.errors import TraceError

    code = OK
    found = []
    for file in options.files:
        try:
            checked = trace_tools.validate(file)
        except TraceError as error:
            common_text.write_text(sys.stderr, f"gpuprof: {common_text.shown_text(str(error))}\n")
            code = USAGE
            continue
        found.append(checked.to_dict())
        if not options.json:
            common_text.write_text(sys.stdout, f"{checked}\n")
        code = max(code, OK if checked.ok else FAILED)
    if options.json and found:
        shown = found if len(options.files) > 1 else found[0]
        common_text.write_text(sys.stdout, json.dumps(shown, indent=2) + "\n")
    return code


def _run(options: argparse.Namespace) -> int:
    from gpuprof._cli import compare
    from gpuprof._cli import demo as cli_demo
    from gpuprof._cli import info as cli_info
    from gpuprof._common import text as common_text

    if options.command == "trace":
        return _run_trace(options)
    if options.command == "compare":
        return compare.run(options)
    if options.command == "demo":
        return cli_demo.run(sys.stdout, options.steps, options.trace)
    info = cli_info.collect()
    text = json.dumps(info, indent=2) + "\n" if options.json else cli_info.render(info)
    common_text.write_text(sys.stdout, text)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; None takes the arguments of the process."""
    from gpuprof.errors import GpuprofError

    try:
        options = _parser().parse_args(arguments)
        code = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        leave_the_reader()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except (GpuprofError, OSError) as error:
        from gpuprof._common.text import write_text

        write_text(sys.stderr, f"gpuprof: {error}\n")
        return FAILED
    return code
