"""Statistics as data: looking rows up, arithmetic over the tree, and forms that travel."""

from __future__ import annotations

import json
import math
import pickle
from contextlib import suppress
from typing import Any

import pytest

import gpuprof
from gpuprof import Stats
from gpuprof.results import Row, Summary
from tests.support.stand_in_memory import install_torch


def summary(count: int, ms: float, first: float | None = None) -> Summary:
    """`count` samples of `ms` each."""
    return Summary(count, count * ms, ms, ms, ms, ms, ms, ms, ms if first is None else first)


def gpu_row(path: str, total: float, *, host: float = 0.01, **counts: int) -> Row:
    return Row(path, "cuda", summary(10, total / 10), summary(10, host), **counts)


def cpu_row(path: str, total: float) -> Row:
    return Row(path, "cpu", None, summary(10, total / 10))


NESTED = Stats(
    [
        gpu_row("step", 100.0),
        gpu_row("step/fwd", 30.0),
        gpu_row("step/fwd/attn", 12.0),
        gpu_row("step/bwd", 60.0),
        cpu_row("step/load", 500.0),
        gpu_row("eval", 7.0),
    ]
)


def test_a_path_finds_its_row() -> None:
    assert NESTED["step/fwd"].time.total_ms == pytest.approx(30.0)
    assert NESTED["step/fwd", "cuda"] is NESTED["step/fwd"]


def test_a_path_with_several_clocks_gives_the_gpu_row_first() -> None:
    stats = Stats([cpu_row("step", 5.0), gpu_row("step", 1.0)])
    assert stats["step"].clock == "cuda"
    assert stats["step", "cpu"].clock == "cpu"


def test_iterating_reaches_every_row_exactly_once() -> None:
    stats = Stats([cpu_row("step", 5.0), gpu_row("step", 1.0), gpu_row("eval", 2.0)])
    assert list(stats) == [("step", "cpu"), ("step", "cuda"), "eval"]
    assert len(stats) == 3
    assert {(row.path, row.clock) for row in stats.values()} == {
        ("step", "cpu"),
        ("step", "cuda"),
        ("eval", "cuda"),
    }


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("step/fdw", "did you mean 'step/fwd'"),
        ("attn", "did you mean 'step/fwd/attn'"),
        (("step", "cpu"), "the clocks of 'step' are 'cuda'"),
        ("zzzz", "the paths are 'step'"),
        (3, "no row 3"),
    ],
)
def test_a_missing_key_names_what_is_near(key: Any, hint: str) -> None:
    assert key not in NESTED
    with pytest.raises(KeyError) as caught:
        NESTED[key]
    assert hint in caught.value.args[0]


def test_a_missing_key_in_empty_statistics_says_that_they_are_empty() -> None:
    with pytest.raises(KeyError, match="nothing was measured yet"):
        Stats([])["step"]


def test_self_time_leaves_out_the_rows_directly_inside_on_the_same_clock() -> None:
    assert NESTED.self_ms(NESTED["step"]) == pytest.approx(100.0 - 30.0 - 60.0)
    assert NESTED.self_ms(NESTED["step/fwd"]) == pytest.approx(30.0 - 12.0)
    assert NESTED.self_ms(NESTED["step/bwd"]) == pytest.approx(60.0)


def test_self_time_of_overlapping_children_is_below_zero() -> None:
    stats = Stats([gpu_row("step", 10.0), gpu_row("step/a", 8.0), gpu_row("step/b", 8.0)])
    assert stats.self_ms(stats["step"]) == pytest.approx(-6.0)


def test_self_time_is_unknown_where_calls_failed_and_rows_inside_have_times() -> None:
    stats = Stats([gpu_row("step", 10.0, failed=1), gpu_row("step/a", 8.0, failed=1)])
    assert math.isnan(stats.self_ms(stats["step"]))
    assert stats.self_ms(stats["step/a"]) == 8.0
    assert stats.share(stats["step/a"]) is None


def test_a_scope_left_by_an_exception_has_no_self_time_below_zero() -> None:
    for error in (None, KeyError()):
        with suppress(KeyError), gpuprof.timer("left", backend="cpu"):
            for _ in range(1 if error is None else 100):
                with gpuprof.timer("inner", backend="cpu"):
                    pass
            if error is not None:
                raise error
    stats = gpuprof.stats()
    assert (stats["left"].failed, stats["left/inner"].host.count) == (1, 101)
    assert math.isnan(stats.self_ms(stats["left"]))


def test_share_is_of_the_parent_and_none_at_the_root() -> None:
    assert NESTED.share(NESTED["step/fwd"]) == pytest.approx(0.3)
    assert NESTED.share(NESTED["step/fwd/attn"]) == pytest.approx(0.4)
    assert NESTED.share(NESTED["step"]) is None


def test_share_never_mixes_clocks() -> None:
    assert NESTED.share(NESTED["step/load"]) is None


def test_a_row_without_a_direct_parent_belongs_to_the_closest_row_around_it() -> None:
    stats = Stats([gpu_row("step", 10.0), gpu_row("step/gone/inner", 4.0)])
    assert stats.share(stats["step/gone/inner"]) == pytest.approx(0.4)
    assert stats.self_ms(stats["step"]) == pytest.approx(6.0)


def test_a_row_of_other_statistics_is_refused() -> None:
    with pytest.raises(KeyError):
        NESTED.share(gpu_row("elsewhere", 1.0))


def test_a_row_knows_its_place() -> None:
    row = NESTED["step/fwd/attn"]
    assert (row.name, row.parent, row.depth) == ("attn", "step/fwd", 2)
    assert (NESTED["eval"].name, NESTED["eval"].parent, NESTED["eval"].depth) == ("eval", None, 0)


@pytest.mark.parametrize(("host", "bound"), [(0.89, False), (0.9, True), (2.0, True)])
def test_host_bound_begins_at_nine_tenths_of_the_gpu(host: float, bound: bool) -> None:
    assert gpu_row("step", 10.0, host=host).host_bound is bound


def flat_row(name: str, total: float) -> Row:
    return Row(name, "cuda", summary(10, total / 10), None, names=(name,))


SLASHES = Stats([gpu_row("train", 10.0), flat_row("train/load", 50.0), gpu_row("train/load", 4.0)])


def test_a_slash_in_a_name_makes_no_parent() -> None:
    assert SLASHES.self_ms(SLASHES["train"]) == pytest.approx(6.0)
    assert SLASHES.share(SLASHES[("train/load",), "cuda"]) is None
    assert SLASHES.share(SLASHES[("train", "load"), "cuda"]) == pytest.approx(0.4)


def test_paths_that_read_the_same_are_found_by_their_names() -> None:
    assert list(SLASHES) == ["train", (("train/load",), "cuda"), (("train", "load"), "cuda")]
    assert [SLASHES[key] for key in SLASHES] == list(SLASHES.values())
    assert [SLASHES[row.names, row.clock].time.total_ms for row in SLASHES.values()] == [10, 50, 4]


@pytest.mark.parametrize("key", ["train/load", ("train/load", "cuda")])
def test_a_text_that_means_several_paths_is_no_key(key: Any) -> None:
    assert key not in SLASHES
    with pytest.raises(KeyError) as caught:
        SLASHES[key]
    assert (
        "stats[('train/load',), 'cuda'] or stats[('train', 'load'), 'cuda']"
        in (caught.value.args[0])
    )


def test_paths_that_read_the_same_come_back_from_json_and_pickles() -> None:
    again = Stats.from_dict(json.loads(SLASHES.to_json()))
    assert list(again) == list(pickle.loads(pickle.dumps(SLASHES))) == list(SLASHES)


def test_rows_without_names_have_those_between_the_slashes() -> None:
    data = NESTED.to_dict()
    for row in data["rows"]:
        del row["names"]
    assert Stats.from_dict(data)["step/fwd"].names == ("step", "fwd")


def test_the_gpu_summary_of_another_clock_is_empty() -> None:
    with gpuprof.timer("host", backend="cpu"):
        pass
    for row in (cpu_row("step", 10.0), gpuprof.stats()["host"]):
        assert row.gpu.count == 0
        assert math.isnan(row.gpu.p50_ms)
        assert row.to_dict()["gpu"] is None
        assert row.time is row.host


def test_a_rows_plain_form_says_whether_it_is_host_bound() -> None:
    assert gpu_row("step", 10.0, host=2.0).to_dict()["host_bound"] is True
    assert cpu_row("step", 10.0).to_dict()["host_bound"] is False


def test_a_row_without_samples_has_no_figures() -> None:
    row = Row("step", "cuda", None, None, pending=3)
    assert row.time.count == 0
    assert row.time.total_ms == 0.0
    assert math.isnan(row.time.p50_ms)
    assert not row.host_bound


def test_memory_is_torchs_peak_and_the_change_since_the_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = install_torch(monkeypatch)
    memory.allocate(1000)
    memory.use(4000)
    gpuprof.reset()
    memory.allocate(300)
    (used, *_) = gpuprof.stats().memory
    assert used == {"device": "cuda:0", "peak_bytes": 5000, "delta_bytes": 300}
    monkeypatch.undo()
    gpuprof.reset()


def test_memory_never_initialises_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    install_torch(monkeypatch).initialised = False
    gpuprof.reset()
    assert gpuprof.stats().memory == []


def test_memory_of_a_torch_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    install_torch(monkeypatch).device_count = lambda: 1 // 0  # type: ignore[method-assign]
    gpuprof.reset()
    assert gpuprof.stats().memory == []


def test_statistics_of_an_older_json_have_no_work_and_no_memory() -> None:
    plain = NESTED.to_dict()
    for row in plain["rows"]:
        del row["work"], row["memory"]
    assert [row.work for row in Stats.from_dict(plain).values()] == [None] * len(NESTED)


def test_samples_and_scopes_of_an_older_pickle_load() -> None:
    with gpuprof.timer("step", backend="cpu") as sample:
        pass
    restore, state = sample.__reduce__()
    assert restore(*state[:6]).to_dict() == sample.to_dict()
    remake, (name, options) = gpuprof.timer("step", enabled=True).__reduce__()
    for option in ("memory", "flops", "nbytes"):
        del options[option]
    assert remake(name, options).name == "step"
