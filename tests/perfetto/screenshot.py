"""Take a picture of a trace as Perfetto shows it: `python -m tests.perfetto.screenshot --help`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.perfetto.browser import Browser


def main() -> None:
    """Write the picture that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.perfetto.screenshot",
        description="Write a picture of a trace in Perfetto, 1600 pixels wide.",
    )
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("picture", type=Path, metavar="OUT.png")
    parser.add_argument("--expand", action="store_true", help="open all groups of tracks")
    parser.add_argument(
        "--between",
        nargs=2,
        type=float,
        metavar=("BEGIN", "END"),
        help="show only this part: milliseconds from the first event on",
    )
    parser.add_argument(
        "--select", metavar="NAME", help="select the first slice of this name: its arrows are drawn"
    )
    arguments = parser.parse_args()
    with Browser(arguments.trace.read_bytes()) as page:
        if arguments.expand:
            page.expand()
        if arguments.select:
            page.select(arguments.select)
        if arguments.between:
            begin, end = (round(ms * 1e6) for ms in arguments.between)
            page.look_at(begin, end)
        page.fit()
        arguments.picture.write_bytes(page.screenshot())


if __name__ == "__main__":
    main()
