"""A comparison of two sides: its exit code, and how it is printed.

Exit codes: 0 nothing failed, 1 SLOW, MEMORY or LAUNCHES, or what ``--fail-on`` names, 3 nothing
could be compared. A speed-up never fails.
"""

from __future__ import annotations

import json
import math

from gpuprof._common.text import MAX_NAME_COLUMNS, shown_text
from gpuprof._common.units import NOTHING, duration, percent, ratio_text
from gpuprof._display.records import Records
from gpuprof._display.table import Table, markdown_list
from gpuprof._results.decision import Verdict
from gpuprof._results.texts import peak_text
from gpuprof._results.two_sides import Comparison

OK, SLOWER, INCOMPARABLE = 0, 1, 3
_LEFT = frozenset({"benchmark", "machine", "verdict"})


def exit_code(found: Comparison, fail_on: frozenset[str]) -> int:
    """Return the exit code. What only one side has counts as ``nodata``.

    Launches that cannot be compared count as ``incomparable``, as in the pytest plugin.
    """
    verdicts = {verdict.value for verdict in found.verdicts}
    verdicts |= {each.verdict.value for each in found.launches} & {Verdict.INCOMPARABLE.value}
    if found.only_in_base or found.only_in_new:
        verdicts.add("nodata")
    if verdicts & fail_on:
        return SLOWER
    return OK if found.compared else INCOMPARABLE


def text_of(found: Comparison, form: str) -> str:
    """Return the text to print."""
    if form == "json":
        return json.dumps(found.to_dict(), indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return _csv(found)
    is_text = form == "text"
    table = _table(found, MAX_NAME_COLUMNS if is_text else None)
    grid = (table.plain() if is_text else table.markdown()) if found.rows else []
    remarks = [f"note: {each}" if is_text else each for each in found.remarks()]
    blocks = [found.headline(), grid, found.reasons(), remarks, [_summary(found)]]
    for place, block in enumerate(blocks):
        if block is not grid:
            blocks[place] = [*map(shown_text, block)] if is_text else markdown_list(block)[1:]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _csv(found: Comparison) -> str:
    """Return a line for each benchmark; what only one side has is a line without times."""
    lines = []
    for line in found.rows:
        low, high = line.decision.interval or (None, None)
        lines.append({**line.to_dict(), "interval": {"low": low, "high": high}})
    for side, names in zip(found.names, (found.only_in_base, found.only_in_new), strict=True):
        nodata = Verdict.NODATA.value
        lines += [{"name": name, "verdict": nodata, "rule": f"only in {side}"} for name in names]
    return Records.of_plain(lines).csv(printed=True)


def _table(found: Comparison, longest: int | None) -> Table:
    """Fill in the table; names longer than `longest` lose their beginning, as paths differ late."""
    several = len({line.machine for line in found.rows}) > 1
    cells = []
    for line in found.rows:
        decision, name = line.decision, shown_text(line.name)
        memory = decision.memory
        if longest is not None and len(name) > longest:
            name = f"…{name[1 - longest :]}"
        cells.append(
            [
                name,
                line.machine if several else "",
                duration(decision.base),
                duration(decision.new),
                ratio_text(decision.ratio),
                ratio_text(*(decision.interval or [None])),
                NOTHING if decision.floor is None else percent(decision.floor),
                *(["", ""] if memory is None else map(peak_text, (memory.base, memory.new))),
                ", ".join(map(str, line.verdicts)),
            ]
        )
    base, new = found.names
    columns = ["benchmark", "machine", base, new, "ratio", "95 % interval", "floor"]
    columns += [f"{base} memory", f"{new} memory", "verdict"]
    return Table(columns, cells, _LEFT).without_empty()


def _summary(found: Comparison) -> str:
    verdicts = found.verdicts
    counts = [f"{verdicts[verdict]:,} {verdict.value}" for verdict in Verdict if verdicts[verdict]]
    if not counts:
        return "nothing to compare: the two sides have no name in common"
    ratios = [line.decision.ratio for line in found.rows]
    logs = [math.log(ratio) for ratio in ratios if ratio and math.isfinite(ratio)]
    if len(logs) > 1:
        mean = math.exp(math.fsum(logs) / len(logs))
        counts.append(f"geometric mean of the ratios {mean:.3f} (for information)")
    return ", ".join(counts)
