"""The findings of a validation: counted, the first kept, in the order of the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from gpuprof._trace.json_scanner import Defect
from gpuprof._trace.reader import EventReader

MOST_FINDINGS = 1000
_DEFECTS = {
    "bom": "a byte order mark",
    "nan": "NaN or Infinity, which is no JSON",
    "control": "a control character in a string that is not escaped",
    "utf8": "bytes in a string that are not UTF-8",
    "comma": "a comma before the end of an array or object",
    "key": "a key is there twice",
}


class Findings:
    """What is wrong with one trace."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.first: list[dict[str, Any]] = []

    def has_room(self, kind: str) -> bool:
        """Whether one more would be kept."""
        # Faults are what one came for: notes leave half of the room to them.
        return len(self.first) < (MOST_FINDINGS if kind == "faults" else MOST_FINDINGS // 2)

    def add(
        self, kind: str, code: str, message: str, event: int | None, offset: int | None = None
    ) -> None:
        """Count one, "faults" or "notes"; None for an event is the file around them."""
        counts = self.faults if kind == "faults" else self.notes
        counts[code] += 1
        if self.has_room(kind):
            self.first.append(_finding(kind, code, message, event, offset))

    def add_defect(self, defect: Defect, event: int | None, base: int) -> None:
        """Add what is no strict JSON in a text that begins at `base`."""
        self.add("faults", defect.code, _DEFECTS[defect.code], event, base + defect.at)

    def locate(self, pieces: Iterator[bytes]) -> None:
        """Look up the bytes of the findings that only an event is known of, in the same file."""
        missing = [one for one in self.first if one["offset"] is None and one["event"] is not None]
        missing.sort(key=itemgetter("event"), reverse=True)
        if not missing:
            return
        for batch in EventReader(pieces, tolerant=True, exact=True).batches():
            while missing and missing[-1]["event"] < batch.first + len(batch.events):
                finding = missing.pop()
                finding["offset"] = batch.offset_of(finding["event"] - batch.first)
            if not missing:
                return

    def in_order(self, events: int) -> list[dict[str, Any]]:
        """Return them in the order of a file of so many events."""

        def place(one: dict[str, Any]) -> tuple[float, int]:
            offset = one["offset"] or 0
            if one["event"] is not None:
                return one["event"], offset
            return (events if offset else -1), offset

        return sorted(self.first, key=place)

    def add_around(self, code: str, message: str) -> None:
        """Add what is wrong with the file around the trace."""
        self.faults[code] += 1
        self.first.insert(0, _finding("faults", code, message, None, None))


def _finding(
    kind: str, code: str, message: str, event: int | None, offset: int | None
) -> dict[str, Any]:
    return {
        "severity": kind[:-1],
        "code": code,
        "event": event,
        "offset": offset,
        "message": message,
    }
