"""What a comparison says: a verdict, and the figures and the sentence that it rests on.

Plain data without NumPy, so that code that only shows or stores decisions imports nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any


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
    """

    __module__ = "gpuprof"

    SLOW = "slow"
    FAST = "fast"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    NODATA = "nodata"
    INCOMPARABLE = "incomparable"
    MEMORY = "memory"

    def __str__(self) -> str:
        return self.value.upper()


@dataclass(frozen=True)
class MemoryDecision:
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

    verdict: Verdict
    base_bytes: int | None = None
    new_bytes: int | None = None
    threshold: float | None = None
    runs: int = 0
    rule: str = ""

    @property
    def grew(self) -> bool:
        """Whether the verdict is ``MEMORY``."""
        return self.verdict is Verdict.MEMORY

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form, for JSON."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**data, "verdict": self.verdict.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MemoryDecision:
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

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form, for JSON."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        data["verdict"] = self.verdict.value
        data["memory"] = None if self.memory is None else self.memory.to_dict()
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
        data = {"memory": None, **data}  # older ones have none
        _check_names(cls, data)
        interval, memory = data["interval"], data["memory"]
        return cls(
            **{
                **data,
                "verdict": Verdict(data["verdict"]),
                "interval": None if interval is None else (interval[0], interval[1]),
                "warnings": tuple(data["warnings"]),
                "memory": None if memory is None else MemoryDecision.from_dict(memory),
            }
        )

    def __str__(self) -> str:
        memory = [str(self.memory)] if self.memory is not None and self.memory.grew else []
        notes = [f"note: {text}" for text in self.warnings]
        return "\n".join([f"{self.verdict}: {self.rule}", *memory, *notes])


def _check_names(kind: type[Decision | MemoryDecision], data: Mapping[str, Any]) -> None:
    names = {each.name for each in fields(kind)}
    wrong = sorted(names ^ set(data))
    if wrong:
        message = f"a decision has the fields {', '.join(sorted(names))}; wrong: {wrong}"
        raise ValueError(message)


def check_threshold(threshold: object, *, above_0: bool = False) -> None:
    """Raise ValueError unless it is a fraction up to 1; the text says how to write a percentage."""
    hint = ""
    if isinstance(threshold, (int, float)) and not isinstance(threshold, bool):
        if 0 <= threshold <= 1 and (threshold or not above_0):
            return
        if 1 < threshold <= 100:
            hint = f"; {threshold:g} would be {100 * threshold:g} %: for {threshold:g} % write "
            hint += f"{threshold / 100:g}"
    expected = f"a fraction {'above' if above_0 else 'from'} 0 and up to 1, such as 0.05 for 5 %"
    message = f"threshold is {threshold!r}; expected {expected}{hint}"
    raise ValueError(message)
