"""The recorded answers of the real driver, and what counts as the same answer.

A recording is a block for each case: a line ``== name``, then a row for each call. Rows are
compared as text after `normalised`, which rounds what no two runs measure alike:

- intervals (``ms=...``, ``v1 ... v2 ...``) to two significant digits;
- the back-to-back row to its wording, the comparison of both elapsed calls to "equal";
- the driver's version to "N".

Handles and addresses are in no row. The set-up row of the kernels' module is left out, because the
fake driver has kernels of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SETUP_ROW = "cuModuleLoadData(&mod,PTX)"

# These touch objects of a destroyed context, whose memory the real driver may have reused: mostly
# it answers 709, sometimes something else, sometimes it crashes.
UNDEFINED_END = frozenset(
    {
        "event_after_ctx_destroy",
        "event_after_primary_reset",
        "event_after_primary_release",
        "events_of_a_dead_context",
        "dead_current_context",
        "primary_again",
    }
)
_DEAD = re.compile(r"-> (709|201) |^CHILD SIGNAL")
# A forked child that asks for an event of its parent crashes in the driver, at once or at the next
# call.
_IN_CHILD = re.compile(r"cuEventQuery\(e\) -> 0 SUCCESS\n(?=child exit \d+ sig 11; parent:)")

_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
# Which entry point a row is about, and the answer; most rows name it themselves.
_CALL = re.compile(r"^(cu\w+)\(.*-> (\d+) ")
_OTHER_FORMS = {
    "cuStreamEndCapture": re.compile(r"^cuStreamEndCapture -> (\d+) "),
    "cuStreamIsCapturing": re.compile(r"^status\(stream\) rc=(\d+) "),
    "cuGetProcAddress_v2": re.compile(r"^(?:gpa\(.*-> |\w* ?@\d+ rc=)(\d+) "),
}

Recording = dict[str, list[str]]


@dataclass(frozen=True)
class Unexpressed:
    """Rows of a case that the fake driver does not express, and why."""

    case: str
    prefix: str
    reason: str

    def covers(self, case: str, row: str) -> bool:
        return case == self.case and (self.prefix == "*" or row.startswith(self.prefix))


def _two_digits(match: re.Match[str]) -> str:
    return f"{float(match.group()):.1e}"


def normalised(row: str) -> str:
    """Return the row as it is compared."""
    row = " ".join(row.split())
    if row.startswith("back-to-back min="):
        return "back-to-back min=... ms"
    if row.startswith("v1 vs v2: "):
        first, second = row.split()[-2:]
        return "v1 vs v2: equal" if first == second else row
    if row.startswith("version "):
        return "version N"
    if "ms=" in row or row.startswith("v1 "):
        return _NUMBER.sub(_two_digits, row)
    # The fake driver aborts where the real one crashes.
    return re.sub(r"(SIGNAL|sig) 6\b", r"\1 11", row)


def parse(text: str) -> Recording:
    """Split a program's output or a recorded file into its cases."""
    cases: Recording = {}
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith("== "):
            rows = cases.setdefault(line[3:], [])
        elif SETUP_ROW not in line:
            rows.append(normalised(line))
    return cases


def recorded() -> Recording:
    """Return every recorded case; a later file replaces a case of an earlier one."""
    cases: Recording = {}
    for path in sorted((HERE / "golden").glob("*.txt")):
        cases.update(parse(path.read_text()))
    return cases


def _fields(name: str, count: int) -> list[list[str]]:
    lines = (HERE / name).read_text().splitlines()
    rows = [line.split("|") for line in lines if line.strip() and not line.startswith("#")]
    for row in rows:
        if len(row) != count:
            message = f"{name}: {'|'.join(row)!r} needs {count} fields separated by '|'"
            raise ValueError(message)
    return [[field.strip() for field in row] for row in rows]


def not_expressed() -> list[Unexpressed]:
    """Return the recorded rows that the fake driver has nothing for."""
    return [Unexpressed(*row) for row in _fields("NOT_EXPRESSED.txt", 3)]


def expressed(recording: Recording) -> Recording:
    """Return a recording without the rows that the fake driver does not express."""
    exceptions = not_expressed()
    kept: Recording = {}
    for case, rows in recording.items():
        mine = [row for row in rows if not any(e.covers(case, row) for e in exceptions)]
        if not any(e.case == case and e.prefix == "*" for e in exceptions):
            kept[case] = mine
    return kept


def differences(expected: Recording, actual: Recording) -> list[str]:
    """Return a line for each row in which two recordings differ, in the order of the cases."""
    lines = []
    for case, rows in expected.items():
        if case not in actual:
            lines.append(f"{case}: not run")
            continue
        pairs = max(len(rows), len(actual[case]))
        for i in range(pairs):
            want = rows[i] if i < len(rows) else "(nothing)"
            got = actual[case][i] if i < len(actual[case]) else "(nothing)"
            if want != got:
                lines.append(f"{case}, row {i + 1}: recorded {want!r}, answered {got!r}")
    lines += [f"{case}: never recorded" for case in actual if case not in expected]
    return lines


def defined(recording: Recording) -> Recording:
    """Return a recording without what a real driver answers differently from run to run."""
    kept: Recording = {}
    for case, rows in recording.items():
        dead = [i for i, row in enumerate(rows) if _DEAD.search(row)]
        certain = rows[: dead[0]] if case in UNDEFINED_END and dead else rows
        certain = _IN_CHILD.sub("", "\n".join(certain)).splitlines()
        kept[case] = _from_the_first(certain) if case == "ids" else certain
    return kept


def _from_the_first(rows: list[str]) -> list[str]:
    """Return rows of streams' numbers, counted from the first: the driver has some of its own."""
    firsts = [int(row.split()[1]) for row in rows if row.startswith("ids ")]
    return [
        re.sub(
            r"(?<=^ids )(\d+) (\d+)|(?<=^new id )(\d+)",
            lambda found: " ".join(f"+{int(n) - firsts[0]}" for n in found.groups() if n),
            row,
        )
        for row in rows
    ]


def rules(recording: Recording) -> set[tuple[str, int]]:
    """Return what a recording shows of a driver: pairs of an entry point and an answer of its."""
    found = set()
    for rows in recording.values():
        for row in rows:
            if match := _CALL.match(row):
                found.add((match.group(1), int(match.group(2))))
            for symbol, form in _OTHER_FORMS.items():
                if match := form.match(row):
                    found.add((symbol, int(match.group(1))))
    return found


def fake_only() -> set[tuple[str, int]]:
    """Return the rules of the fake driver for which nothing was recorded."""
    return {(symbol, int(code)) for symbol, code, _ in _fields("FAKE_ONLY.txt", 3)}
