"""``gpuprof trace``: sum up, compare, check, repair and merge traces.

Exit codes: 0 done, 1 failed or faults found, 2 wrong usage or an input that is no trace.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys

from gpuprof._cli.arguments import FAILED, OK, USAGE, Commands, complain, up_to

MAX_ROWS = 100_000
TRACE_EXIT_CODES = (
    "exit codes: 0 done, 1 failed or faults found, 2 wrong usage or an input that is no trace, "
    "130 interrupted"
)


def add_arguments(commands: Commands) -> None:
    """Add the command and its tools."""
    from gpuprof._trace_tools.diff import GROUPINGS as DIFF_GROUPINGS
    from gpuprof._trace_tools.tools import DEFAULT_TOP, GROUPINGS

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return tools.add_parser(
            name, help=text, description=text, epilog=TRACE_EXIT_CODES, allow_abbrev=False
        )

    trace = commands.add_parser(
        "trace",
        help="sum up, compare, check, repair and merge traces",
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
        type=up_to(MAX_ROWS),
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
    diff = command("diff", "show what got slower from one trace to another, and why GPUs were idle")
    diff.add_argument("a", metavar="A", help="the trace before")
    diff.add_argument("b", metavar="B", help="the trace after")
    diff.add_argument(
        "--by", choices=tuple(DIFF_GROUPINGS), help="only these rows (default: scopes and kernels)"
    )
    diff.add_argument(
        "--per", metavar="SCOPE", help="divide all figures by the calls of this scope, as in step"
    )
    diff.add_argument(
        "--top",
        type=up_to(MAX_ROWS),
        default=DEFAULT_TOP,
        metavar="N",
        help=f"how many rows of each kind (default {DEFAULT_TOP})",
    )
    diff.add_argument("--json", action="store_true", help="print JSON")
    merge = command("merge", "make one trace of several, on one clock")
    merge.add_argument("files", nargs="+", metavar="FILE")
    merge.add_argument("-o", "--output", metavar="OUT", required=True, help="where to")
    merge.add_argument(
        "--no-align", action="store_true", help="leave times as they are in the files"
    )


def run(options: argparse.Namespace) -> int:
    """Run a tool without the garbage collector, which finds nothing in a trace's events."""
    had_collector = gc.isenabled()
    gc.disable()
    try:
        return _run_tool(options)
    finally:
        if had_collector:
            gc.enable()


def _run_tool(options: argparse.Namespace) -> int:
    from gpuprof._common import outputs
    from gpuprof._common import text as common_text
    from gpuprof._trace_tools import tools as trace_tools
    from gpuprof.errors import TraceError

    try:
        if options.tool == "summary":
            found = trace_tools.summary(options.file, by=options.by, top=options.top)
            text = json.dumps(found.to_dict(), indent=2) if options.json else str(found)
            common_text.write_text(sys.stdout, text + "\n")
            if found.cut:
                complain(f"{found.path}: {found.cut}; `gpuprof trace repair` makes it whole")
            return USAGE if found.cut else OK
        if options.tool == "validate":
            return _validate(options)
        if options.tool == "diff":
            return _diff(options)
        if options.output is not None:
            wanted = outputs.Output("-o", outputs.TRACE, options.output)
            if complaint := outputs.complaint([wanted]):
                complain(complaint)
                return USAGE
        if options.tool == "repair":
            repaired = trace_tools.repair(options.file, options.output)
            out = outputs.report_file(repaired.output)
            common_text.write_text(out, f"{repaired}\n")
            return OK
        merged = trace_tools.merge(options.files, options.output, align=not options.no_align)
        out = outputs.report_file(merged.output)
        common_text.write_text(out, f"{merged}\n")
        return OK
    except (TraceError, ValueError) as error:
        complain(str(error))
        return USAGE


def _diff(options: argparse.Namespace) -> int:
    from gpuprof._common.text import write_text
    from gpuprof._trace_tools.diff import trace_diff

    found = trace_diff(options.a, options.b, by=options.by, per=options.per, top=options.top)
    text = json.dumps(found.to_dict(), indent=2) if options.json else str(found)
    write_text(sys.stdout, text + "\n")
    for cut in found.cut:
        complain(f"{cut}; `gpuprof trace repair` makes it whole")
    return USAGE if found.cut else OK


def _validate(options: argparse.Namespace) -> int:
    """Check each file; return the worst of the exit codes."""
    from gpuprof._common import text as common_text
    from gpuprof._trace_tools import tools as trace_tools
    from gpuprof.errors import TraceError

    code = OK
    found = []
    for file in options.files:
        try:
            checked = trace_tools.validate(file)
        except TraceError as error:
            complain(str(error))
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
