"""What a comparison says: a verdict, and the figures and the sentence that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gpuprof._common import checks
from gpuprof._common.records import Record, in_results


class Verdict(str, Enum):
    """What a comparison says.

    Attributes
    ----------
    SLOW, FAST
        Slower or faster, by more than the noise.
    SAME
        No change that the noise does not explain.
    AMBIGUOUS
        Between the two, or the clock of the GPU is the likelier cause.
    NODATA
        Nothing to compare with, or too few samples.
    INCOMPARABLE
        Measured on another GPU or in another way.
    MEMORY
        Of the memory, not of the time: its peak grew by more than the threshold.
    LAUNCHES
        Of what a call launches: more kernels, copies or memsets, or as many and other ones.
    """

    __module__ = "gpuprof"

    SLOW = "slow"
    FAST = "fast"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    NODATA = "nodata"
    INCOMPARABLE = "incomparable"
    MEMORY = "memory"
    LAUNCHES = "launches"

    def __str__(self) -> str:
        return self.value.upper()


_BESIDE = ("memory", "launches")
_OF_TIME = ("ratio", "interval", "floor", "p_value", "runs", "rule", "warnings", *_BESIDE)
# What the plain form of each kind has, in its order. The time's are the first, and the fields.
_MEMBERS = {
    "time": ("verdict", "base_ms", "new_ms", *_OF_TIME),
    "memory": ("verdict", "base_bytes", "new_bytes", "threshold", "runs", "rule"),
    "launches": ("verdict", "base_total", "new_total", "changes", "runs", "rule"),
}


def _field(member: str) -> str:
    """Return the field that a member of a plain form is, whose name has a unit."""
    if member == "threshold":
        return "floor"
    return member.partition("_")[0] if member.startswith(("base_", "new_")) else member


@in_results
@dataclass(frozen=True)
class Decision(Record):
    """A verdict, and what it rests on.

    Attributes
    ----------
    verdict : Verdict
        What the comparison says.
    base, new : float or None
        What was compared, the medians over the runs, in the unit of the `kind`: milliseconds a
        call, bytes of the peak above the level before the call, or how many kernels, copies and
        memsets. Times are those of the runs' medians, or of their lower
        deciles where `rule` says so.
    ratio : float or None
        New over base: 1.1 takes a tenth more.
    interval : tuple of float or None
        The 95 % interval of the ratio.
    floor : float or None
        How much may be noise, as a fraction. Of a time: a change whose logarithm is below
        ``log(1 + floor)`` in size is no change. Of the memory it is the threshold.
    p_value : float or None
        Of the Mann-Whitney test on the samples, or of the sign test on rounds; not corrected for
        the number of comparisons.
    runs : int
        How many baseline runs, or rounds, were used.
    rule : str
        The sentence that decided, with its figures.
    warnings : tuple of str
        What else to know.
    memory, launches : Decision or None
        What is said besides the time; None where that was not compared or counted.
    kind : str
        What was compared: ``"time"``, ``"memory"`` or ``"launches"``.
    changes : str
        What differs in the launches, such as ``"+2 elementwise_kernel, 14 -> 16 kernels"``.
    """

    verdict: Verdict
    base: float | None = None
    new: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    floor: float | None = None
    p_value: float | None = None
    runs: int = 0
    rule: str = ""
    warnings: tuple[str, ...] = ()
    memory: Decision | None = None
    launches: Decision | None = None
    kind: str = "time"
    changes: str = ""

    _NEWER = frozenset(map(_field, _MEMBERS["time"])) | {"kind", "changes"}

    @property
    def beside(self) -> list[Decision]:
        """The decisions that stand beside the one on the time."""
        return [each for each in (self.memory, self.launches) if each is not None]

    @property
    def grown(self) -> list[Decision]:
        """Those of them that say that there is more than there was."""
        return [each for each in self.beside if each.grew]

    @property
    def grew(self) -> bool:
        """Whether there is more than there was, besides time, so that a test may fail for it."""
        return self.verdict.value == self.kind

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form, for JSON; base and new have their unit in their names."""
        plain = super().to_dict()
        return {member: plain[_field(member)] for member in _MEMBERS[self.kind]}

    @classmethod
    def _read(cls, where: str, data: object) -> Decision:
        found = checks.mapping(where, data)
        kinds = (each for each, members in _MEMBERS.items() if members[1] in found)
        kind = next(kinds, "time")
        members = set(_MEMBERS[kind])
        wrong = sorted((members ^ found.keys()) - (members - found.keys()).intersection(_BESIDE))
        if wrong:  # older ones say nothing of what is beside the time
            message = f"{where}: expected {', '.join(_MEMBERS[kind])}; wrong: {wrong}"
            raise ValueError(message)
        for name in set(_BESIDE) & found.keys():
            beside = found[name]
            if isinstance(beside, Mapping) and _MEMBERS[name][1] not in beside:
                message = f"{where}.{name}: expected {', '.join(_MEMBERS[name])}"
                raise ValueError(message)
        fields = {_field(member): value for member, value in found.items()}
        return super()._read(where, {**fields, "kind": kind})

    def __str__(self) -> str:
        notes = [f"note: {text}" for text in self.warnings]
        return "\n".join([f"{self.verdict}: {self.rule}", *map(str, self.grown), *notes])


def verdicts_of(decision: Decision | None) -> list[Verdict]:
    """Return the verdict on the time, and those on what there is more of."""
    if decision is None:
        return []
    return [*dict.fromkeys((decision.verdict, *(each.verdict for each in decision.grown)))]


def check_threshold(threshold: object, *, above_0: bool = False) -> None:
    """Raise an error unless it is a fraction up to 1; the text says how to write a percentage."""
    expected = f"a fraction {'above' if above_0 else 'from'} 0 and up to 1, such as 0.05 for 5 %"
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
        raise checks.type_error(threshold, "threshold", expected)
    if 0 <= threshold <= 1 and (threshold or not above_0):
        return
    if 1 < threshold <= 100:
        expected += f" ({threshold / 100:g} for {threshold:g} %)"
    raise checks.value_error(threshold, "threshold", expected)
