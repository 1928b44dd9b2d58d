"""What the commands of ``gpuprof`` share: exit codes, parsers of arguments, complaints."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpuprof._common.text import shown_text, write_text

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted"
STORAGE = ".gpuprof"
NEVER = "never"
MAY_FAIL = ("slow", "memory", "launches", "instructions", "ambiguous", "nodata", "incomparable")
FAIL_BY_DEFAULT = ("slow", "memory", "launches")
FORMATS = ("table", "md", "csv", "json")

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = Any


def up_to(most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from 1 to `most`."""

    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if not 1 <= number <= most:
            message = f"{text!r}: expected a whole number from 1 to {most:,}"
            raise argparse.ArgumentTypeError(message)
        return number

    return parse


def threshold(text: str) -> float:
    """Return the fraction that `text` gives, as in ``5%`` or ``0.05``."""
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
    """Return `text` if it can name a folder."""
    if not text.strip():
        message = (
            f"{text!r}: expected a folder, not an empty text as from a variable that is not set"
        )
        raise argparse.ArgumentTypeError(message)
    return text


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the folder of baselines."""
    parser.add_argument(
        "--storage",
        type=_storage,
        default=STORAGE,
        metavar="DIR",
        help=f"where baselines are saved (default {STORAGE})",
    )


def fail_on(text: str) -> frozenset[str]:
    """Return the verdicts that `text` names, separated by commas; none for ``never``."""
    names = frozenset(name.strip().lower() for name in text.split(",")) - {""}
    if not names or names - {*MAY_FAIL, NEVER} or (NEVER in names and len(names) > 1):
        message = (
            f"{text!r}: expected {NEVER}, or some of {', '.join(MAY_FAIL)} separated by commas"
        )
        raise argparse.ArgumentTypeError(message)
    return names - {NEVER}


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
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="table",
        help="how to print (default table); the times of csv and json are milliseconds",
    )


def complain(text: str) -> None:
    """Write one line to standard error."""
    write_text(sys.stderr, f"gpuprof: {shown_text(text)}\n")


def discard_output() -> None:
    """Discard what is written from here on: the reader of standard output is gone."""
    # Python flushes standard output once more at exit; that must not fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
