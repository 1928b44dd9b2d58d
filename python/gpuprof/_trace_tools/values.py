"""What the members of an event must be for the trace tools to use them."""

from __future__ import annotations

import contextlib
import math
from decimal import ROUND_HALF_UP, Decimal
from hashlib import blake2b
from typing import Any

MOST_NS = 1 << 62  # 146 years
MOST_FLOAT_US = 4e12  # below, a double tells one nanosecond from the next
# Microseconds that a double holds so exactly that rounding them to nanoseconds is right, but for
# those near the middle between two.
FLOAT_NS = 1 << 49
NEAR_MIDDLE = 0.4
NEARLY_WHOLE = 0.05
GPU_ANNOTATION = "gpu_user_annotation"
GPU_CATEGORIES = frozenset(
    ("gpu", "gpu_graph", "gpu_in_graph", "kernel", "gpu_memcpy", "gpu_memset", GPU_ANNOTATION)
)
MAX_SHOWN = 40
EXACT_IN_DOUBLES = 1 << 53
MOST_DIGITS = 20
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY = b"0" * 16
_MISSING = object()

Event = dict[str, Any]


class OddError(Exception):
    """Why an event cannot be used, and where: in which member, or at which of its bytes."""

    def __init__(self, reason: str, member: str = "", at: int = 0, code: str = "event") -> None:
        super().__init__(reason, member, at, code)
        self.reason, self.member, self.at, self.code = reason, member, at, code


class InexactError(Exception):
    """A float that may not be the nearest to its text; decode the event with `SCAN_EXACT`."""


def kind_of(value: object) -> str:
    """Say what a value of a member is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, bytes)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    return "null" if value is None else "missing"


def odd(event: Event, member: str, expected: str) -> OddError:
    """Say what a member is, and what it should be."""
    value = event.get(member, _MISSING)
    what = kind_of(value)
    if what == "a number":
        digits = value.decode() if isinstance(value, bytes) else repr(value)
        what = digits if len(digits) <= MAX_SHOWN else what
    return OddError(f'"{member}" is {what}; expected {expected}', member)


def phase_of(event: Event) -> str:
    """Return the phase, a letter."""
    phase = event.get("ph")
    if type(phase) is not str or len(phase) != 1:
        raise odd(event, "ph", "a letter in quotes")
    return phase


def check_labels(event: Event) -> None:
    """Refuse names, categories, pids and tids that are what they may not be."""
    for member in ("name", "cat"):
        if type(event.get(member, "")) is not str:
            raise odd(event, member, "a string")
    for member in ("pid", "tid"):
        value = event.get(member, 0)
        if type(value) in (float, bytes) and math.isfinite(float(value)):
            continue
        if type(value) not in (int, str):
            raise odd(event, member, "a whole number")


def shortened(text: str, most: int) -> str:
    """Cut a long text; a digest of the whole at its end keeps different ones different."""
    if len(text) <= most:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: most - len(digest) - 1]}~{digest}"


def nanoseconds(value: object) -> tuple[int, bool] | None:
    """Round microseconds to nanoseconds, and say whether they were whole; None if too many."""
    if type(value) is float:
        scaled = value * 1000.0
        near = int(scaled + 0.5) if -1.0 < scaled < FLOAT_NS else -1
        if near < 0 or not -NEAR_MIDDLE < scaled - near < NEAR_MIDDLE:
            raise InexactError
        return near, -NEARLY_WHOLE < scaled - near < NEARLY_WHOLE
    if type(value) is int:
        return (value * 1000, True) if -MOST_NS <= value * 1000 <= MOST_NS else None
    assert isinstance(value, bytes)
    if value[-4:-3] == b"." and len(value) < 20:  # three decimals
        try:
            return int(value[:-4] + value[-3:]), True
        except ValueError:
            pass  # an exponent
    return _rounded(value)


def _rounded(digits: bytes) -> tuple[int, bool] | None:
    mantissa, _, exponent = digits.lower().partition(b"e")
    sign, numbers, scale = Decimal(mantissa.decode()).as_tuple()
    if not any(numbers):
        return 0, True
    # An exponent of so many digits is beyond all that a text of this size can make up for.
    shift = int(exponent[:20] or b"0") + int(scale) + 3
    size = len(numbers) + shift
    if size > 20:
        return None
    if size < 0:
        return 0, False
    exact = Decimal((sign, numbers, shift))
    whole = int(exact.to_integral_value(ROUND_HALF_UP))
    return (whole, whole == exact) if -MOST_NS <= whole <= MOST_NS else None


def time_of(event: Event, member: str = "ts") -> tuple[int, bool]:
    """Return a time in nanoseconds, and whether the file has whole ones."""
    value = event.get(member)
    if type(value) not in (int, float, bytes):
        raise odd(event, member, "a number of microseconds")
    time = nanoseconds(value)
    if time is None:
        raise odd(event, member, "microseconds within 146 years")
    return time


def microseconds(time: int) -> str:
    """Write nanoseconds as microseconds with three decimals."""
    return f"{'-' if time < 0 else ''}{abs(time) // 1000}.{abs(time) % 1000:03}"


def async_key(event: Event) -> int:
    """Hash what the begin and the end of an asynchronous range, or of a flow, have in common."""
    id2, number = event.get("id2"), event.get("id")
    if id2 is None and type(number) is int and number >= 0:  # -1 and -2 have one hash
        with contextlib.suppress(TypeError):
            return hash((event.get("cat"), number, event.get("name")))
    local = event.get("pid") if isinstance(id2, dict) and "local" in id2 else None
    return hash(repr((event.get("cat"), number, event.get("name"), id2, local)))


def args_of(event: Event) -> Event:
    """Return the args of an event; empty if it has none."""
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def own_args(event: Event) -> Event:
    """Return what gpuprof says of a trace in a metadata event; empty for others."""
    is_own = event.get("name") == "gpuprof" and event.get("ph") == "M"
    return args_of(event) if is_own else {}


def names_of(event: Event) -> tuple[str, str] | None:
    """Return what a metadata event names, "process" or "thread", and how; None for others."""
    name = args_of(event).get("name")
    what = event.get("name")
    if type(name) is not str or what not in ("process_name", "thread_name"):
        return None
    return what.removesuffix("_name"), name


def may_matter_inside(text: bytes) -> bool:
    """Whether there may be numbers that readers round, or escapes that they do not take."""
    return b'\\\\"' in text or b"\\ud" in text or b"\\uD" in text or _MANY in text.translate(_ZEROS)


def is_rounded(number: bytes) -> bool:
    """Whether it is a whole number that a double cannot hold."""
    if not number.lstrip(b"-").isdigit():
        return False
    return len(number) > MOST_DIGITS or abs(int(number)) > EXACT_IN_DOUBLES
