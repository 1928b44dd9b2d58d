"""`gpuprof.distributed.trace` on one rank: its arguments, and what rank 0 makes of the others."""

from __future__ import annotations

import copy
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import gpuprof
from gpuprof import distributed
from gpuprof.errors import InvalidStateError, TraceError
from tests.support.rank_store import Ranks
from tests.support.trace_files import load

OTHER = "gpuprof/trace/default/1/1"


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch, 2)


def step() -> None:
    with gpuprof.timer("step", backend="cpu"):
        pass


def slices(path: Path) -> list[str]:
    return [event["name"] for event in load(path)["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize(("pattern", "name"), [("run.json", "run.json"), ("r%r.json", "r0.json")])
def test_one_process_alone_writes_one_file(tmp_path: Path, pattern: str, name: str) -> None:
    with distributed.trace(tmp_path / pattern, args={"model": "m"}) as trace:
        step()
    assert (trace.path, trace.result) == (str(tmp_path / name), None)
    assert slices(tmp_path / name) == ["step"]
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": 7}, TypeError, "path: expected a str or os.PathLike"),
        ({"path": "a%x.json"}, ValueError, "'%x' in 'a%x.json' is no pattern"),
        (
            {"path": "a.json", "timeout_s": -1},
            ValueError,
            "timeout_s: expected .*, got -1",
        ),
        ({"path": "a.json", "merge": "yes"}, TypeError, "merge: expected True or False"),
    ],
)
def test_a_wrong_argument_is_an_error_of_the_call(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        distributed.trace(**arguments)


def test_several_ranks_without_a_process_group_are_told_what_to_call(
    ranks: Ranks, tmp_path: Path
) -> None:
    ranks.be(1)
    with pytest.raises(InvalidStateError, match=r"init_process_group\(\) first, or give store="):
        distributed.trace(tmp_path / "run.json").start()
    assert not [*tmp_path.iterdir()]


def test_a_trace_is_used_once_and_is_no_data(tmp_path: Path) -> None:
    trace = distributed.trace(tmp_path / "run.json")
    with pytest.raises(InvalidStateError, match="was not begun"):
        trace.writer  # noqa: B018
    trace.close()  # which does nothing yet
    trace.start()
    with pytest.raises(InvalidStateError, match="a trace is used once"):
        trace.start()
    trace.close()
    trace.close()
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copy.copy(trace)
    assert "closed" in repr(trace)


def test_the_exception_of_the_block_is_what_is_raised(tmp_path: Path) -> None:
    error = KeyError("own")
    with pytest.raises(KeyError) as caught, distributed.trace(tmp_path / "run.json"):
        raise error
    assert caught.value is error
    assert (tmp_path / "run.json").exists()


AsRank0: TypeAlias = Callable[[bytes | None], distributed.RankMerge]


@pytest.fixture
def as_rank_0(ranks: Ranks, tmp_path: Path) -> AsRank0:
    """Trace as rank 0 of two, the other of which has said that of its file; returns the result."""

    def trace_and_merge(said: bytes | None) -> distributed.RankMerge:
        ranks.be(0)
        trace = distributed.trace(tmp_path / "run.json", timeout_s=0.2, store=ranks.store).start()
        step()
        if said is not None:
            ranks.store.values[OTHER] = said
        with pytest.warns(RuntimeWarning, match="rank 1"):
            trace.close()
        assert ranks.store.values == {"gpuprof/trace/default/closed": b"1"}
        assert trace.result is not None
        return trace.result

    return trace_and_merge


def state(path: Path, **more: Any) -> bytes:
    """Return what a rank says of its file, which is closed."""
    raw = path.read_bytes() if path.exists() else b""
    own = {"size": len(raw), "check": zlib.crc32(raw[: 64 << 10]), "is_closed": True}
    return json.dumps({"path": str(path), "host": "there", "error": None, **own, **more}).encode()


def other_trace(path: Path) -> Path:
    """Write the trace of another rank, which is not measured against rank 0's clock."""
    with gpuprof.trace(path):
        step()
    return path


def test_a_rank_that_says_nothing_is_missing(as_rank_0: AsRank0, tmp_path: Path) -> None:
    result = as_rank_0(None)
    assert (result.ranks, result.cut) == ((0,), {})
    assert result.missing == {1: "it said nothing of its file"}
    assert slices(tmp_path / "run.json") == ["step"]


@pytest.mark.parametrize("said", [b"", b"{}", b"[1]", b"\xff", b'{"path": 7}'])
def test_a_rank_that_says_something_odd_is_missing(as_rank_0: AsRank0, said: bytes) -> None:
    assert as_rank_0(said).missing == {1: "what it said of its file is damaged"}


def test_another_file_of_the_same_name_is_not_taken(as_rank_0: AsRank0, tmp_path: Path) -> None:
    path = other_trace(tmp_path / "other.json")
    result = as_rank_0(state(path, check=7))
    assert result.missing == {1: f"its file is not here, but on there: {path}"}


def test_a_file_without_a_measured_clock_is_placed_by_its_wall_clock(
    as_rank_0: AsRank0, tmp_path: Path
) -> None:
    path = other_trace(tmp_path / "other.json")
    result = as_rank_0(state(path))
    assert (result.ranks, result.missing, result.clock_error_ms[1]) == ((0, 1), {}, None)
    assert "the clock of rank 1 was not measured" in str(result)
    assert slices(tmp_path / "run.json") == ["step", "step"]


def test_a_file_that_was_cut_off_is_repaired_and_named(as_rank_0: AsRank0, tmp_path: Path) -> None:
    path = other_trace(tmp_path / "other.json")
    raw = path.read_bytes()
    path.unlink()
    end = raw.index(b'"step"')
    Path(f"{path}.part").write_bytes(raw[: raw.index(b"}", end) + 3])
    result = as_rank_0(state(path, is_closed=False, size=-1))
    assert (result.ranks, result.missing) == ((0, 1), {})
    assert "it never closed its file" in result.cut[1]
    assert slices(tmp_path / "run.json") == ["step", "step"]


@pytest.mark.parametrize("rest", [None, b"", b"no trace"])
def test_a_file_of_which_nothing_is_left_is_missing(
    as_rank_0: AsRank0, tmp_path: Path, rest: bytes | None
) -> None:
    path = tmp_path / "other.json"
    if rest is not None:
        Path(f"{path}.part").write_bytes(rest)
    result = as_rank_0(state(path, is_closed=False))
    assert (result.ranks, [*result.missing]) == ((0,), [1])
    assert "it never closed its file" in result.missing[1]


def test_a_closed_file_that_is_damaged_is_left_out(as_rank_0: AsRank0, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(b'{"traceEvents":[{"ph":"X"')
    result = as_rank_0(state(path))
    assert (result.ranks, [*result.missing]) == ((0,), [1])
    assert "cut off" in result.missing[1]


def test_a_merge_that_cannot_be_written_is_a_warning(as_rank_0: AsRank0, tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    result = as_rank_0(None)
    assert (result.path, result.ranks) == (None, ())
    assert "is a directory" in result.missing[0]
    assert slices(tmp_path / "run.rank0.json") == ["step"]


def test_ctrl_c_while_the_files_are_merged_leaves_those_of_the_ranks(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = other_trace(tmp_path / "other.json")
    ranks.be(0)
    trace = distributed.trace(tmp_path / "run.json", timeout_s=0.2, store=ranks.store).start()
    step()
    ranks.store.values[OTHER] = state(other)

    replace = Path.replace

    def interrupt(temporary: Path, target: Path) -> None:
        if len(slices(temporary)) == 2:  # it is merged, and about to get its name
            raise KeyboardInterrupt
        replace(temporary, target)

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        trace.close()
    assert {each.name for each in tmp_path.iterdir()} == {"other.json", Path(trace.path).name}
    assert (trace.path.endswith("run.json"), slices(Path(trace.path))) == (False, ["step"])
    assert trace.result is None


def test_a_store_that_fails_leaves_the_rank_its_file(ranks: Ranks, tmp_path: Path) -> None:
    def fail(call: str, key: str) -> None:
        raise RuntimeError("Connection reset by peer")

    ranks.store.before = fail
    ranks.be(1)
    with pytest.warns(RuntimeWarning, match="not merged with those of the other ranks: .*reset"):
        with distributed.trace(tmp_path / "run.json", store=ranks.store) as trace:
            step()
    assert trace.path == str(tmp_path / "run.rank1.json")
    assert slices(tmp_path / "run.rank1.json") == ["step"]


def test_a_file_that_cannot_be_written_is_said_by_its_rank_and_by_rank_0(
    as_rank_0: AsRank0, tmp_path: Path
) -> None:
    said = state(tmp_path / "gone" / "x.json", error="No such file or directory")
    assert as_rank_0(said).missing == {1: "No such file or directory"}


def test_a_relative_path_without_a_folder_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        with pytest.raises(TraceError, match="the working directory is gone"):
            distributed.trace("run.json")
    finally:
        os.chdir(tmp_path)
