"""What the samples of a path add up to, and how much memory that takes."""

from __future__ import annotations

import math

import pytest

import gpuprof
from tests.support.processes import check_python
from tests.support.scopes import cpu

EXACT = 4096


def measure(name: str, amounts: list[int]) -> list[float]:
    """Time as many bodies as there are amounts of work; return what each sample read."""
    scope, read = cpu(name), []
    for amount in amounts:
        with scope as sample:
            sum(range(amount))
        read.append(sample.host_ms)
    return read


def summary(path: str) -> gpuprof.results.Summary:
    host = gpuprof.stats()[path].host
    assert host is not None
    return host


def interpolated(values: list[float], q: float) -> float:
    """Return the quantile as order statistics define it, between the two nearest ranks."""
    ordered = sorted(values)
    rank = q * (len(ordered) - 1)
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return low + (high - low) * (rank - math.floor(rank))


# Figures


def test_the_figures_are_exact_up_to_4096_samples() -> None:
    read = measure("exact", [i % 50 for i in range(500)])
    host = summary("exact")
    for q, value in ((0.5, host.p50_ms), (0.9, host.p90_ms), (0.99, host.p99_ms)):
        assert value == pytest.approx(interpolated(read, q), rel=1e-12), q
    assert host.count == 500
    assert host.total_ms == pytest.approx(math.fsum(read), rel=1e-12)
    assert host.mean_ms == pytest.approx(math.fsum(read) / 500, rel=1e-12)
    assert (host.min_ms, host.max_ms, host.first_ms) == (min(read), max(read), read[0])


def test_quantiles_stay_between_the_smallest_and_the_largest() -> None:
    measure("between", [0] * (EXACT + 1))
    host = summary("between")
    assert host.min_ms <= host.p50_ms <= host.p90_ms <= host.p99_ms <= host.max_ms


def test_the_first_sample_is_shown_apart_and_counted() -> None:
    read = measure("first", [100_000, 0, 0])
    host = summary("first")
    assert host.first_ms == host.max_ms == read[0]
    assert host.count == 3


# Rows


def test_rows_are_in_the_order_in_which_paths_were_first_entered() -> None:
    names = ["order c", "order a", "order d", "order b"]
    with cpu("order outer"):
        for name in [*names, *reversed(names)]:
            measure(name, [1])
    expected = ["order outer", *(f"order outer/{name}" for name in names)]
    assert list(gpuprof.stats()) == expected


def test_a_scope_that_is_still_open_has_no_row() -> None:
    with cpu("open"):
        assert "open" not in gpuprof.stats()
    assert "open" in gpuprof.stats()


def test_statistics_are_a_snapshot() -> None:
    measure("snapshot", [1])
    before = gpuprof.stats()
    measure("snapshot", [1])
    assert before["snapshot"].time.count == 1
    assert gpuprof.stats()["snapshot"].time.count == 2


@pytest.mark.parametrize("wait", [True, False])
def test_waiting_makes_no_difference_on_the_cpu_clock(wait: bool) -> None:
    measure("waits", [1, 1])
    row = gpuprof.stats(wait=wait)["waits"]
    assert (row.time.count, row.pending, row.dropped) == (2, 0, 0)


# Reset


def test_reset_forgets_what_was_measured() -> None:
    measure("forgotten", [1, 1])
    gpuprof.reset()
    assert len(gpuprof.stats()) == 0
    measure("forgotten", [1])
    assert summary("forgotten").count == 1


def test_samples_entered_before_a_reset_never_count() -> None:
    with cpu("before"), cpu("inner"):
        gpuprof.reset()
        with cpu("after"):
            pass
    assert list(gpuprof.stats()) == ["before/inner/after"]


def test_a_reset_leaves_samples_and_scopes_as_they_are() -> None:
    scope = cpu("kept")
    with scope as sample:
        pass
    read = sample.ms
    gpuprof.reset()
    assert (sample.ms, scope.ms, scope.last) == (read, read, sample)


def test_a_reset_makes_the_next_sample_the_first() -> None:
    measure("again", [100_000])
    gpuprof.reset()
    read = measure("again", [0, 0])
    assert summary("again").first_ms == read[0]


# Memory


def test_too_many_names_share_one_row() -> None:
    check_python(
        """
        import gpuprof
        warnings.simplefilter("always")
        with warnings.catch_warnings(record=True) as said:
            for i in range(100_000):
                with gpuprof.timer(f"name {i}", enabled=None, backend="cpu") as sample:
                    pass
            inner = gpuprof.timer("deep", backend="cpu")
            with gpuprof.timer("name 5", backend="cpu"), inner as deep:
                pass
        stats = gpuprof.stats()
        assert len(stats) == 10_001, len(stats)
        assert list(stats)[-1] == "(other)"
        assert stats["(other)"].host.count == 90_001, stats["(other)"]
        assert stats["name 5"].host.count == 2
        assert sample.path == deep.path == "(other)"
        assert len(said) == 1 and said[0].category is RuntimeWarning, said
        assert "10000 different timer paths" in str(said[0].message)
        """
    )


def test_too_many_names_do_not_keep_their_scopes() -> None:
    check_python(
        """
        import gpuprof
        for i in range(30_000):
            gpuprof.timer(f"name {i}")
        assert len(gpuprof._core._scopes) == 10_000, len(gpuprof._core._scopes)
        assert gpuprof.timer("name 5") is gpuprof.timer("name 5")
        """
    )


def test_other_threads_run_while_the_rows_are_summed_up() -> None:
    out = check_python(
        """
        import sys, threading, time
        import gpuprof
        for index in range(200):
            scope = gpuprof.timer(f"row{index}", backend="cpu")
            for _ in range(500):
                with scope:
                    pass
        count, stop = 0, False
        def work():
            global count
            while not stop:
                count += 1
                time.sleep(0)
        thread = threading.Thread(target=work)
        thread.start()
        sys.setswitchinterval(1000)  # only those who let go are followed by another thread
        before, patience = count, time.monotonic() + 10
        while count == before and time.monotonic() < patience:
            gpuprof.stats(wait=False)
        print(count > before)
        stop = True
        thread.join()
        """,
        timeout=20,
    )
    assert out == "True\n"
