"""What the commands of ``gpuprof`` share: their parser, and how they answer."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from gpuprof._common.imports import need
from gpuprof._common.text import shown_text, write_text
from gpuprof._display.records import Records
from gpuprof._display.table import Table

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted"
SHELLS = ("bash", "zsh")
FILE, FOLDER = "FILE", "DIR"  # metavars that a shell completes
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


class Answer(NamedTuple):
    """What a command prints to standard output, its exit code, and what it complains of."""

    text: str = ""
    code: int = OK
    complaints: Sequence[str] = ()


class Refused(Exception):
    """A command does not do what was asked; its lines say why."""

    def __init__(self, *lines: str, code: int = USAGE) -> None:
        super().__init__(*lines)
        self.lines = lines
        self.code = code


@contextmanager
def refusing(*kinds: type[Exception], code: int = USAGE) -> Iterator[None]:
    """Turn these errors into a `Refused` with their text; usable as a decorator."""
    try:
        yield
    except kinds as error:
        raise Refused(str(error), code=code) from error


class Parser(argparse.ArgumentParser):
    """A parser that shows its own usage for what it does not know, and suggests what was meant.

    Without arguments it shows its help, if it needs some.
    """

    def __init__(self, *, allow_abbrev: bool = False, **options: Any) -> None:
        super().__init__(allow_abbrev=allow_abbrev, **options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse what is known; all else is an error here, where the subcommand is known."""
        if not args and any(action.required for action in self._actions):
            self.print_help(sys.stderr)
            self.exit(USAGE)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            meant = _meant(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return found, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = list(action.choices)
            expected = f"expected one of {', '.join(known)}{_meant(value, known)}"
            raise argparse.ArgumentError(action, f"{value!r}: {expected}")


def _meant(given: str, known: Iterable[str]) -> str:
    (*found,) = difflib.get_close_matches(given, known, 1)
    return f"; did you mean {found[0]}?" if found else ""


class PrintCompletion(argparse.Action):
    """The option that prints a shell's completions."""

    def __call__(self, parser: argparse.ArgumentParser, _: Any, values: Any, *__: Any) -> None:
        try:
            shtab = need("shtab", "gpuprof --print-completion")
        except ModuleNotFoundError as error:
            raise Refused(str(error), code=FAILED) from error
        _mark_files(parser, shtab)
        write_text(sys.stdout, f"{shtab.complete(parser, values)}\n")
        parser.exit()


def _mark_files(parser: argparse.ArgumentParser, shtab: Any) -> None:
    kinds = {FILE: shtab.FILE, FOLDER: shtab.DIRECTORY}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _mark_files(command, shtab)
        elif action.metavar in kinds:
            action.complete = kinds[str(action.metavar)]  # type: ignore[attr-defined]


def printed(
    form: str, plain: object, text: Callable[[], str], records: Callable[[], Records]
) -> str:
    """Return a result in the form that was asked for: JSON, text, CSV or Markdown."""
    if form == "json":
        return json.dumps(plain, indent=2, allow_nan=False) + "\n"
    if form == "text":
        return text()
    found = records()
    if form == "csv":
        return found.csv(printed=True)
    cells = [["" if cell is None else str(cell) for cell in line] for line in found.lines]
    return "\n".join(Table(found.columns, cells, frozenset(found.columns)).markdown()) + "\n"


def complain(*lines: str) -> None:
    write_text(sys.stderr, f"gpuprof: {chr(10).join(map(shown_text, lines))}\n")
