"""What the commands of ``gpuprof`` share: their parser and its values, and how they answer."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from gpuprof._common import checks, outputs
from gpuprof._common.imports import need
from gpuprof._common.records import Check
from gpuprof._common.text import shown_text, write_text
from gpuprof._display.records import Records
from gpuprof._display.table import Table

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted"
SHELLS = ("bash", "zsh")
FILE, FOLDER = "FILE", "DIR"  # metavars that a shell completes
STORAGE = ".gpuprof"
GIT_STORE = "git:refs/gpuprof"
NEVER = "never"
MAY_FAIL = ("slow", "memory", "launches", "ambiguous", "nodata", "incomparable")
FAIL_BY_DEFAULT = ("slow", "memory", "launches")
FORMATS = ("text", "json", "csv", "markdown")
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


def read_as(kind: Callable[[str], Any], check: Check) -> Callable[[str], Any]:
    """Return a parser of texts whose value passes the check."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = text
        try:
            return check("value", value)
        except (TypeError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def whole(least: int, most: int) -> Callable[[str], int]:
    return read_as(int, partial(checks.whole, least=least, most=most))


def _not_blank(name: str, text: str) -> str:
    return checks.text(name, text.strip() and text, empty=False)


def _variable(name: str, text: str) -> tuple[str, str]:
    variable, equals, value = text.partition("=")
    if not variable or not equals:
        raise checks.value_error(text, name, "NAME=VALUE")
    return variable, value


seconds = read_as(float, partial(checks.number, least=0, most=checks.MOST_S, above=True))
threshold = read_as(checks.share, partial(checks.number, least=0, most=1))  # 5% or 0.05
variable = read_as(str, _variable)
not_blank = read_as(str, _not_blank)


def fail_on(text: str) -> frozenset[str]:
    """Return the verdicts that `text` names, separated by commas; none for ``never``."""
    names = frozenset(name.strip().lower() for name in text.split(",")) - {""}
    if not names or names - {*MAY_FAIL, NEVER} or (NEVER in names and len(names) > 1):
        expected = f"{NEVER}, or some of {', '.join(MAY_FAIL)} separated by commas"
        raise argparse.ArgumentTypeError(str(checks.value_error(text, "value", expected)))
    return names - {NEVER}


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

    def add(self, name: str, metavar: str | None, text: str | None = None, **options: Any) -> None:
        self.add_argument(name, metavar=metavar, help=text, **options)

    def add_flag(self, name: str, text: str, **options: Any) -> None:
        self.add_argument(name, action="store_true", help=text, **options)

    def add_count(
        self, name: str, text: str, limits: tuple[int, int], default: int | None = None
    ) -> None:
        """Add an option that is a whole number, with its default in its help."""
        text += "" if default is None else " (default %(default)s)"
        self.add(name, "N", text, type=whole(*limits), default=default)

    def add_storage(self, default: str = STORAGE) -> None:
        text = (
            f"where baselines are saved: a folder, or a git ref such as {GIT_STORE} "
            f"(default {default})"
        )
        self.add("--storage", FOLDER, text, type=not_blank, default=default)

    def add_threshold(self, example: str, note: str, default: float | None = None) -> None:
        text = f"the smallest change to speak of ({note})"
        self.add("--threshold", example, text, type=threshold, default=default)

    def add_verdict_options(self) -> None:
        """Add what all comparisons have: which verdicts fail, the memory's limit, the format."""
        text = (
            f"which verdicts end with 1: some of {','.join(MAY_FAIL)}, or {NEVER} "
            f"(default {','.join(FAIL_BY_DEFAULT)})"
        )
        self.add("--fail-on", "VERDICTS", text, type=fail_on, default=frozenset(FAIL_BY_DEFAULT))
        text = "by how much the peak memory may grow (default 5%%, and always 1 MiB)"
        self.add("--memory-threshold", "5%", text, type=threshold)
        self.add_format("; the times of csv and json are milliseconds")

    def add_format(self, note: str = "") -> None:
        text = f"how to print (default {FORMATS[0]}){note}"
        self.add("--format", None, text, choices=FORMATS, default=FORMATS[0])

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


def check_output(
    option: str, kind: outputs.Kind, path: str | None, inputs: Iterable[tuple[str, str]] = ()
) -> None:
    """Refuse a file that cannot be written, or whose content is an input's or foreign."""
    wanted = [] if path is None else [outputs.Output(option, kind, path)]
    if complaint := outputs.complaint(wanted, inputs):
        raise Refused(complaint)


def complain(*lines: str) -> None:
    write_text(sys.stderr, f"gpuprof: {chr(10).join(map(shown_text, lines))}\n")
