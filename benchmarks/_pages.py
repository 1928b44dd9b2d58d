"""A part of a page that a script writes: found between two marks, replaced or checked."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class PageError(ValueError):
    """A page has no place for what a script writes, or there is nothing to write."""


@dataclass(frozen=True)
class Block:
    """What stands between the marks `<!-- NAME:begin -->` and `<!-- NAME:end -->` of a page."""

    page: Path
    name: str

    @property
    def begin(self) -> str:
        """The mark above it."""
        return f"<!-- {self.name}:begin -->"

    @property
    def end(self) -> str:
        """The mark below it."""
        return f"<!-- {self.name}:end -->"

    def replace(self, text: str, block: str) -> str:
        """Return `text` with `block` between the two marks."""
        before, begin, rest = text.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end:
            raise PageError(
                f"{self.page.name} needs the lines {self.begin} and {self.end}, in this order"
            )
        return f"{before}{begin}\n{block}{end}{after}"

    def main(self, description: str | None, render: Callable[[], str]) -> int:
        """Rewrite the page; with --check, return 1 if that would change it."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument(
            "--check", action="store_true", help="change nothing, tell by the status"
        )
        options = parser.parse_args()
        text = self.page.read_text(encoding="utf-8")
        wanted = self.replace(text, render())
        if options.check:
            if text != wanted:
                script = Path(sys.argv[0]).name
                print(f"{self.page.name} is out of date: run python benchmarks/{script}")
            return int(text != wanted)
        self.page.write_text(wanted, encoding="utf-8")
        return 0
