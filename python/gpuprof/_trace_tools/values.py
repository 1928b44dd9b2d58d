"""What the members of an event must be for the trace tools to use them."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Any

MOST_NS = 1 << 62  # 146 years
EXACT_US = 4e12  # below, a double tells one nanosecond from the next
GPU_ANNOTATION = "gpu_user_annotation"
SCOPE_CATEGORIES = frozenset(("scope", "capture", "graph", "gpu", "gpu_graph", "gpu_in_graph"))
GPU_CATEGORIES = frozenset(
    ("gpu", "gpu_graph", "gpu_in_graph", "kernel", "gpu_memcpy", "gpu_memset", GPU_ANNOTATION)
)
MAX_SHOWN = 40
EXACT_IN_DOUBLES = 1 << 53
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY = b"0" * 16
_MISSING = object()
_KINDS = {int: "a number", float: "a number", str: "a string", dict: "an object", list: "an array"}

Event = dict[str, Any]


class OddError(Exception):
    """Why an event cannot be used, and at which of its bytes."""

    def __init__(self, reason: str, at: int = 0, code: str = "event") -> None:
        super().__init__(reason, at, code)
        self.reason, self.at, self.code = reason, at, code


def kind_of(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _KINDS.get(type(value), "missing")


def odd(event: Event, member: str, expected: str) -> OddError:
    what = kind_of(value := event.get(member, _MISSING))
    if what == "a number" and len(repr(value)) <= MAX_SHOWN:
        what = repr(value)
    return OddError(f'"{member}" is {what}; expected {expected}', code=member)


def phase_of(event: Event) -> str:
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
        if type(value) not in (int, str) and not (type(value) is float and math.isfinite(value)):
            raise odd(event, member, "a whole number")


def place_of(event: Event) -> tuple[Any, Any]:
    return event.get("pid", ""), event.get("tid", "")


def shortened(text: str, most: int) -> str:
    """Cut a long text; a digest of the whole at its end keeps different ones different."""
    if len(text) <= most:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: most - len(digest) - 1]}~{digest}"


def microseconds(time: int) -> str:
    return f"{'-' if time < 0 else ''}{abs(time) // 1000}.{abs(time) % 1000:03}"


def async_key(event: Event) -> int:
    """Hash what the begin and the end of an asynchronous range, or of a flow, have in common."""
    id2, number = event.get("id2"), event.get("id")
    local = event.get("pid") if isinstance(id2, dict) and "local" in id2 else None
    return hash(repr((event.get("cat"), number, event.get("name"), id2, local)))


def args_of(event: Event) -> Event:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def own_args(event: Event) -> Event:
    """Return what gpuprof says of a trace in a metadata event; empty for others."""
    is_own = event.get("name") == "gpuprof" and event.get("ph") == "M"
    return args_of(event) if is_own else {}


def names_of(event: Event) -> tuple[tuple[Any, ...], str] | None:
    """Return what a metadata event names, (pid,) or (pid, tid), and how; None for others."""
    name, what, place = args_of(event).get("name"), event.get("name"), place_of(event)
    if type(name) is not str or what not in ("process_name", "thread_name"):
        return None
    return place[:1] if what == "process_name" else place, name


def may_matter_inside(text: bytes) -> bool:
    """Whether there may be whole numbers that readers round, or strings that end in a backslash."""
    return b'\\\\"' in text or _MANY in text.translate(_ZEROS)
