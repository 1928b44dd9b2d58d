"""Arguments that several commands of ``gpuprof`` have, and what their values may be."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import NoReturn

from gpuprof._cli.command import FOLDER
from gpuprof._common.checks import MOST_S

STORAGE = ".gpuprof"
NEVER = "never"
MAY_FAIL = ("slow", "memory", "launches", "instructions", "ambiguous", "nodata", "incomparable")
FAIL_BY_DEFAULT = ("slow", "memory", "launches")
FORMATS = ("text", "json", "csv", "markdown")


def _wrong(text: str, expected: str) -> NoReturn:
    message = f"{text!r}: expected {expected}"
    raise argparse.ArgumentTypeError(message)


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        if not least <= number <= most:
            _wrong(text, f"a whole number from {least} to {most:,}")
        return number

    return parse


def threshold(text: str) -> float:
    """Return the fraction that `text` gives, as in ``5%`` or ``0.05``."""
    number = text.strip()
    try:
        value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        _wrong(text, "a percentage such as 5%, or a fraction below 1 such as 0.05")
    return value


def seed(text: str) -> int:
    """Return the whole number that `text` gives."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        _wrong(text, "a whole number of up to 19 digits")
    return int(text)


def seconds(text: str) -> float:
    """Return the time that `text` gives."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value <= MOST_S:
        _wrong(text, f"a number of seconds above 0, at most {MOST_S:g}")
    return value


def variable(text: str) -> tuple[str, str]:
    """Return a variable of an environment, and its value."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        _wrong(text, "NAME=VALUE")
    return name, value


def pattern(text: str) -> str:
    """Return `text` if it can match a name."""
    if not text.strip():
        _wrong(text, "a pattern such as 'mypkg.model.*'")
    return text


def _folder(text: str) -> str:
    if not text.strip():
        _wrong(text, "a folder, not an empty text as from a variable that is not set")
    return text


def fail_on(text: str) -> frozenset[str]:
    """Return the verdicts that `text` names, separated by commas; none for ``never``."""
    names = frozenset(name.strip().lower() for name in text.split(",")) - {""}
    if not names or names - {*MAY_FAIL, NEVER} or (NEVER in names and len(names) > 1):
        _wrong(text, f"{NEVER}, or some of {', '.join(MAY_FAIL)} separated by commas")
    return names - {NEVER}


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the folder of baselines."""
    parser.add_argument(
        "--storage",
        type=_folder,
        default=STORAGE,
        metavar=FOLDER,
        help=f"where baselines are saved (default {STORAGE})",
    )


def add_threshold(
    parser: argparse.ArgumentParser, example: str, note: str, default: float | None = None
) -> None:
    """Add the option that says which changes are too small to speak of."""
    parser.add_argument(
        "--threshold",
        type=threshold,
        default=default,
        metavar=example,
        help=f"the smallest change to speak of ({note})",
    )


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


def add_format(
    parser: argparse.ArgumentParser, note: str = "", short: tuple[str, ...] = ()
) -> None:
    """Add the option that says how the result is printed, and `short` forms of it."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help=f"how to print (default {FORMATS[0]}){note}",
    )
    for form in short:
        group.add_argument(
            f"--{form}",
            dest="format",
            action="store_const",
            const=form,
            help=f"the same as --format {form}",
        )
