"""The table of what became of each model: ``python -m tests.gpu.zoo.report FOLDER``."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

STATUSES = ("equal", "close", "refused", "wrong", "n/a")
WARM_UPS = 3  # calls that a callable without samples runs eagerly
Line = dict[str, Any]
# The folders of a machine are none of the table's.
_FEW = 4  # uses that are named
_BROKEN = re.compile(r"broke (?:in (\S+) )?at (\S+)")
_FOLDERS = re.compile(r"/\S*/(?=(torch|torchvision|transformers|tests)/)")


def write(folder: Path, model: str, kind: str, uses: list[Line]) -> None:
    """Write the file of a model: one line of JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(each if each.isalnum() else "_" for each in model)
    line = json.dumps({"model": model, "kind": kind, "uses": uses})
    (folder / f"{name}.json").write_text(line + "\n", encoding="utf-8")


def read(folder: Path) -> list[Line]:
    """Return the models of a folder, in the order of their kinds and names."""
    found = [json.loads(each.read_text(encoding="utf-8")) for each in folder.glob("*.json")]
    return sorted(found, key=lambda each: (each["kind"], each["model"].lower()))


def _why(status: str, uses: list[Line]) -> str:
    """Return how many uses had a status, those of one reason together."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for each in uses:
        reason = _FOLDERS.sub("", each["why"]).replace("|", "\\|")
        if status == "close" and " at step " in reason:
            reason = "within what the numerics allow"
        elif broken := _BROKEN.search(reason):
            reason = f"{broken[1] or 'another thread'} at `{broken[2]}`"
        by_reason[reason].append(each["use"])
    largest = max(each["relative"] for each in uses)
    size = f", at most {largest:.1e} apart" if status == "close" and largest else ""
    told = (
        f"{', '.join(names) if len(names) < _FEW else f'{len(names)} uses'}: {reason}"
        for reason, names in by_reason.items()
    )
    return f"{status}{size}: {'; '.join(told)}"


def _eager_calls(use: Line) -> int:
    return int(use["notes"].get("eager calls", 0))


def table(models: Iterable[Line]) -> str:
    """Return a table in Markdown, a line for each model and one for all."""
    lines = [
        "| model | kind | " + " | ".join(STATUSES) + " | what is not equal |",
        "|---|---|" + "---:|" * len(STATUSES) + "---|",
    ]
    totals = dict.fromkeys(STATUSES, 0)
    for each in models:
        groups = {
            status: [use for use in each["uses"] if use["status"] == status] for status in STATUSES
        }
        for status, uses in groups.items():
            totals[status] += len(uses)
        counts = " | ".join(str(len(uses)) for uses in groups.values())
        told = [
            _why(status, groups[status])
            for status in ("wrong", "refused", "close")
            if groups[status]
        ]
        if partly := [use["use"] for use in each["uses"] if _eager_calls(use) > WARM_UPS]:
            told.append(f"partly run eagerly: {', '.join(partly)}")
        lines.append(f"| {each['model']} | {each['kind']} | {counts} | {'<br>'.join(told)} |")
    lines.append("| all | | " + " | ".join(map(str, totals.values())) + " | |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(read(Path(sys.argv[1]))))
