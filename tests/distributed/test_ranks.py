"""Four processes of torch.distributed on Gloo: statistics, waiting in collectives, traces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.rank_pool import LIMIT_S, MONOTONIC_STEP_NS, SIZE, RankPool
from tests.support.trace_files import load

pytestmark = pytest.mark.torch
OTHERS = range(1, SIZE)


def test_rank_0_has_the_table_and_the_others_none(pool: RankPool) -> None:
    answers = pool.run("gather", 30.0)
    assert all(answers[rank]["table"] is None for rank in OTHERS)
    table = answers[0]["table"]
    assert (table["ranks"], table["missing"]) == ([*range(SIZE)], [])
    assert table["rows"][0]["by_rank"]["count"] == [1] * SIZE


def test_the_store_of_the_process_group_does_not_grow(pool: RankPool) -> None:
    assert set(pool.run("gather_often", 20).values()) == {0}


def test_a_group_has_its_table_on_its_first_rank(pool: RankPool) -> None:
    answers = pool.run("gather_in_group", [1, 3])
    assert (answers[1]["ranks"], answers[1]["missing"]) == ([1, 3], [])
    assert answers[3] is None
    assert all("is not in the group of the ranks 1, 3" in answers[rank] for rank in (0, 2))


def test_collectives_are_scopes_where_they_wait(pool: RankPool) -> None:
    for counts in pool.run("watched_collectives").values():
        inside = {path.removeprefix("step/collective/"): n for path, n in counts.items()}
        assert inside.pop("step") == 1
        assert inside == {
            "all_reduce": 3,  # one that waits itself, and two wait()
            "batch_isend_irecv": 2,
            "barrier": 1,
            "broadcast": 1,
            "all_gather": 1,
            "all_gather_object": 1,
        }


def test_they_are_watched_once_at_a_time(pool: RankPool) -> None:
    assert all("watched already" in said for said in pool.run("watched_twice").values())


def test_a_watch_that_fails_ends_itself_and_not_the_training(pool: RankPool) -> None:
    for closed, restored, has_gradients, said in pool.run("watch_that_fails").values():
        assert (closed, restored, has_gradients) == (True, True, True)
        assert ["has stopped watching collectives" in each for each in said] == [True]


def test_a_wrapper_that_somebody_has_wrapped_measures_no_more(pool: RankPool) -> None:
    assert set(pool.run("wrapped_once_more").values()) == {0}


@pytest.mark.parametrize("slow", [1, 3])
def test_the_rank_that_ddp_waits_for_is_named(pool: RankPool, slow: int) -> None:
    steps = 5
    answers = pool.run("train", slow, steps)
    for answer in answers.values():
        waits = {path: n for path, n in answer["paths"].items() if "collective" in path}
        # None of no_sync(), and one of a pass that comes to two results.
        assert waits == {"step/backward/collective/ddp": steps, "two results/collective/ddp": 1}
    table = answers[0]["table"]
    rows = {row["path"]: row for row in table["rows"]}
    assert table["slowest_rank"] == slow
    assert rows["step"]["slowest_rank"] == slow
    assert rows["step/backward/collective/ddp"]["slowest_rank"] == slow
    waiting = rows["step"]["by_rank"]["waiting_ms"]
    assert waiting.index(min(waiting)) == slow


def moments(path: Path) -> dict[int, list[tuple[float, float]]]:
    """Return by rank how far each mark is from its true time in ns, and how sure that is."""
    found: dict[int, list[tuple[float, float]]] = {}
    data = load(path)
    ranks = {
        event["pid"]: int(event["args"]["name"].rpartition("rank ")[2].rstrip(")"))
        for event in data["traceEvents"]
        if event["ph"] == "M" and event["name"] == "process_name"
    }
    for event in data["traceEvents"]:
        if event["name"] == "mark":
            args = event["args"]
            off = event["ts"] * 1000 - args["true_ns"]
            found.setdefault(ranks[event["pid"]], []).append((off, args["within_ns"]))
    return found


def assert_valid(path: Path) -> None:
    command = [sys.executable, "-m", "gpuprof", "trace", "validate", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_clocks_that_are_shifted_are_merged_to_the_stated_error(
    pool: RankPool, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    answers = pool.run("traced", str(path), 30.0, 5)
    result = answers[0]["result"]
    assert (result["ranks"], result["missing"], result["cut"]) == ([*range(SIZE)], {}, {})
    assert [answers[rank]["warnings"] for rank in range(SIZE)] == [[]] * SIZE
    errors = {int(rank): ms * 1e6 for rank, ms in result["clock_error_ms"].items()}
    assert errors[0] == 0.0
    assert all(0.0 < errors[rank] < MONOTONIC_STEP_NS / 2 for rank in OTHERS)  # or it says nothing
    assert_valid(path)
    found = moments(path)
    zero = found[0][0][0]
    for rank in range(SIZE):
        assert len(found[rank]) == 5
        for off, within in found[rank]:
            assert abs(off - zero) <= errors[rank] + within + found[0][0][1] + 1000, rank
    # Each file is good on its own, and on its own clock.
    for rank in range(SIZE):
        file = tmp_path / name.replace("run", f"run.rank{rank}")
        assert answers[rank]["path"] == str(file)
        assert [event["name"] for event in load(file)["traceEvents"]].count("step") == 5


def test_files_can_be_merged_later_by_what_is_in_them(pool: RankPool, tmp_path: Path) -> None:
    pattern = tmp_path / "part-%r.json"
    answers = pool.run("traced", str(pattern), 30.0, 1, False)
    assert {rank: answer["result"] for rank, answer in answers.items()} == dict.fromkeys(
        range(SIZE)
    )
    files = [tmp_path / f"part-{rank}.json" for rank in range(SIZE)]
    assert sorted(tmp_path.iterdir()) == files
    merged = tmp_path / "later.json"
    command = [sys.executable, "-m", "gpuprof", "trace", "merge", *files, "-o", merged]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("clock measured to within") == SIZE
    zero = moments(merged)[0][0][0]
    assert all(abs(off[0][0] - zero) < MONOTONIC_STEP_NS / 2 for off in moments(merged).values())


def test_a_group_has_its_trace_on_its_first_rank(pool: RankPool, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    answers = pool.run("traced_in_group", str(path), [1, 3])
    assert (answers[1]["ranks"], answers[1]["missing"], answers[3]) == ([1, 3], {}, None)
    assert {source["rank"] for source in load(path)["mergedFrom"]} == {1, 3}
    assert {each.name for each in tmp_path.iterdir()} == {
        "run.json",
        "run.rank1.json",
        "run.rank3.json",
    }


@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_ends_the_trace_of_its_rank_and_no_other(
    pool: RankPool, tmp_path: Path, rank: int
) -> None:
    said = pool.run("trace_that_raises", str(tmp_path / "run.json"), rank)
    assert said.pop(rank) == repr("the body's own")
    assert set(said.values()) == {""}
    assert {source["rank"] for source in load(tmp_path / "run.json")["mergedFrom"]} == {0, 1, 2, 3}


def test_a_rank_whose_file_is_on_another_host_is_left_out_and_named(
    pool: RankPool, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    pool.run("open_trace", str(path), 30.0)
    answers = pool.run("close_trace_elsewhere", 2)
    result = answers[0]["result"]
    assert (result["ranks"], [*result["missing"]]) == ([0, 1, 3], ["2"])
    assert "its file is not here, but on another" in result["missing"]["2"]
    assert any("rank 2 is missing" in said for said in answers[0]["warnings"])


def test_a_rank_that_comes_too_late_does_not_wait_and_keeps_its_file(
    pool: RankPool, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    result = pool.run("traced", str(path), 1.5, 1, ranks=[0, 1, 2])[0]["result"]
    assert (result["ranks"], [*result["missing"]]) == ([0, 1, 2], ["3"])
    assert result["missing"]["3"] == "it said nothing of its file"
    late = pool.run("traced", str(path), LIMIT_S, 1, ranks=[3])[3]  # or the pool gives up
    assert late["result"] is None
    assert any("rank 0 has gone on without it" in said for said in late["warnings"])
    assert "step" in {event["name"] for event in load(Path(late["path"]))["traceEvents"]}


def test_a_rank_that_is_killed_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    with RankPool(tmp_path) as pool:
        path = tmp_path / "run.json"
        files = pool.run("open_trace", str(path), 2.0)
        pool.kill(2)
        left = [0, 1, 3]
        answers: dict[int, Any] = pool.run("gather", 5.0, ranks=left)
        table = answers[0]["table"]
        assert (table["ranks"], table["missing"]) == (left, [2])
        assert answers[0]["seconds"] < 10.0
        closed = pool.run("close_trace", ranks=left)
        result = closed[0]["result"]
        assert (result["ranks"], result["missing"]) == ([0, 1, 2, 3], {})
        assert "it never closed its file" in result["cut"]["2"]
        assert any("rank 2 is cut off" in said for said in closed[0]["warnings"])
        assert [event["name"] for event in load(path)["traceEvents"]].count("step") == SIZE + len(
            left
        )
        assert Path(f"{files[2]}.part").exists()
