"""Arguments that several commands of ``gpuprof`` have, and what their values may be."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from gpuprof._cli.command import FOLDER
from gpuprof._common import checks
from gpuprof._common.records import Check

STORAGE = ".gpuprof"
GIT_STORE = "git:refs/gpuprof"
NEVER = "never"
MAY_FAIL = ("slow", "memory", "launches", "ambiguous", "nodata", "incomparable")
FAIL_BY_DEFAULT = ("slow", "memory", "launches")
FORMATS = ("text", "json", "csv", "markdown")


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


seed = whole(0, 2**63 - 1)
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


def add_flag(parser: argparse.ArgumentParser, option: str, text: str) -> None:
    parser.add_argument(option, action="store_true", help=text)


def add_count(
    parser: argparse.ArgumentParser,
    option: str,
    text: str,
    limits: tuple[int, int],
    default: int | None = None,
    *,
    metavar: str = "N",
) -> None:
    """Add an option that is a whole number, with its default in its help."""
    text += "" if default is None else " (default %(default)s)"
    kind = whole(*limits)
    parser.add_argument(option, type=kind, default=default, metavar=metavar, help=text)


def add_storage(parser: argparse.ArgumentParser, default: str = STORAGE) -> None:
    """Add the option that names the folder of baselines, or their git ref."""
    parser.add_argument(
        "--storage",
        type=not_blank,
        default=default,
        metavar=FOLDER,
        help=f"where baselines are saved: a folder, or a git ref such as {GIT_STORE} "
        f"(default {default})",
    )


def add_threshold(
    parser: argparse.ArgumentParser, example: str, note: str, default: float | None = None
) -> None:
    text = f"the smallest change to speak of ({note})"
    parser.add_argument("--threshold", type=threshold, default=default, metavar=example, help=text)


def add_verdict_options(parser: argparse.ArgumentParser) -> None:
    """Add what all comparisons have: which verdicts fail, the memory's limit, and the format."""
    default = ",".join(FAIL_BY_DEFAULT)
    parser.add_argument(
        "--fail-on",
        type=fail_on,
        default=frozenset(FAIL_BY_DEFAULT),
        metavar="VERDICTS",
        help=f"which verdicts end with 1: some of {','.join(MAY_FAIL)}, or {NEVER} "
        f"(default {default})",
    )
    parser.add_argument(
        "--memory-threshold",
        type=threshold,
        metavar="5%",
        help="by how much the peak memory may grow (default 5%%, and always 1 MiB)",
    )
    add_format(parser, "; the times of csv and json are milliseconds")


def add_format(parser: argparse.ArgumentParser, note: str = "") -> None:
    """Add the option that says how the result is printed."""
    text = f"how to print (default {FORMATS[0]}){note}"
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help=text)
