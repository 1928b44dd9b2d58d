"""The one format of benchmark results: what a script measured, on which machine, against what.

A result is one JSON object, written by a script's ``--json FILE``, checked by `validate`, kept in
``results/`` and shown in the docs by ``render.py``. A row holds the best of several
rounds; where it is compared with another row of the same run, `ratio` is best over best and
`ratio_median` the median of the rounds' own ratios. A target is an upper limit of the ratio, or of
the value where there is none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = "gpuprof-benchmark"
VERSION = 1
UNITS = ("ns", "us", "ms", "MiB", "%", "")  # the last: a plain number, such as a loss
RESULTS = Path(__file__).resolve().parents[1] / "results"


class ResultError(ValueError):
    """A result file does not follow the format."""


@dataclass(frozen=True)
class Row:
    """One measured figure."""

    name: str
    value: float
    unit: str
    median: float | None = None
    ratio_to: str | None = None
    ratio: float | None = None
    ratio_median: float | None = None
    target: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met, or None without one."""
        if self.target is None:
            return None
        return (self.value if self.ratio is None else self.ratio) <= self.target


@dataclass(frozen=True)
class Result:
    """Everything that one run of one script measured."""

    script: str
    date: str
    machine: Mapping[str, str | None]
    versions: Mapping[str, str]
    rows: Sequence[Row]
    notes: Sequence[str] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        rows = [asdict(row) | {"met": row.met} for row in self.rows]
        return {
            "format": FORMAT,
            "version": VERSION,
            "script": self.script,
            "date": self.date,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "rows": rows,
            "notes": list(self.notes),
        }

    def write(self, path: Path) -> None:
        """Write the JSON file, checked."""
        data = self.to_dict()
        validate(data)
        path.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load(path: Path) -> Result:
    """Read and check one result file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        validate(data)
    except ValueError as error:
        raise ResultError(f"{path.name}: {error}") from error
    rows = [
        Row(**{key: value for key, value in row.items() if key != "met"}) for row in data["rows"]
    ]
    head = {key: data[key] for key in ("script", "date", "machine", "versions")}
    return Result(**head, rows=rows, notes=data["notes"])


def load_all(folder: Path = RESULTS) -> list[Result]:
    """Read every result in a folder, in the order of the file names."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


def validate(data: object) -> None:
    """Raise ResultError unless `data` is a result of this format."""
    top = _object(data, "the result", _TOP)
    if (top["format"], top["version"]) != (FORMAT, VERSION):
        raise ResultError(
            f"format {top['format']!r} version {top['version']!r}; expected {FORMAT!r} {VERSION}"
        )
    machine = _object(top["machine"], "machine", dict.fromkeys(_MACHINE, (str, type(None))))
    if machine["cpu"] is None or machine["os"] is None:
        raise ResultError("machine: cpu and os must be named")
    for package in ("gpuprof", "python"):
        if package not in top["versions"]:
            raise ResultError(f"versions: {package} is missing")
    names: set[str] = set()
    for index, entry in enumerate(top["rows"]):
        row = _object(entry, f"rows[{index}]", _ROW)
        _check_row(row, f"rows[{index}]")
        if row["name"] in names:
            raise ResultError(f"rows[{index}]: a second row is named {row['name']!r}")
        names.add(row["name"])
    for row in top["rows"]:
        if row["ratio_to"] is not None and row["ratio_to"] not in names:
            raise ResultError(f"{row['name']}: ratio_to names no row: {row['ratio_to']!r}")


_NUMBER = (int, float)
_MAYBE_NUMBER = (int, float, type(None))
_MACHINE = ("gpu", "driver", "cpu", "os")
_TOP: dict[str, tuple[type, ...]] = {
    "format": (str,),
    "version": (int,),
    "script": (str,),
    "date": (str,),
    "machine": (dict,),
    "versions": (dict,),
    "rows": (list,),
    "notes": (list,),
}
_ROW: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "value": _NUMBER,
    "unit": (str,),
    "median": _MAYBE_NUMBER,
    "ratio_to": (str, type(None)),
    "ratio": _MAYBE_NUMBER,
    "ratio_median": _MAYBE_NUMBER,
    "target": _MAYBE_NUMBER,
    "met": (bool, type(None)),
}


def _object(data: object, where: str, fields: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ResultError(f"{where}: expected an object, got {type(data).__name__}")
    if data.keys() != fields.keys():
        wrong = ", ".join(sorted(data.keys() ^ fields.keys()))
        raise ResultError(f"{where}: missing or unknown fields: {wrong}")
    for key, types in fields.items():
        value = data[key]
        is_wrong_bool = isinstance(value, bool) and bool not in types
        if is_wrong_bool or not isinstance(value, types):
            expected = " or ".join(kind.__name__ for kind in types)
            raise ResultError(f"{where}.{key}: expected {expected}, got {value!r}")
    return data


def _check_row(row: Mapping[str, Any], where: str) -> None:
    for key in ("value", "median", "ratio", "ratio_median", "target"):
        if row[key] is not None and not (math.isfinite(row[key]) and row[key] >= 0.0):
            raise ResultError(f"{where}.{key}: expected a number from 0 on, got {row[key]!r}")
    if row["unit"] not in UNITS:
        raise ResultError(f"{where}.unit: expected one of {', '.join(UNITS)}, got {row['unit']!r}")
    if (row["ratio"] is None) != (row["ratio_to"] is None):
        raise ResultError(f"{where}: ratio and ratio_to go together")
    judged = Row(**{key: value for key, value in row.items() if key != "met"}).met
    if row["met"] is not judged:
        raise ResultError(f"{where}.met: is {row['met']}, but the target says {judged}")


def _refuse_constant(constant: str) -> float:
    raise ResultError(f"{constant} is not a JSON number")
