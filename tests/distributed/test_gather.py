"""`gather_stats` through a store: what comes together on rank 0, and what does not."""

from __future__ import annotations

import json
import math
import pickle
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from gpuprof import distributed
from gpuprof.errors import InvalidStateError
from tests.support.benchmark_results import csv_lines
from tests.support.gpu_records import Recording
from tests.support.processes import check_python
from tests.support.rank_store import MemoryStore, Ranks, gpu_row, row

SIZE = 4
SOON = 0.05  # seconds: all that will come is there
CLOSED = "gpuprof/stats/default/closed"
OWN = gpuprof.__version__.encode()


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch, SIZE)


def step(rank: int, own: float = 10.0, waiting: float = 0.0) -> list[gpuprof.results.Row]:
    rows = [row("step", own + waiting), row("step/fwd", own / 2)]
    return rows + ([row("step/collective/all_reduce", waiting)] if waiting else [])


def remade(raw: bytes, at: int | slice, value: Any) -> bytes:
    """Return what a rank wrote with something else in its second row."""
    head, _, body = raw.partition(b"\n")
    host, pending, rows = json.loads(zlib.decompressobj().decompress(body))
    rows[1][at] = value
    return head + b"\n" + zlib.compress(json.dumps([host, pending, rows]).encode())


def leave(ranks: Ranks, rank: int, rows: list[gpuprof.results.Row] | None = None) -> None:
    """Have a rank leave its rows for rank 0."""
    ranks.be(rank, step(rank) if rows is None else rows)
    assert distributed.gather_stats(store=ranks.store) is None


def on_rank_0(ranks: Ranks, timeout_s: float = SOON) -> distributed.RankStats:
    found = distributed.gather_stats(timeout_s, store=ranks.store)
    assert found is not None
    return found


def gathered(
    ranks: Ranks, rows: Callable[[int], list[gpuprof.results.Row]], among: Any
) -> distributed.RankStats:
    """Have the ranks of `among` leave their rows, and return what rank 0 makes of them."""
    for rank in among:
        leave(ranks, rank, rows(rank))
    ranks.be(0, rows(0))
    return on_rank_0(ranks)


def test_one_process_without_torch_is_a_world_of_one() -> None:
    out = check_python("""
        import gpuprof.distributed
        with gpuprof.timer("step", backend="cpu"):
            pass
        found = gpuprof.distributed.gather_stats()
        print(found.ranks, found["step"][0].count, "torch" in sys.modules)
    """)
    assert out.split() == ["(0,)", "1", "False"]


def test_kernels_give_the_rows_their_exposed_communication(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in (1, 2, 3, 0):
        gpu = Recording().install(monkeypatch)
        with gpuprof.kernels() as k:
            for at in range(0, 4_000_000, 1_000_000):
                with gpuprof.timer("step", backend="cpu"):
                    call = gpu.call()
                    gpu.work("ncclDevKernel_AllReduce", call, at, 40_000)
                    gpu.work("gemm", call, at + 30_000, (rank + 1) * 1_000, stream=9)
        ranks.be(rank, step(rank))
        found = distributed.gather_stats(SOON, store=ranks.store, kernels=k)
    assert found is not None
    row = found["step"]
    assert [row[each].communication_ms for each in range(SIZE)] == pytest.approx([0.04] * SIZE)
    assert [row[each].exposed_ms for each in range(SIZE)] == pytest.approx(
        [0.039, 0.038, 0.037, 0.036]
    )
    assert row.exposed_ms == pytest.approx(0.0375)
    assert math.isnan(found["step/fwd"].communication_ms)  # it launched nothing, or in a graph
    line = next(each for each in str(found).splitlines() if each.startswith("step "))
    assert "40.0 µs" in line
    assert "37.5 µs" in line


def test_ranks_without_kernels_are_in_no_mean_of_communication(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Recording().install(monkeypatch)
    with gpuprof.kernels() as k, gpuprof.timer("step", backend="cpu"):
        call = gpu.call(name="cuGraphLaunch")
        gpu.work("ncclDevKernel_AllReduce", call, 0, 40_000)
    Recording().install(monkeypatch)
    with gpuprof.kernels() as empty:
        pass
    found = None
    for rank, kernels in ((1, k), (2, None), (3, empty), (0, k)):
        ranks.be(rank, step(rank))
        found = distributed.gather_stats(SOON, store=ranks.store, kernels=kernels)
    assert found is not None
    assert found.left_out == {}
    row = found["step"]
    assert (row.communication_ms, row.exposed_ms) == pytest.approx((0.04, 0.04))
    assert row.to_dict()["by_rank"]["exposed_ms"] == [pytest.approx(0.04)] * 2 + [None] * 2


def test_kernels_that_are_none_or_still_open_are_refused_before_anything_is_sent(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    Recording().install(monkeypatch)
    ranks.be(1, step(1))
    with pytest.raises(TypeError, match=r"kernels: expected a gpuprof\.Kernels, got 3"):
        distributed.gather_stats(store=ranks.store, kernels=3)  # type: ignore[arg-type]
    with gpuprof.kernels() as k, pytest.raises(InvalidStateError, match="is open"):
        distributed.gather_stats(store=ranks.store, kernels=k)
    assert not ranks.store.values


def test_importing_it_imports_no_torch_and_costs_import_gpuprof_nothing() -> None:
    out = check_python("""
        import gpuprof
        gpuprof.timer
        print(any("_distributed" in name for name in sys.modules))
        gpuprof.distributed.time_collectives
        print("torch" in sys.modules)
    """)
    assert out.split() == ["False", "False"]


def test_several_ranks_without_a_process_group_are_told_what_to_call(ranks: Ranks) -> None:
    ranks.be(1)
    with pytest.raises(InvalidStateError, match=r"rank 1 of a world of 4.*init_process_group\(\)"):
        distributed.gather_stats()
    with pytest.raises(InvalidStateError, match="no process group yet"):
        distributed.gather_stats(group=object())


def test_a_store_that_is_slow_to_clone_holds_up_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, begun, may_end = MemoryStore(), threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def clone(self) -> MemoryStore:
            begun.set()
            may_end.wait(60)
            return self

        def set_timeout(self, timeout: object) -> None:
            pass

    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    slow, other = (
        threading.Thread(target=distributed.gather_stats, kwargs={"store": each}, daemon=True)
        for each in (Slow(), store)
    )
    slow.start()
    assert begun.wait(60)
    other.start()
    other.join(10)
    is_held_up = other.is_alive()
    may_end.set()
    slow.join()
    other.join()
    assert not is_held_up
    assert store.values


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5", None, 1e9])
def test_a_timeout_that_is_none_is_refused(timeout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timeout_s: expected"):
        distributed.gather_stats(timeout)


def test_the_table_has_each_scope_over_all_ranks(ranks: Ranks) -> None:
    found = gathered(ranks, lambda rank: step(rank, 10.0 + rank), (1, 2, 3))
    assert (found.ranks, found.missing, found.left_out) == ((0, 1, 2, 3), (), {})
    assert [names for names, _ in found] == [("step",), ("step", "fwd")]
    over = found["step"]
    assert (over.mean_ms, over.p50_ms, over.min_ms, over.max_ms) == (11.5, 11.5, 10.0, 13.0)
    assert (over.slowest_rank, over.imbalance) == (3, pytest.approx(13.0 / 11.5))
    assert (over[2].mean_ms, over[2].count, over[2].total_ms) == (12.0, 10, 120.0)
    assert found["step/fwd", "cpu"].mean_ms == 5.75
    assert found.stats(2)["step"].host.mean_ms == 12.0


def test_the_slow_rank_is_the_one_that_waits_least(ranks: Ranks) -> None:
    # A step takes equally long everywhere, as the collectives synchronise it.
    own = {0: 4.0, 1: 4.5, 2: 9.0, 3: 5.0}
    found = gathered(ranks, lambda rank: step(rank, own[rank], 10.0 - own[rank]), (3, 1, 2))
    over = found["step"]
    assert over.min_ms == over.max_ms == 10.0
    assert {rank: over[rank].own_ms for rank in over} == pytest.approx(own)
    assert (over.slowest_rank, found.slowest_rank) == (2, 2)
    assert over.imbalance == pytest.approx(9.0 / 5.625)
    assert found["step/collective/all_reduce"].slowest_rank == 2
    assert "rank 2 is the slowest in step: 9.00 ms outside of collectives" in str(found)


def test_waiting_counts_on_the_clock_of_the_scope_around_it(ranks: Ranks) -> None:
    rows = [
        gpu_row("step", 10.0, 2.0),
        gpu_row("step/collective/all_reduce", 4.0, 0.5),
        row("step/collective/barrier", 1.0),
        row("load", 7.0),
        gpu_row("load/collective/all_reduce", 3.0, 0.25),
    ]
    found = gathered(ranks, lambda _: rows, (1, 2, 3))
    assert found["step"].waiting_ms == 5.0  # what the GPU waited, and for the host
    assert found["load"].waiting_ms == 0.25  # of the host's time only what the host spent there


def test_what_another_thread_waits_for_is_found_by_its_path(ranks: Ranks) -> None:
    rows = [row("step", 10.0), row("step/bwd", 6.0)]
    apart = gpuprof.results.Row(
        "step/bwd/collective/ddp",
        "cpu",
        row("a", 1.0).gpu,
        row("a", 2.0).host,
        names=("step/bwd/collective/ddp",),
    )
    found = gathered(ranks, lambda _: [*rows, apart], (1, 2, 3))
    assert (found["step"].waiting_ms, found["step/bwd"].waiting_ms) == (2.0, 2.0)
    assert found["step/bwd/collective/ddp"].is_collective


def test_a_rank_that_never_comes_is_missing(ranks: Ranks) -> None:
    found = gathered(ranks, step, (1, 3))
    assert (found.ranks, found.missing) == ((0, 1, 3), (2,))
    assert "missing: rank 2 wrote nothing before the deadline" in str(found)
    with pytest.raises(KeyError, match="rank 2: it wrote nothing"):
        found.stats(2)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda raw: raw.replace(OWN, b"9.8.7", 1), "it has gpuprof 9.8.7"),
        (lambda _: b"something else", "it wrote no statistics of gpuprof"),
        (lambda _: b"", "it wrote no statistics of gpuprof"),
        (lambda raw: raw[:60], "its statistics are damaged"),
        (lambda raw: raw[:40] + bytes([raw[40] ^ 255]) + raw[41:], "its statistics are damaged"),
        (lambda raw: remade(raw, slice(2, None), [1.0]), "ValueError"),
        (lambda raw: remade(raw, 3, None), "TypeError"),
        (lambda raw: remade(raw, 0, [7]), "names that are no text"),
        (lambda raw: remade(raw, 0, []), "names that are no text"),
        (lambda raw: remade(raw, 1, 7), "names that are no text"),
        (lambda raw: remade(raw, 3, -1), "times that are none"),
        (lambda raw: remade(raw, 3, 1e308), "times that are none"),
        (lambda raw: remade(raw, slice(9, None), []), "times that are none"),
        (lambda raw: remade(raw, 2, 0), "rows without a measurement"),
        (lambda raw: remade(raw, 0, ["a"] * 100_000), "more than 4,096 names"),
    ],
)  # fmt: skip
def test_what_a_rank_wrote_otherwise_is_left_out_and_named(
    ranks: Ranks, change: Callable[[bytes], bytes], why: str
) -> None:
    leave(ranks, 2)
    (key,) = ranks.store.values
    ranks.store.values[key] = change(ranks.store.values[key])
    found = gathered(ranks, step, (1, 3))
    assert (found.ranks, found.missing) == ((0, 1, 3), ())
    assert why in found.left_out[2]
    assert f"left out: rank 2: {found.left_out[2]}" in str(found)
    assert list(found["step"]) == [0, 1, 3]


def test_damage_in_what_only_one_rank_needs_is_an_error_of_its_statistics(ranks: Ranks) -> None:
    leave(ranks, 2)
    (key,) = ranks.store.values
    ranks.store.values[key] = ranks.store.values[key][:-20]
    found = gathered(ranks, step, (1, 3))
    assert found.ranks == (0, 1, 2, 3)
    assert found["step"][2].mean_ms == 10.0
    with pytest.raises(ValueError, match="its statistics are damaged"):
        found.stats(2)


def test_a_rank_with_nothing_measured_and_names_that_differ(ranks: Ranks) -> None:
    rows = {0: [row("step", 1.0)], 1: [], 2: [row("step", 1.0), row("eval", 2.0)], 3: []}
    found = gathered(ranks, lambda rank: rows[rank], (1, 2, 3))
    assert (found.empty, found.missing) == ((1, 3), ())
    assert (list(found["step"]), list(found["eval"])) == ([0, 2], [2])
    assert "nothing measured on ranks 1, 3" in str(found)
    assert "only 2" in str(found)
    with pytest.raises(KeyError, match=r"the paths are 'step', 'eval'"):
        found["fwd"]


def test_called_again_it_has_what_is_new_and_the_store_does_not_grow(ranks: Ranks) -> None:
    for number in range(1, 31):
        found = gathered(ranks, lambda rank, of=number: step(rank, of), (1, 2, 3))
        assert (found["step"].mean_ms, found.missing) == (number, ())
        assert ranks.store.values == {CLOSED: str(number).encode()}


def test_a_rank_that_is_late_leaves_nothing_behind(ranks: Ranks) -> None:
    assert gathered(ranks, step, (1,)).missing == (2, 3)
    leave(ranks, 2)
    assert ranks.store.values.keys() == {CLOSED}


def test_a_rank_that_writes_while_rank_0_goes_on_takes_it_out_again(ranks: Ranks) -> None:
    def closed_meanwhile(call: str, key: str) -> None:
        if call == "set" and key.endswith("/2"):
            ranks.store.values[CLOSED] = b"1"

    ranks.store.before = closed_meanwhile
    leave(ranks, 2)
    assert ranks.store.values == {CLOSED: b"1"}


def test_ranks_that_call_it_more_often_leave_a_bounded_number(ranks: Ranks) -> None:
    for number in range(100):
        leave(ranks, 1, step(1, number))
    assert len(ranks.store.values) == 8 + 1  # and the newest number


def test_a_rank_far_ahead_is_not_waited_for_and_is_named(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof._distributed.exchange.time.sleep", lambda _: pytest.fail("waits"))
    for number in range(1, 31):
        leave(ranks, 1, step(1, number))
    for rank in (2, 3):
        leave(ranks, rank)
    ranks.be(0, step(0))
    found = on_rank_0(ranks, 60.0)
    assert (found.ranks, found.missing) == ((0, 2, 3), ())
    assert "rank 1: it is at its call 30, this is call 1" in str(found)
    for _ in range(2, 24):  # to the oldest call that rank 1 has left
        found = on_rank_0(ranks, 0.0)
    assert found["step"][1].mean_ms == 23.0


def test_a_store_that_fails_ends_no_rank(ranks: Ranks) -> None:
    def fail(call: str, key: str) -> None:
        raise ConnectionError("the store's host is gone")

    ranks.store.before = fail
    ranks.be(1, step(1))
    with pytest.warns(RuntimeWarning, match=r"rank 1 cannot leave its statistics.*host is gone"):
        assert distributed.gather_stats(store=ranks.store) is None
    ranks.be(0, step(0))
    found = on_rank_0(ranks)
    assert (found.ranks, found.missing) == ((0,), (1, 2, 3))
    assert "the store failed: ConnectionError" in str(found)


def test_samples_that_the_gpu_never_comes_to_are_not_waited_for(ranks: Ranks) -> None:
    ranks.be(0, [row("step", 1.0, pending=3)])
    found = on_rank_0(ranks)
    assert found.pending == (0,)
    assert "some samples of rank 0 were still waiting for the GPU" in str(found)


def test_it_is_plain_data(ranks: Ranks) -> None:
    found = gathered(ranks, lambda rank: step(rank, 10.0 + rank, 1.0), (1, 3))
    data = json.loads(found.to_json())
    assert data == found.to_dict()
    assert (data["missing"], data["ranks"], data["slowest_rank"]) == ([2], [0, 1, 3], 3)
    first = data["rows"][0]
    assert first["by_rank"]["rank"] == [0, 1, 3]
    assert first["by_rank"]["waiting_ms"] == [1.0, 1.0, 1.0]
    again = pickle.loads(pickle.dumps(found))
    assert again.to_dict() == data
    assert again.stats(1)["step"].host.mean_ms == 12.0
    assert "<table>" in found._repr_html_()
    assert "| step |" in found.to_markdown()
    line = csv_lines(found.to_csv())[0]
    assert (line["path"], line["slowest_rank"], line["waiting_ms"]) == ("step", "3", "1.0")
    assert json.loads(line["names"]) == ["step"]
