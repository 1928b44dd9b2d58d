"""Statistics in files, in data frames, and merged with those of other processes."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuprof
from gpuprof import Stats
from gpuprof.results import MemoryUse, Row, Summary, Work
from tests.fake_driver.control import FakeCuda

HOSTILE = 'a,"b"\r\nc\n\t=1+1;\u202e計'
PEAK = 1e15


def summary(*samples: float) -> Summary:
    """What gpuprof says of these samples; all quantiles are the median here."""
    ordered = sorted(samples)
    middle = ordered[len(ordered) // 2]
    return Summary(
        len(samples),
        math.fsum(samples),
        math.fsum(samples) / len(samples),
        ordered[0],
        middle,
        middle,
        middle,
        ordered[-1],
        samples[0],
    )


def gpu_row(path: str, *samples: float, **more: Any) -> Row:
    return Row(path, "cuda", summary(*samples), summary(*(ms / 2 for ms in samples)), **more)


def cpu_row(path: str, *samples: float, **more: Any) -> Row:
    return Row(path, "cpu", None, summary(*samples), **more)


STATS = Stats(
    [
        gpu_row("step", 4.0, 6.0, dropped=2),
        gpu_row("step/fwd", 1.0, 2.0, work=Work(2, flops=1e9, flops_per_s=1e12)),
        cpu_row("load", 5.0, memory=MemoryUse(1, 30, 130, -10)),
    ],
    dropped=2,
)


def lines_of(text: str | None) -> list[dict[str, str]]:
    assert text is not None
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_csv_has_the_same_columns_whatever_is_measured() -> None:
    assert Stats([]).to_csv() == (STATS.to_csv() or "").partition("\r\n")[0] + "\r\n"


def test_csv_keeps_every_digit_and_every_name() -> None:
    stats = Stats([cpu_row(HOSTILE, 1 / 3, names=(HOSTILE, "a/b"))])
    (line,) = lines_of(stats.to_csv())
    assert float(line["host_min_ms"]) == 1 / 3
    assert line["path"] == HOSTILE
    assert json.loads(line["names"]) == [HOSTILE, "a/b"]


@given(st.lists(st.text(min_size=1), min_size=1, unique=True))
def test_any_names_come_back_from_csv(names: list[str]) -> None:
    stats = Stats([cpu_row(name, 1.0, names=(name,)) for name in names])
    found = [line["path"] for line in lines_of(stats.to_csv())]
    assert found == [name.replace("\0", "\ufffd") for name in names]


def test_text_without_a_utf_8_form_does_not_keep_a_file_from_being_written(tmp_path: Path) -> None:
    Stats([cpu_row("a\ud800\0b", 1.0)]).to_csv(tmp_path / "a.csv")
    assert "a\ufffd\ufffdb" in (tmp_path / "a.csv").read_text("utf-8")


def test_csv_for_a_path_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"missing/stats\.csv"):
        STATS.to_csv(tmp_path / "missing" / "stats.csv")
    with pytest.raises(TypeError, match="path: expected a str"):
        STATS.to_csv(3)  # type: ignore[arg-type]


def test_a_pandas_data_frame_has_a_type_for_each_column() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = STATS.to_frame()
    assert list(frame.columns) == list(lines_of(STATS.to_csv())[0])
    assert frame.set_index("path")["gpu_mean_ms"]["step"] == 5.0
    assert frame["gpu_mean_ms"].dtype == "float64"
    assert frame["flops"].isna().tolist() == [True, False, True]
    assert frame["gpu_count"].dtype == "int64"
    assert frame["host_bound"].dtype == "bool"
    assert list(Stats([]).to_frame().columns) == list(frame.columns)


def test_statistics_come_back_from_json() -> None:
    found = Stats.from_json(STATS.to_json())
    assert found.to_dict() == STATS.to_dict()
    assert Stats.from_json(STATS.to_json().encode()).to_dict() == STATS.to_dict()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "text: expected JSON, got"),
        ("[" * 100_000, "text: expected JSON that is not nested as deep, got"),
        ("[]", r"text: expected an object, .*, got \[\]"),
        ("{}", r"^Stats: expected .*gpuprof-stats"),
        ('{"format": "gpuprof-stats", "version": 2}', "^Stats: expected .*'version': 1"),
        ('{"format": "gpuprof-stats", "version": 1, "unit": "ms"}', "^Stats: 'rows' is missing"),
        (json.dumps({**STATS.to_dict(), "rows": [{}]}), r"^Stats\.rows\[0\]: 'path' is missing"),
        (json.dumps({**STATS.to_dict(), "rows": 3}), r"^Stats\.rows: expected a list, got 3"),
    ],
)
def test_other_text_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Stats.from_json(text)
    with pytest.raises(TypeError, match="text: expected what to_json"):
        Stats.from_json(None)  # type: ignore[arg-type]


# Merging


def test_what_adds_up_is_added_and_the_ends_are_those_of_all() -> None:
    samples = (4.0, 6.0, 1.0, 9.0, 2.0)
    found = Stats([gpu_row("step", *samples[:2], dropped=1, failed=2)], dropped=1).merge(
        Stats([gpu_row("step", *samples[2:4], pending=3)], dropped=4),
        Stats([gpu_row("step", samples[4], skipped=5)]),
    )
    row, whole = found["step"], summary(*samples)
    assert (row.gpu.count, row.gpu.total_ms) == (5, pytest.approx(whole.total_ms))
    assert row.gpu.mean_ms == pytest.approx(whole.mean_ms)
    assert (row.gpu.min_ms, row.gpu.max_ms) == (whole.min_ms, whole.max_ms)
    assert row.host.max_ms == whole.max_ms / 2
    assert (row.dropped, row.failed, row.pending, row.skipped) == (1, 2, 3, 5)
    assert found.dropped == 5


def test_what_summaries_do_not_tell_is_not_claimed() -> None:
    # Both parts have the same p90 by linear interpolation, 9; the whole has another, 10.
    row = Stats([gpu_row("a", 0.5, 10.0)]).merge(Stats([gpu_row("a", 0.5, 10.0)]))["a"]
    assert all(
        math.isnan(each)
        for each in (row.gpu.p50_ms, row.gpu.p90_ms, row.gpu.p99_ms, row.gpu.first_ms)
    )
    assert not row.host_bound
    assert row.to_dict()["gpu"]["p50_ms"] is None


def binned(samples: list[float]) -> Stats:
    """Statistics with bins, counted here by the rule that the documentation gives."""
    counts: dict[int, int] = {}
    for ms in samples:
        mantissa, exponent = math.frexp(ms)
        place = (exponent - 1 + 30) * 64 + int((2 * mantissa - 1) * 64)
        counts[place] = counts.get(place, 0) + 1
    bins = tuple(sorted(counts.items()))
    return Stats([Row("a", "cpu", None, dataclasses.replace(summary(*samples), bins=bins))])


@given(st.integers(0, 2**32), st.lists(st.integers(1, 200), min_size=2, max_size=4))
def test_with_bins_quantiles_are_those_of_all_samples(seed: int, counts: list[int]) -> None:
    chance = random.Random(seed)
    parts = [[chance.lognormvariate(0, 3) for _ in range(count)] for count in counts]
    first, *others = map(binned, parts)
    found = first.merge(*others)["a"].host
    ordered = sorted(ms for part in parts for ms in part)
    for figure, q in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99)):
        rank = q * (len(ordered) - 1)
        below, above = ordered[math.floor(rank)], ordered[math.ceil(rank)]
        expected = below + (above - below) * (rank % 1)
        assert getattr(found, figure) == pytest.approx(expected, rel=1 / 128)
        assert found.min_ms <= getattr(found, figure) <= found.max_ms
    one = Stats([])
    for part in parts:
        one = one.merge(binned(part))
    assert one["a"].host.bins == found.bins


def test_a_merged_quantile_lies_between_two_samples_as_in_one_process() -> None:
    found = binned([10.0, 10.0]).merge(binned([10.0, 100.0]))["a"].host
    assert (found.p50_ms, found.p99_ms) == pytest.approx((10.0, 97.3), rel=1 / 128)


def test_a_part_without_bins_leaves_quantiles_unknown() -> None:
    without = Stats([cpu_row("a", 1.0)])
    found = binned([1.0, 2.0]).merge(without)["a"].host
    assert math.isnan(found.p50_ms)
    assert found.bins is None


def test_bins_are_kept_where_they_are_asked_for() -> None:
    for _ in range(3):
        with gpuprof.timer("binned", backend="cpu"):
            pass
    assert gpuprof.stats()["binned"].host.bins is None
    assert "bins" not in gpuprof.stats()["binned"].to_dict()["host"]
    stats = gpuprof.stats(bins=True)
    host = stats["binned"].host
    assert host.bins is not None
    assert sum(count for _, count in host.bins) == host.count
    low, high = (
        math.ldexp(1 + place % 64 / 64, place // 64 - 30)
        for place in (host.bins[0][0], host.bins[-1][0] + 1)
    )
    assert low <= host.min_ms <= host.max_ms < high
    assert Stats.from_json(stats.to_json())["binned"].host == host
    assert pickle.loads(pickle.dumps(stats))["binned"].host == host


def test_gpu_and_host_times_have_bins_of_their_own(fake: FakeCuda, stream: int) -> None:
    with gpuprof.timer("on the GPU", stream=stream):
        fake.work(stream, 3_000_000)
    row = gpuprof.stats(bins=True)["on the GPU"]
    assert row.gpu.bins is not None
    assert row.host.bins is not None
    ((place, count),) = row.gpu.bins
    assert count == 1
    assert math.ldexp(1 + place % 64 / 64, place // 64 - 30) == pytest.approx(3.0, rel=1 / 64)


def test_bins_of_more_samples_than_are_kept_one_by_one() -> None:
    scope = gpuprof.timer("many binned", backend="cpu")
    for _ in range(5000):
        with scope:
            pass
    stats = gpuprof.stats(bins=True)
    host, merged = stats["many binned"].host, stats.merge(stats)["many binned"].host
    assert sum(count for _, count in merged.bins or ()) == 2 * host.count
    for figure in ("p50_ms", "p90_ms", "p99_ms"):
        # A rank of twice the samples may lie in the bin beside.
        assert getattr(merged, figure) == pytest.approx(getattr(host, figure), rel=1 / 32)


def test_what_one_part_alone_measured_stays_whole() -> None:
    other = Stats([gpu_row("other", 1.0)])
    found = STATS.merge(other, Stats([]))
    assert [row.path for row in found.values()] == ["step", "step/fwd", "load", "other"]
    assert found["step"].to_dict() == STATS["step"].to_dict()
    empty = Stats([Row("step", "cuda", None, None, pending=7)])
    assert STATS.merge(empty)["step"].gpu == STATS["step"].gpu
    assert STATS.merge(empty)["step"].pending == 7
    assert STATS.merge().to_dict()["rows"] == STATS.to_dict()["rows"]


def test_only_statistics_can_be_merged() -> None:
    with pytest.raises(TypeError, match="merge: expected Stats, got a dict"):
        STATS.merge(STATS.to_dict())  # type: ignore[arg-type]


def test_clocks_and_names_with_slashes_are_kept_apart() -> None:
    flat = cpu_row("step/fwd", 1.0, names=("step/fwd",))
    found = Stats([gpu_row("step/fwd", 1.0)]).merge(Stats([flat]), Stats([cpu_row("step/fwd", 2)]))
    assert len(found) == 3


def test_merged_statistics_travel_and_show_means() -> None:
    found = STATS.merge(STATS)
    again = Stats.from_json(found.to_json())
    assert again.to_dict() == found.to_dict()
    header = repr(again).splitlines()[1]
    assert "GPU mean" in header
    assert "p50" not in header
    assert "first call" not in header
    assert again.self_ms(again["step"]) == pytest.approx(14.0)


@pytest.mark.parametrize("known", [PEAK, None])
def test_work_of_one_kind_is_merged_with_its_rate(known: float | None) -> None:
    def row(count: int, flops: float, per_s: float) -> Row:
        share = None if known is None else per_s / known
        work = Work(count, flops, None, per_s, None, share, None, "float16" if known else "")
        return gpu_row("a", 1.0, work=work)

    work = Stats([row(2, 1e9, 1e12)]).merge(Stats([row(6, 2e9, 4e12)]))["a"].work
    assert work is not None
    assert work.count == 8
    assert work.flops == pytest.approx(14e9 / 8)
    per_s = 14e9 / (2e9 / 1e12 + 12e9 / 4e12)
    assert work.flops_per_s == pytest.approx(per_s)
    assert work.flops_share == (None if known is None else pytest.approx(per_s / known))
    assert work.nbytes is work.bytes_per_s is None


def test_work_of_both_kinds_has_no_known_weights() -> None:
    both = Work(4, 1e9, 1e6, 1e12, 1e9)
    work = Stats([gpu_row("a", 1.0, work=both)]).merge(Stats([gpu_row("a", 1.0, work=both)]))
    assert work["a"].work == Work(8)


def test_memory_is_merged_by_its_peaks_and_its_mean_change() -> None:
    parts = [
        Stats([cpu_row("a", 1.0, memory=MemoryUse(1, 30, 130, 10))]),
        Stats([cpu_row("a", 1.0, memory=MemoryUse(3, 20, 900, -10, "read late"))]),
        Stats([cpu_row("a", 1.0, memory=MemoryUse(0, math.nan, math.nan, math.nan, "no GPU"))]),
        Stats([cpu_row("a", 1.0)]),
    ]
    assert parts[0].merge(*parts[1:])["a"].memory == MemoryUse(4, 30, 900, -5, "read late; no GPU")


def test_statistics_of_several_processes_become_one() -> None:
    texts = []
    for count in (1, 2):  # as each process tells of its own
        for _ in range(count):
            with gpuprof.timer("load", backend="cpu"):
                pass
        texts.append(gpuprof.stats(bins=True).to_json())
        gpuprof.reset()
    first, *others = map(Stats.from_json, texts)
    host = first.merge(*others)["load"].host
    assert host.count == 3
    assert host.min_ms <= host.p50_ms <= host.max_ms
