"""The table of all ranks as people see it."""

from __future__ import annotations

import io

import pytest

from gpuprof import distributed
from tests.support.rank_store import MemoryStore, Ranks, row


def table_of(patch: pytest.MonkeyPatch, own: dict[int, float], size: int) -> str:
    ranks = Ranks(patch, size)
    for rank in [*(each for each in own if each), 0]:
        slowest = max(own.values())
        rows = [
            row("step", slowest),
            row("step/fwd", own[rank] / 2),
            row("step/collective/all_reduce", slowest - own[rank]),
        ]
        ranks.be(rank, rows)
        found = distributed.gather_stats(0.01, store=ranks.store)
    assert found is not None
    out = io.StringIO()
    found.print(out, style="plain")
    return out.getvalue()


def test_a_row_for_each_scope_and_notes_on_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert table_of(monkeypatch, {0: 8.0, 1: 8.0, 3: 20.0}, 6).splitlines() == [
        "3 of 6 ranks, clock: cpu; the mean of one call by rank, over ranks",
        "scope                       mean      p50      min      max  waiting  imbalance  slowest",
        "-" * 88,
        "step                     20.0 ms  20.0 ms  20.0 ms  20.0 ms  8.00 ms       1.67   rank 3",
        "  fwd                    6.00 ms  4.00 ms  4.00 ms  10.0 ms                1.67   rank 3",
        "  collective/all_reduce  8.00 ms  12.0 ms     0 ns  12.0 ms                       rank 3",
        "rank 3 is the slowest in step: 20.0 ms outside of collectives, the others 8.00 ms on "
        "average",
        "missing: ranks 2, 4-5 wrote nothing before the deadline",
    ]


def test_no_rank_is_called_slow_where_all_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is the slowest" not in table_of(monkeypatch, {0: 8.0, 1: 8.0, 2: 8.05}, 3)


def test_many_missing_ranks_are_a_short_note(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = table_of(monkeypatch, {0: 8.0, **dict.fromkeys(range(2, 64, 2), 8.0)}, 64)
    (note,) = [line for line in shown.splitlines() if line.startswith("missing")]
    assert note == (
        "missing: ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, ... wrote "
        "nothing before the deadline"
    )


def test_nothing_measured_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, 2)
    ranks.be(0)
    found = distributed.gather_stats(0.0, store=MemoryStore())
    assert found is not None
    assert found.slowest_rank is None
    assert str(found).splitlines() == [
        "1 of 2 ranks: nothing was measured",
        "missing: rank 1 wrote nothing before the deadline",
        "nothing measured on rank 0",
    ]
    with pytest.raises(KeyError, match="nothing was measured"):
        found["step"]
