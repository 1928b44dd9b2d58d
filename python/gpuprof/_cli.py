"""The command ``gpuprof``.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. A reader that goes away early, as
``head`` does, is no failure.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

OK, FAILED, INTERRUPTED = 0, 1, 130
MAX_STEPS = 100_000
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted"


def _steps(text: str) -> int:
    steps = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= steps <= MAX_STEPS:
        message = f"{text!r}: expected a whole number from 1 to {MAX_STEPS:,}"
        raise argparse.ArgumentTypeError(message)
    return steps


def _parser() -> argparse.ArgumentParser:
    from gpuprof import __version__
    from gpuprof._demo import DEFAULT_STEPS

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
    return parser


def _run(options: argparse.Namespace) -> int:
    from gpuprof import _demo, _info, _report

    if options.command == "demo":
        return _demo.run(sys.stdout, options.steps)
    info = _info.collect()
    text = json.dumps(info, indent=2) + "\n" if options.json else _info.render(info)
    _report.write_text(sys.stdout, text)
    return OK


def _reader_is_gone() -> int:
    # Python flushes standard output once more at exit; that must not fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; None takes the arguments of the process."""
    from gpuprof.errors import GpuprofError

    try:
        options = _parser().parse_args(arguments)
        code = _run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_is_gone()
    except KeyboardInterrupt:
        return INTERRUPTED
    except (GpuprofError, OSError) as error:
        from gpuprof._report import write_text

        write_text(sys.stderr, f"gpuprof: {error}\n")
        return FAILED
    return code
