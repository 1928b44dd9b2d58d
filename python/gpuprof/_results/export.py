"""What results and comparisons have in common as files: JSON, CSV and data frames."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuprof._common import machine
from gpuprof._common.checks import json_object
from gpuprof._common.outputs import text_or_file
from gpuprof._display.records import Cell, Records

if TYPE_CHECKING:
    from typing_extensions import Self

# Attributes of a result that are columns under their own names, in two parts.
_HOW = ("name", "mode", "requested_mode", "clock", "l2", "gate", "count", "calls_per_sample")
_FIGURES = (
    "min_ms",
    "max_ms",
    "mean_ms",
    "stddev_ms",
    "q1_ms",
    "q3_ms",
    "iqr_ms",
    "mad_ms",
    "p10_ms",
    "p90_ms",
    "independent_samples",
    "host_ms",
    "tick_ms",
    "nbytes",
    "flops",
    "gbytes_per_s",
    "tflops_per_s",
    "bytes_share",
    "flops_share",
    "peak_bytes",
    "duration_s",
    "created",
)
_SAMPLE_COLUMNS = ("name", "sample", "ms", "clock_mhz")


class Exports(ABC):
    """JSON, CSV and data frames of what has a plain form and records."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Any) -> Self:
        """Build one from its plain form."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the plain form."""

    @abstractmethod
    def _records(self, samples: bool) -> Records:
        """Return the figures, a record for each function; or a record for each sample."""

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as strict JSON, in ASCII."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Build one from what `to_json` returned; ValueError if `text` is something else."""
        return cls.from_dict(json_object(text))

    def to_csv(
        self, path: str | os.PathLike[str] | None = None, *, samples: bool = False
    ) -> str | None:
        """Return CSV (RFC 4180), or write it to a file.

        Units are in the head: ``median_ms``. What is not known is empty.

        Parameters
        ----------
        path : str or os.PathLike, optional
            The file, in UTF-8, written whole or not at all. None returns the text.
        samples : bool
            A line for each sample in place of one for each function.
        """
        return text_or_file(self._records(samples).csv(), path)

    def to_frame(self, *, samples: bool = False) -> Any:
        """Return the columns of `to_csv` as a pandas DataFrame.

        Raises
        ------
        ModuleNotFoundError
            Without pandas.
        """
        return self._records(samples).frame(f"{type(self).__name__}.to_frame()")


def records_of(
    results: Sequence[Any], samples: bool, more: Sequence[Mapping[str, Cell]] = ()
) -> Records:
    """Return a record for each `BenchResult`, with what `more` adds to it, or for each sample."""
    if samples:
        return Records(_SAMPLE_COLUMNS, [line for each in results for line in _samples_of(each)])
    records = [_figures(each) for each in results]
    for record, added in zip(records, more, strict=False):
        record.update(added)
    return Records([*records[0]], [[*record.values()] for record in records])


def _figures(result: Any) -> dict[str, Cell]:
    low, high = result.interval_ms
    launches = result.launches
    return {
        **{name: getattr(result, name) for name in _HOW},
        "median_ms": result.median_ms,
        "interval_low_ms": low,
        "interval_high_ms": high,
        **{name: getattr(result, name) for name in _FIGURES},
        "kernels": launches and launches.num_kernels,
        "copies": launches and launches.copies,
        "memsets": launches and launches.memsets,
        "instructions": result.instructions and result.instructions.median,
        "machine": machine.key(result.machine) if result.machine else None,
        "params": _as_json(result.params),
        "warnings": "; ".join(result.warnings),
    }


def _samples_of(result: Any) -> list[list[Cell]]:
    clocks = result.clock_mhz or [None] * result.count
    pairs = zip(result.samples_ms, clocks, strict=True)
    return [[result.name, place, ms, mhz] for place, (ms, mhz) in enumerate(pairs)]


def _as_json(params: Mapping[str, Any]) -> str | None:
    """Return parameters as JSON text; None for none."""
    return json.dumps(dict(params), ensure_ascii=False, default=str) if params else None
