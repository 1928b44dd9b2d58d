"""What a comparison says: a verdict, and the figures and the sentence that it rests on.

Plain data without NumPy, so that code that only shows or stores decisions imports nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from gpuprof._common.checks import type_error, value_error

if TYPE_CHECKING:
    from typing_extensions import Self


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
    INSTRUCTIONS
        Of the CPU's instructions, not of the time: a call takes more, by more than they vary.
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
    INSTRUCTIONS = "instructions"

    def __str__(self) -> str:
        return self.value.upper()


class BesideTime:
    """What decisions have in common that stand beside the one on the time."""

    verdict: Verdict
    rule: str
    _GREW: ClassVar[Verdict]

    @property
    def grew(self) -> bool:
        """Whether there is more than there was, so that a test may fail for it."""
        return self.verdict is self._GREW

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form, for JSON."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return {**data, "verdict": self.verdict.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build one from what `to_dict` returned.

        Raises
        ------
        ValueError
            If a field is missing, unknown or no verdict; it names the field.
        """
        _check_names(cls, data)
        return cls(**{**data, "verdict": Verdict(data["verdict"])})

    def __str__(self) -> str:
        return f"{self.verdict}: {self.rule}"


@dataclass(frozen=True)
class MemoryDecision(BesideTime):
    """Whether the peak of the memory grew.

    Attributes
    ----------
    verdict : Verdict
        ``MEMORY`` if it grew by more than the threshold, ``SAME`` if not, ``NODATA`` where one side
        has no peak, ``INCOMPARABLE`` for another GPU.
    base_bytes, new_bytes : int or None
        The peaks that were compared, each above the level before the call.
    threshold : float or None
        How much it may grow, as a fraction.
    runs : int
        How many baseline runs were used.
    rule : str
        The sentence that decided, with its figures.
    """

    __module__ = "gpuprof"
    _GREW = Verdict.MEMORY

    verdict: Verdict
    base_bytes: int | None = None
    new_bytes: int | None = None
    threshold: float | None = None
    runs: int = 0
    rule: str = ""


@dataclass(frozen=True)
class LaunchDecision(BesideTime):
    """Whether a call launches more on the GPU than it did, or other kernels.

    Attributes
    ----------
    verdict : Verdict
        ``LAUNCHES`` if it launches more, or as many and other ones; ``SAME`` if not, also for
        fewer; ``NODATA`` where one side was not counted, or two calls of the same function differ;
        ``INCOMPARABLE`` for another GPU or another version of a library that chooses kernels.
    base_total, new_total : int or None
        How many kernels, copies and memsets were compared.
    changes : str
        What differs, such as ``"+2 elementwise_kernel, 14 -> 16 kernels"``; empty for nothing.
    runs : int
        How many baseline runs can be compared.
    rule : str
        The sentence that decided.
    """

    __module__ = "gpuprof"
    _GREW = Verdict.LAUNCHES

    verdict: Verdict
    base_total: int | None = None
    new_total: int | None = None
    changes: str = ""
    runs: int = 0
    rule: str = ""


@dataclass(frozen=True)
class InstructionDecision(BesideTime):
    """Whether a call takes more instructions on the CPU than it did.

    Attributes
    ----------
    verdict : Verdict
        ``INSTRUCTIONS`` if it takes more, ``SAME`` if not, ``NODATA`` where one side was not
        counted, ``INCOMPARABLE`` for another CPU or another Python.
    base_count, new_count : float or None
        The medians that were compared, of instructions a call.
    ratio : float or None
        New over base.
    floor : float or None
        How much they may differ without being more, as a fraction.
    runs : int
        How many baseline runs were used.
    rule : str
        The sentence that decided, with its figures.
    """

    __module__ = "gpuprof"
    _GREW = Verdict.INSTRUCTIONS

    verdict: Verdict
    base_count: float | None = None
    new_count: float | None = None
    ratio: float | None = None
    floor: float | None = None
    runs: int = 0
    rule: str = ""


@dataclass(frozen=True)
class Decision:
    """A verdict, and what it rests on.

    Attributes
    ----------
    verdict : Verdict
        What the comparison says.
    base_ms, new_ms : float or None
        The medians, over the medians of the runs, that were compared; over their lower deciles
        where `rule` says so.
    ratio : float or None
        New over base: 1.1 takes a tenth more time.
    interval : tuple of float or None
        The 95 % interval of the ratio.
    floor : float or None
        The noise floor as a fraction: a change whose logarithm is below ``log(1 + floor)`` in size
        is no change.
    p_value : float or None
        Of the Mann-Whitney test on the samples, or of the sign test on rounds; not corrected for
        the number of comparisons.
    runs : int
        How many baseline runs, or rounds, were used.
    rule : str
        The sentence that decided, with its figures.
    warnings : tuple of str
        What else to know.
    memory : MemoryDecision or None
        What is said of the memory, besides the time; None where that was not compared.
    launches : LaunchDecision or None
        What is said of the launches; None where nothing was counted.
    instructions : InstructionDecision or None
        What is said of the CPU's instructions; None where they were not counted.
    """

    __module__ = "gpuprof"

    verdict: Verdict
    base_ms: float | None = None
    new_ms: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    floor: float | None = None
    p_value: float | None = None
    runs: int = 0
    rule: str = ""
    warnings: tuple[str, ...] = ()
    memory: MemoryDecision | None = None
    launches: LaunchDecision | None = None
    instructions: InstructionDecision | None = None

    @property
    def beside(self) -> list[BesideTime]:
        """The decisions that stand beside the one on the time."""
        found: tuple[BesideTime | None, ...] = (self.memory, self.launches, self.instructions)
        return [each for each in found if each is not None]

    @property
    def grown(self) -> list[BesideTime]:
        """Those of them that say that there is more than there was."""
        return [each for each in self.beside if each.grew]

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form, for JSON."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        data["verdict"] = self.verdict.value
        for name in _BESIDE:
            found = data[name]
            data[name] = None if found is None else found.to_dict()
        data["interval"] = None if self.interval is None else list(self.interval)
        data["warnings"] = list(self.warnings)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Decision:
        """Build one from what `to_dict` returned.

        Raises
        ------
        ValueError
            If a field is missing, unknown or no verdict; it names the field.
        """
        data = {**dict.fromkeys(_BESIDE), **data}  # older ones have none
        _check_names(cls, data)
        interval = data["interval"]
        beside = {name: data[name] and kind.from_dict(data[name]) for name, kind in _BESIDE.items()}
        return cls(
            **{
                **data,
                "verdict": Verdict(data["verdict"]),
                "interval": None if interval is None else (interval[0], interval[1]),
                "warnings": tuple(data["warnings"]),
                **beside,
            }
        )

    def __str__(self) -> str:
        notes = [f"note: {text}" for text in self.warnings]
        return "\n".join([f"{self.verdict}: {self.rule}", *map(str, self.grown), *notes])


_BESIDE: dict[str, Any] = {
    "memory": MemoryDecision,
    "launches": LaunchDecision,
    "instructions": InstructionDecision,
}


def _check_names(kind: type[Any], data: Mapping[str, Any]) -> None:
    names = {each.name for each in fields(kind)}
    wrong = sorted(names ^ set(data))
    if wrong:
        message = f"a decision has the fields {', '.join(sorted(names))}; wrong: {wrong}"
        raise ValueError(message)


def check_threshold(threshold: object, *, above_0: bool = False) -> None:
    """Raise an error unless it is a fraction up to 1; the text says how to write a percentage."""
    expected = f"a fraction {'above' if above_0 else 'from'} 0 and up to 1, such as 0.05 for 5 %"
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
        raise type_error(threshold, "threshold", expected)
    if 0 <= threshold <= 1 and (threshold or not above_0):
        return
    if 1 < threshold <= 100:
        expected += f" ({threshold / 100:g} for {threshold:g} %)"
    raise value_error(threshold, "threshold", expected)


def verdict_of_interval(low: float, high: float, limit: float) -> tuple[Verdict, str]:
    """Return the verdict on an interval of a ratio, and where it lies; all are logarithms."""
    if low > limit:
        return Verdict.SLOW, "all above"
    if high < -limit:
        return Verdict.FAST, "all below"
    if -limit <= low and high <= limit:
        return Verdict.SAME, "all within"
    return Verdict.AMBIGUOUS, "partly within"
