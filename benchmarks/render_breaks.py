"""Rewrite the messages in docs/when_a_capture_breaks.md from docs/capture_breaks.json, or check it.

The JSON file is what `graphs_breaks.py --json` wrote. Lines are broken where they are too long for
a page; nothing else is changed.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from _pages import ROOT, Block, PageError

DATA = ROOT / "docs" / "capture_breaks.json"
BLOCK = Block(ROOT / "docs" / "when_a_capture_breaks.md", "breaks")
_WIDTH = 100


def load() -> dict[str, Any]:
    """Read the messages."""
    data: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    if (data.get("format"), data.get("version")) != ("gpuprof-breaks", 1):
        raise PageError(f"{DATA.name}: expected what graphs_breaks.py --json writes")
    return data


def render(data: Mapping[str, Any]) -> str:
    """Return the Markdown that stands between the two marks."""
    return "\n".join([_source(data), *(_case(case) for case in data["cases"])])


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


if __name__ == "__main__":
    sys.exit(BLOCK.main(__doc__, lambda: render(load())))
