"""What IPython shows by itself: a line for an unnamed scope under its cell, a sample's table.

Nothing here runs where there is no IPython, which is not imported: the shell that is there is all
that is used.
"""

from __future__ import annotations

import sys
from typing import Any

import gpuprof._core as _core
from gpuprof._common.text import write_text
from gpuprof._common.units import duration
from gpuprof._display.table import Table


def follow_cells(shell: Any) -> None:
    """Show a line under each cell for each unnamed scope in it that nobody holds.

    The scope does not wait: its sample is read when the cell has ended.
    """
    shell.events.register("post_run_cell", _show_unheld)
    _core._keep_unheld()


def _show_unheld(_result: object = None) -> None:
    samples: list[Any]
    samples, count = _core._take_unheld()
    lines = [*map(_line, samples)]
    if count > len(samples):
        lines.append(
            f"... and {count - len(samples)} more; give the scope a name, and gpuprof.stats() has "
            "a row of all"
        )
    if lines:
        write_text(sys.stdout, "\n".join([*lines, ""]))


def _line(sample: _core.Sample) -> str:
    try:
        ms = duration(sample.ms)
    except RuntimeError as error:  # the driver's, which must not hide the lines of the others
        return f"not timed: {error}"
    if sample.clock == "cuda":
        return f"GPU {ms}, host {duration(sample.host_ms)}"
    if sample.clock != "cpu":
        return f"{sample.clock} {ms}"
    if sample.cuda_started_inside:
        return f"host {ms}; CUDA came into use inside, so run the cell again for the GPU's time"
    return f"host {ms}; no GPU time was measured"


def sample_html(sample: _core.Sample) -> str:
    """Return the table that a notebook shows for a sample; it never waits."""
    facts = sample.to_dict()
    is_cuda = facts["clock"] == "cuda"
    cells = {
        "scope": facts["path"] or "(unnamed)",
        "GPU": duration(facts["ms"]) if is_cuda else "",
        "host": duration(facts["host_ms"]),
        "clock": facts["clock"],
        "state": "failed" if facts["failed"] else facts["state"],
    }
    return Table.of([cells], left={"scope", "clock", "state"}).html()
