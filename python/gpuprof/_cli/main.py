"""The command ``gpuprof``; the help of each command says what its exit codes mean.

A reader that goes away early, as ``head`` does, is no failure.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from gpuprof._cli import command
from gpuprof._cli.commands import declare
from gpuprof._common.text import write_text


def _parser() -> command.Parser:
    from gpuprof._core import build_info

    parser = command.Parser(prog="gpuprof", description="Time GPU code.", epilog=command.EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"gpuprof {build_info()['version']}")
    parser.add_argument(
        "--print-completion",
        choices=command.SHELLS,
        action=command.PrintCompletion,
        help="print the completions of these commands for a shell; needs shtab",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    declare(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; None takes the arguments of the process."""
    from gpuprof.errors import GpuprofError

    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"]:
        from gpuprof._cli import program

        given, program_arguments = program.split(given)
    code = command.OK
    try:
        options = _parser().parse_args(given)
        if options.command == "run":
            begun = program.begin(options, program_arguments)
        else:
            module, _, function = options.call.partition(".")
            call = getattr(importlib.import_module(f"gpuprof._cli.{module}"), function)
            answer: command.Answer = call(options)
            code = answer.code
            write_text(sys.stdout, answer.text)
            sys.stdout.flush()
            for each in answer.complaints:
                command.complain(each)
            return code
    except BrokenPipeError:
        # Python flushes standard output once more at exit; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code
    except KeyboardInterrupt:
        return command.INTERRUPTED
    except command.Refused as refused:
        command.complain(*refused.lines)
        return refused.code
    except (GpuprofError, OSError) as error:
        command.complain(str(error))
        return command.FAILED
    return program.run(*begun)  # what it raises is the program's
