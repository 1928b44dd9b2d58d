"""``gpuprof trace``: sum up, compare, check, repair and merge traces."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from gpuprof._cli.command import FAILED, OK, USAGE, Answer, check_output, refusing
from gpuprof._common import outputs
from gpuprof._common.interrupts import collector_off
from gpuprof._common.text import write_text
from gpuprof._trace_tools import diff as trace_diff
from gpuprof._trace_tools import tools
from gpuprof.errors import TraceError


@contextmanager
def _reading() -> Iterator[None]:
    """Refuse what is no trace; without the garbage collector, which finds nothing in events."""
    with collector_off(), refusing(TraceError, ValueError):
        yield


@_reading()
def summary(options: argparse.Namespace) -> Answer:
    found = tools.summary(options.file, by=options.by, top=options.top)
    return _shown(found, options.json, [f"{found.path}: {found.cut}"] if found.cut else [])


@_reading()
def diff(options: argparse.Namespace) -> Answer:
    found = trace_diff.trace_diff(
        options.a, options.b, by=options.by, per=options.per, top=options.top
    )
    return _shown(found, options.json, found.cut)


def _shown(found: Any, as_json: bool, cut: Iterable[str]) -> Answer:
    text = json.dumps(found.to_dict(), indent=2) if as_json else str(found)
    complaints = [f"{each}; `gpuprof trace repair` makes it whole" for each in cut]
    return Answer(f"{text}\n", USAGE if complaints else OK, complaints)


@_reading()
def validate(options: argparse.Namespace) -> Answer:
    """Check each file; the exit code is the worst of theirs."""
    found, complaints = [], []
    for file in options.files:
        try:
            found.append(tools.validate(file))
        except TraceError as error:
            complaints.append(str(error))
    code = USAGE if complaints else OK if all(each.ok for each in found) else FAILED
    if options.json and found:
        plain = [each.to_dict() for each in found]
        text = json.dumps(plain if len(options.files) > 1 else plain[0], indent=2) + "\n"
    else:
        text = "".join(f"{each}\n" for each in found)
    return Answer(text, code, complaints)


@_reading()
def repair(options: argparse.Namespace) -> Answer:
    check_output("-o", outputs.TRACE, options.output)
    return _written(tools.repair(options.file, options.output))


@_reading()
def merge(options: argparse.Namespace) -> Answer:
    check_output("-o", outputs.TRACE, options.output)
    return _written(tools.merge(options.files, options.output, align=not options.no_align))


def _written(report: Any) -> Answer:
    """Say what was written, and not in the midst of a trace that is standard output."""
    is_there = outputs.descriptor_of(report.output) == 1
    write_text(sys.stderr if is_there else sys.stdout, f"{report}\n")
    return Answer()
