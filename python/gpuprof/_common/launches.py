"""What a step launches, as plain data: its kernels by name, its copies and its memsets.

Two counts are compared exactly: there is no noise in them. Kernels are compared by their whole
names, and shown by short ones.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Annotated

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.records import Checked, by_name, in_results
from gpuprof._common.text import MAX_TEXT_BYTES, output_text

UNNAMED = "(kernel without a name)"
COPY, MEMSET = "memory copy", "memset"
MAX_SHOWN = 8  # of the names in a difference
MAX_PART = 40  # characters of what tells two names apart
_MOST = 2**53  # of launches
Key = tuple[str, str]  # the kind, and the kernel's whole name
_PLURALS = {COPY: "memory copies", MEMSET: "memsets", "kernel": "kernels"}
_number = partial(checks.whole, most=_MOST)


@in_results
@dataclass(frozen=True)
class Launches(Checked):
    """What one call, or one replay of a graph, launches on the GPU.

    Attributes
    ----------
    kernels : mapping of str to int
        How often each kernel is launched, by its whole name.
    copies : int
        How many memory copies there are.
    memsets : int
        How many memsets.
    source : str
        How they were counted: ``"graph"``, the nodes of a captured graph, or what collected
        `gpuprof.kernels`, such as ``"CUPTI"``. Counts of two sources are not compared.
    varies : str
        How two calls of the same function differ, in words; empty if they do not.
    versions : mapping of str to str
        What chooses kernels: the GPU and the versions of the libraries, as far as they are known.
    """

    kernels: Annotated[Mapping[str, int], by_name(_number)] = field(default_factory=dict)
    copies: Annotated[int, partial(_number, least=0)] = 0
    memsets: Annotated[int, partial(_number, least=0)] = 0
    source: Annotated[str, checks.text] = "graph"
    varies: Annotated[str, checks.text] = ""
    versions: Annotated[Mapping[str, str], by_name(checks.text)] = field(default_factory=dict)

    @property
    def num_kernels(self) -> int:
        """How many kernels are launched."""
        return sum(self.kernels.values())

    @property
    def total(self) -> int:
        """How many kernels, copies and memsets there are together."""
        return self.num_kernels + self.copies + self.memsets

    def same(self, other: Launches) -> bool:
        """Return whether both launch the same, however and wherever they were counted."""
        return self._counts() == other._counts()

    def diff(self, other: Launches) -> str:
        """Say in words how another count differs from this one.

        Parameters
        ----------
        other : Launches

        Returns
        -------
        str
            Such as ``"+2 elementwise_kernel, -1 sgemm, 14 -> 15 kernels"``; empty if both are the
            same.

        Raises
        ------
        TypeError
            `other` is no `Launches`.
        """
        if not isinstance(other, Launches):
            raise checks.type_error(other, "other", "a Launches")
        own, others = self._counts(), other._counts()
        changed = Counter(others)
        changed.subtract(own)
        changes = {key: count for key, count in changed.items() if count}
        if not changes:
            return ""
        ordered = sorted(changes.items(), key=lambda each: (each[1] < 0, -abs(each[1]), each[0]))
        shown = _telling(key for key, _ in ordered)
        words = [f"{change:+,} {shown[key]}" for key, change in ordered[:MAX_SHOWN]]
        if len(ordered) > MAX_SHOWN:
            words.append(f"and {len(ordered) - MAX_SHOWN:,} more names")
        return ", ".join([*words, _totals(self, other)])

    def __str__(self) -> str:
        kinds = self._by_kind().items()
        return ", ".join(_count(count, what) for what, count in kinds if count or what == "kernel")

    def __repr__(self) -> str:
        shown = _telling(self._counts())
        most = sorted(self._counts().items(), key=lambda each: (-each[1], each[0]))
        lines = [f"{count:>6,}  {shown[key]}" for key, count in most]
        return "\n".join([f"<gpuprof.results.Launches: {self}>", *lines])

    def _by_kind(self) -> dict[str, int]:
        return {"kernel": self.num_kernels, COPY: self.copies, MEMSET: self.memsets}

    def _counts(self) -> dict[Key, int]:
        counts: dict[Key, int] = {("kernel", name): count for name, count in self.kernels.items()}
        others = {COPY: self.copies, MEMSET: self.memsets}
        return counts | {(what, what): count for what, count in others.items() if count}


def counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(_stored(name) if name else UNNAMED for name in names))


def _stored(name: str) -> str:
    text = output_text(name)
    if not text.endswith("…"):
        return text
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{name[: MAX_TEXT_BYTES // 8]}… {digest}"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what if count == 1 else _PLURALS[what]}"


def _totals(base: Launches, new: Launches) -> str:
    """Say how many there were and are, of each kind whose number changed; at least of kernels."""
    before, now = base._by_kind(), new._by_kind()
    changed = [what for what in now if before[what] != now[what]]
    words = [f"{before[what]:,} -> {now[what]:,} {_PLURALS[what]}" for what in changed]
    return ", ".join(words or [_count(now["kernel"], "kernel")])


def _telling(keys: Iterable[Key]) -> dict[Key, str]:
    """Return a short form of each name; where two would be the same, with what tells them apart."""
    by_short: dict[Key, list[Key]] = {}
    for kind, name in keys:
        short = _brief(name) if kind == "kernel" and name != UNNAMED else name
        by_short.setdefault((kind, short), []).append((kind, name))
    found = {}
    for (_, short), alike in by_short.items():
        if len(alike) == 1:
            found[alike[0]] = short
            continue
        columns = zip(*(name for _, name in alike), strict=False)
        place = len([*takewhile(lambda letters: len({*letters}) == 1, columns)])
        found |= {key: f"{short} ({_part_at(key[1], place)})" for key in alike}
    return found


def _brief(name: str) -> str:
    """Shorten a kernel's name to its last part, without namespaces and templates."""
    short = _core._short_name(name)
    last = short.rpartition("::")[2].removesuffix("<...>")
    return short if not last or last.startswith("operator") else last


def _part_at(name: str, place: int) -> str:
    """Return the template argument around a place in a name, cut where it is long."""
    begin = place
    while begin and (name[begin - 1].isalnum() or name[begin - 1] == "_"):
        begin -= 1
    part = name[begin:].partition(",")[0].partition("(")[0].strip() or name[begin:]
    return _core._cut_name(part, MAX_PART)
