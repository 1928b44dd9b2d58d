"""The command ``gpuprof``.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. For the commands on traces, 1 also
means that a trace has faults, and 2 that an input cannot be read as a trace; those of ``compare``
are in `_cli.compare`. A reader that goes away early, as ``head`` does, is no failure.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
DEFAULT_STEPS, MAX_STEPS = 20, 100_000
MAX_ROWS = 100_000
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted"
TRACE_EXIT_CODES = (
    "exit codes: 0 done, 1 failed or faults found, 2 wrong usage or an input that is no trace, "
    "130 interrupted"
)
STORAGE = ".gpuprof"
NEVER = "never"
MAY_FAIL = ("slow", "memory", "ambiguous", "nodata", "incomparable")
COMPARE_EXIT_CODES = (
    "exit codes: 0 nothing failed, 1 SLOW, MEMORY, or what --fail-on names, 2 wrong usage or an "
    "input that cannot be read, 3 nothing could be compared, 130 interrupted; a speed-up never "
    "fails"
)

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def _up_to(most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from 1 to `most`."""

    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if not 1 <= number <= most:
            message = f"{text!r}: expected a whole number from 1 to {most:,}"
            raise argparse.ArgumentTypeError(message)
        return number

    return parse


def _parser() -> argparse.ArgumentParser:
    from gpuprof._core import build_info

    parser = argparse.ArgumentParser(
        prog="gpuprof", description="Time GPU code.", epilog=EXIT_CODES, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"gpuprof {build_info()['version']}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, epilog=EXIT_CODES, allow_abbrev=False)

    info = command("info", "say what this machine offers: driver, devices, clocks, versions")
    info.add_argument("--json", action="store_true", help="print JSON")
    info.add_argument(
        "--peaks",
        action="store_true",
        help="measure what the first GPU can do, which takes up to a minute, and store it: tables "
        "then show rates as a share of it",
    )
    demo = command("demo", "time some real work and show the table")
    demo.add_argument(
        "--steps",
        type=_up_to(MAX_STEPS),
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
    _add_compare(commands)
    return parser


def _add_trace(commands: _Commands) -> None:
    from gpuprof._trace.diff import GROUPINGS as DIFF_GROUPINGS
    from gpuprof._trace.tools import DEFAULT_TOP, GROUPINGS

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
        type=_up_to(MAX_ROWS),
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
        type=_up_to(MAX_ROWS),
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


def _add_compare(commands: _Commands) -> None:
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
        type=_threshold,
        metavar="5%",
        help="the smallest change to speak of (default 5%% with 5 baseline runs or more, else "
        "10%%; on the CPU clock 20%%, unless the runs carry a smaller one)",
    )
    compare.add_argument(
        "--fail-on",
        type=_fail_on,
        default=frozenset({"slow", "memory"}),
        metavar="VERDICTS",
        help=f"which verdicts end with 1: some of {','.join(MAY_FAIL)}, or {NEVER} "
        "(default slow,memory)",
    )
    compare.add_argument(
        "--memory-threshold",
        type=_threshold,
        metavar="5%",
        help="by how much the peak memory may grow (default 5%%, and always 1 MiB)",
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


def _run_trace(options: argparse.Namespace) -> int:
    """Run a tool without the garbage collector, which finds nothing in a trace's events."""
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
                _complain(f"{found.path}: {found.cut}; `gpuprof trace repair` makes it whole")
            return USAGE if found.cut else OK
        if options.tool == "validate":
            return _validate(options)
        if options.tool == "diff":
            return _diff(options)
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
        _complain(str(error))
        return USAGE


def _diff(options: argparse.Namespace) -> int:
    from gpuprof._common.text import write_text
    from gpuprof._trace.diff import trace_diff

    found = trace_diff(options.a, options.b, by=options.by, per=options.per, top=options.top)
    text = json.dumps(found.to_dict(), indent=2) if options.json else str(found)
    write_text(sys.stdout, text + "\n")
    for cut in found.cut:
        _complain(f"{cut}; `gpuprof trace repair` makes it whole")
    return USAGE if found.cut else OK


def _validate(options: argparse.Namespace) -> int:
    """Check each file; return the worst of the exit codes."""
    from gpuprof._common import text as common_text
    from gpuprof._trace import tools as trace_tools
    from gpuprof.errors import TraceError

    code = OK
    found = []
    for file in options.files:
        try:
            checked = trace_tools.validate(file)
        except TraceError as error:
            _complain(str(error))
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


def _run_compare(options: argparse.Namespace) -> int:
    from gpuprof._cli import compare
    from gpuprof._common.text import write_text

    try:
        code, text = compare.run(options)
    except (compare.InputError, ModuleNotFoundError) as error:
        _complain(str(error))
        return USAGE if isinstance(error, compare.InputError) else compare.INCOMPARABLE
    try:
        write_text(sys.stdout, text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # under pipefail a build must still fail
        _discard_output()
    return code


def _run(options: argparse.Namespace) -> int:
    if options.command == "trace":
        return _run_trace(options)
    if options.command == "compare":
        return _run_compare(options)
    if options.command == "demo":
        from gpuprof._cli import demo

        return demo.run(sys.stdout, options.steps, options.trace)
    from gpuprof._cli import info
    from gpuprof._common.text import write_text

    if options.peaks:
        from gpuprof._cli import peaks

        code, text = peaks.run(as_json=options.json)
        write_text(sys.stdout, text)
        return code
    found = info.collect()
    write_text(
        sys.stdout, json.dumps(found, indent=2) + "\n" if options.json else info.render(found)
    )
    return OK


def _complain(text: str) -> None:
    from gpuprof._common.text import shown_text, write_text

    write_text(sys.stderr, f"gpuprof: {shown_text(text)}\n")


def _discard_output() -> None:
    """Discard what is written from here on: the reader of standard output is gone."""
    # Python flushes standard output once more at exit; that must not fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; None takes the arguments of the process."""
    from gpuprof.errors import GpuprofError

    try:
        options = _parser().parse_args(arguments)
        code = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except (GpuprofError, OSError) as error:
        from gpuprof._common.text import write_text

        write_text(sys.stderr, f"gpuprof: {error}\n")
        return FAILED
    return code
