"""The command ``gpuprof``.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. For the commands on traces, 1 also
means that a trace has faults, and 2 that an input cannot be read as a trace; those of ``compare``
and ``ab`` are in `_cli.comparison`. A reader that goes away early, as ``head`` does, is no failure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from gpuprof._cli import (
    ab_command,
    compare_command,
    history_command,
    list_command,
    report_command,
    run_command,
    trace_command,
)
from gpuprof._cli.arguments import (
    EXIT_CODES,
    FAILED,
    INTERRUPTED,
    OK,
    USAGE,
    complain,
    discard_output,
    up_to,
)

DEFAULT_STEPS, MAX_STEPS = 20, 100_000

# The commands that have a module of their own: what `add_arguments` adds, `run` runs.
_MODULES = {
    "trace": trace_command,
    "compare": compare_command,
    "run": run_command,
    "ab": ab_command,
    "report": report_command,
    "list": list_command,
    "history": history_command,
}


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
        type=up_to(MAX_STEPS),
        default=DEFAULT_STEPS,
        metavar="N",
        help=f"how many steps of work (default {DEFAULT_STEPS})",
    )
    demo.add_argument(
        "--trace",
        metavar="FILE",
        help="also write a trace of the steps, for Perfetto; compressed if it ends in .gz",
    )
    for module in _MODULES.values():
        module.add_arguments(commands)
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.command in _MODULES:
        code: int = _MODULES[options.command].run(options)
        return code
    if options.command == "demo":
        from gpuprof._cli import demo
        from gpuprof._common import outputs
        from gpuprof._trace.path import expand

        try:
            given = [] if options.trace is None else [options.trace]
            complaint = outputs.complaint(
                [outputs.Output("--trace", outputs.TRACE, each, expand(each)) for each in given]
            )
        except ValueError as error:
            complaint = str(error)
        if complaint:
            complain(complaint)
            return USAGE
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; None takes the arguments of the process."""
    from gpuprof.errors import GpuprofError

    given = list(sys.argv[1:] if arguments is None else arguments)
    is_program = given[:1] == ["run"]
    if is_program:
        given, program_arguments = run_command.split(given)
    try:
        options = _parser().parse_args(given)
    except BrokenPipeError:
        discard_output()
        return OK
    if is_program:  # what it raises is the program's
        options.arguments = program_arguments
        return run_command.run(options)
    try:
        code = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except (GpuprofError, OSError) as error:
        from gpuprof._common.text import write_text

        write_text(sys.stderr, f"gpuprof: {error}\n")
        return FAILED
    return code
