"""Rewrite the messages in docs/when_a_capture_breaks.md from docs/capture_breaks.json, or check it.

The JSON file is what `graphs_breaks.py --json` wrote. Lines are broken where they are too long for
a page; nothing else is changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = _DOCS / "when_a_capture_breaks.md"
DATA = _DOCS / "capture_breaks.json"
BEGIN = "<!-- breaks:begin -->"
END = "<!-- breaks:end -->"
_WIDTH = 100


class PageError(ValueError):
    """The page has no place for the messages, or the file holds none."""


def load() -> dict[str, Any]:
    """Read the messages."""
    data: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    if (data.get("format"), data.get("version")) != ("gpuprof-breaks", 1):
        raise PageError(f"{DATA.name}: expected what graphs_breaks.py --json writes")
    return data


def render(data: Mapping[str, Any]) -> str:
    """Return the Markdown that stands between the two marks."""
    return "\n".join([_source(data), *(_case(case) for case in data["cases"])])


def replace_block(text: str, block: str) -> str:
    """Return `text` with what stands between the two marks replaced by `block`."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PageError(f"{PAGE.name} needs the lines {BEGIN} and {END}, in this order")
    return f"{before}{begin}\n{block}{end}{after}"


def _source(data: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    gpu, driver = data["machine"]["gpu"], data["machine"]["driver"]
    if gpu is None:
        where = "on the driver that gpuprof is tested with, without a GPU and without torch"
    else:
        where = f"on an {gpu}, driver {driver}"
    text = (
        f"What follows was printed by `benchmarks/graphs_breaks.py` on {data['date']}, {where} "
        f"({versions}). Long lines are broken; of torch's messages it is the first line."
    )
    return textwrap.fill(text, _WIDTH) + "\n"


def _case(case: Mapping[str, str | None]) -> str:
    parts = [f"### {case['title']}\n", f"```python\n{case['code']}```\n"]
    spoken = (
        ("torch", "A capture by `torch.cuda.graph` says"),
        ("gpuprof", "gpuprof says"),
        ("debug", "With `debug=True` it says"),
    )
    for key, opening in spoken:
        said = case[key]
        if said is not None:
            lines = [textwrap.fill(line, _WIDTH, break_on_hyphens=False) for line in _lines(said)]
            parts.append(f"{opening}\n\n```text\n" + "\n".join(lines) + "\n```\n")
    return "\n".join(parts)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def main() -> int:
    """Rewrite the page; with --check, return 1 if that would change it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, tell by the status")
    options = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    wanted = replace_block(text, render(load()))
    if options.check:
        if text != wanted:
            print(f"{PAGE.name} is out of date: run python benchmarks/render_breaks.py")
        return int(text != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
