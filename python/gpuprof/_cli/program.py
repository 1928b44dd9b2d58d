"""``gpuprof run``: a script or a module, unchanged, with statistics and a trace.

The exit status is the program's own: by its exit code, its exception, or the signal that ended it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuprof._cli.command import Refused, refusing
from gpuprof.errors import TraceError

if TYPE_CHECKING:
    from gpuprof._run.script import Target
    from gpuprof._run.session import Session

_WITH_VALUE = ("-o", "--output", "--stats", "--html", "--watch", "--scopes")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the command's arguments, with the program's name, and the program's own.

    `argparse` would read options that stand after the program's name, and lose a ``--`` there.
    """
    own = list(arguments[:1])
    rest = list(arguments[1:])
    is_module = False
    while rest:
        word = rest.pop(0)
        if word == "--" or not word.startswith("-") or is_module:
            name = rest.pop(0) if word == "--" and rest else word
            return [*own, "--", name], rest
        if word in _WITH_VALUE and rest:
            # In one word, because a value may begin with a dash.
            value = rest.pop(0)
            own.append(f"{word}={value}" if word.startswith("--") else f"{word}{value}")
            continue
        is_module = word == "-m"
        own.append(word)
    return own, []


def begin(options: argparse.Namespace, arguments: Sequence[str]) -> tuple[Session, Target]:
    """Return the session, which has begun, and the program; Refused says what is wrong."""
    from gpuprof._common import outputs
    from gpuprof._common.monitoring import is_supported
    from gpuprof._run import script
    from gpuprof._run.session import Session, Wishes
    from gpuprof._trace.path import expand

    target = script.Target(options.program, options.is_module, tuple(arguments))
    if complaint := target.complaint():
        raise Refused(complaint)
    if options.scopes and not is_supported():
        message = "--scopes needs Python 3.12 or later, which can tell of single functions"
        raise Refused(message)
    wanted = (
        ("-o", outputs.TRACE, options.output),
        ("--stats", outputs.STATS, options.stats),
        ("--html", outputs.HTML, options.html),
    )
    for option, _, path in wanted:
        if path == outputs.STANDARD:
            message = f"{option}: expected a file, got {path!r}: standard output is the program's"
            raise Refused(message)
    with refusing(ValueError, TraceError):
        files = [outputs.Output(*each, expand(each[-1])) for each in wanted if each[-1] is not None]
    paths = {each.option: each.path for each in files}
    wishes = Wishes(
        program=target.name,
        trace=paths.get("-o"),
        stats=paths.get("--stats"),
        html=paths.get("--html"),
        depth=options.watch,
        patterns=tuple(options.scopes),
        command=(*(("-m",) if target.is_module else ()), target.name, *target.arguments),
        kernels=options.kernels,
        idle=options.idle,
    )
    if complaint := wishes.complaint() or outputs.complaint(files, _read(target)):
        raise Refused(complaint)
    session = Session(wishes)
    with refusing(RuntimeError):
        session.start()
    return session, target


def run(session: Session, target: Target) -> int:
    from gpuprof._run import script

    try:
        script.run(target)
    except SystemExit:
        raise
    except BaseException as error:
        session.note_failure(error)
        raise
    return 0


def _read(target: Target) -> list[tuple[str, str]]:
    """Return what the run reads or writes besides its outputs."""
    from gpuprof._trace.path import expand

    found = [] if target.is_module else [("the program", target.name)]
    with suppress(KeyError, ValueError, TraceError):  # which is said when the trace begins
        found.append(("that of GPUPROF_TRACE_OUT", expand(os.environ["GPUPROF_TRACE_OUT"])))
    return found
