"""Statistics and traces of Ray's actors: two actors on the CPU, in a cluster of the test's own."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import check_python, run_python
from tests.support.trace_events import events

# Ray's own warnings, and what it says of a dead actor, go to standard output or are switched off.
PROGRAM = """
import os, sys, time, json, logging, threading
from pathlib import Path
import gpuprof, ray
from gpuprof.integrations.ray import gather_stats, trace

sys.path.insert(0, os.getcwd())
folder = Path({folder!r})
facts = {{}}

@ray.remote
class Worker:
    def __init__(self, seconds):
        self.seconds = seconds

    def step(self):
        with gpuprof.timer("step", backend="cpu"):
            time.sleep(self.seconds)
        return os.getpid()

    def sleep(self):
        time.sleep(60)

    def die(self, seconds):
        time.sleep(seconds)  # longer than the writer's thread waits
        os._exit(1)

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="critical")
workers = [Worker.remote(0.0), Worker.remote(0.02)]
try:
    with trace(workers, folder / "run.json") as merged:
        pids = ray.get([worker.step.remote() for worker in workers for _ in range(5)])
    facts["pids"] = sorted(set(pids))
    facts["merged"] = merged[0].to_dict()
    ranks = gather_stats(workers)
    facts["ranks"] = {{rank: ranks["step"][rank].count for rank in ranks["step"]}}
    facts["slowest"] = ranks.slowest_rank
    both = ranks.stats(0).merge(ranks.stats(1))
    facts["both"] = both["step"].time.count

    class Own(Exception):
        pass

    try:
        with trace(workers, folder / "failed.json") as merged:
            raise Own
    except Own:
        facts["failed"] = merged[0].to_dict()

    import warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with trace(workers, folder / "killed.json") as merged:
            ray.get([worker.step.remote() for worker in workers for _ in range(5)])
            try:
                ray.get(workers[1].die.remote({seconds}))
            except ray.exceptions.RayActorError:
                pass
        facts["killed"] = merged[0].to_dict()
        facts["warnings"] = [
            (str(each.message), each.filename == "<string>")  # this program, and not contextlib
            for each in caught if "gpuprof" in str(each.message)
        ]
    facts["of the dead"] = gather_stats(workers).left_out

    workers[0].sleep.remote()
    facts["busy"] = gather_stats(workers[:1], timeout_s=0.5).missing
finally:
    ray.shutdown()
(folder / "facts.json").write_text(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one program with two actors has found; a cluster takes seconds to start."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    folder = tmp_path_factory.mktemp("ray")
    done = run_python(
        PROGRAM.format(folder=str(folder), seconds=1.0),
        timeout=120,
        RAY_AUTH_MODE="disabled",
        RAY_USAGE_STATS_ENABLED="0",
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    return {**found, "folder": folder}


def slices(path: Path) -> list[tuple[int, str]]:
    """Return the process and name of each slice of a trace."""
    return [(event["pid"], event["name"]) for event in events(path)]


def test_the_traces_of_all_actors_are_merged_on_one_clock(facts: dict[str, Any]) -> None:
    merged = facts["merged"]
    assert (merged["ranks"], merged["missing"], merged["cut"]) == ([0, 1], {}, {})
    assert merged["clock_error_ms"] == {"0": 0.0, "1": 0.0}
    found = slices(facts["folder"] / "run.json")
    assert len(facts["pids"]) == 2
    assert sorted(found) == sorted((pid, "step") for pid in facts["pids"] for _ in range(5))
    assert {path.name for path in facts["folder"].glob("run*")} == {
        "run.json",
        "run.rank0.json",
        "run.rank1.json",
    }


def test_the_statistics_of_all_actors_are_one_table(facts: dict[str, Any]) -> None:
    assert facts["ranks"] == {"0": 5, "1": 5}
    assert facts["slowest"] == 1
    assert facts["both"] == 10


def test_a_block_that_raises_leaves_whole_files(facts: dict[str, Any]) -> None:
    assert (facts["failed"]["ranks"], facts["failed"]["missing"]) == ([0, 1], {})
    assert slices(facts["folder"] / "failed.json") == []


def test_an_actor_that_is_killed_is_named_and_what_it_wrote_is_kept(facts: dict[str, Any]) -> None:
    killed = facts["killed"]
    assert (killed["ranks"], killed["missing"]) == ([0, 1], {})
    assert "it never closed its file" in killed["cut"]["1"]
    found = slices(facts["folder"] / "killed.json")
    assert len(found) == 10
    assert len({pid for pid, _ in found}) == 2
    ((warning, is_the_callers),) = facts["warnings"]
    assert "rank 1 is cut off" in warning
    assert is_the_callers
    assert "ActorDiedError" in facts["of the dead"]["1"]


def test_an_actor_that_is_busy_is_missing_after_the_timeout(facts: dict[str, Any]) -> None:
    assert facts["busy"] == [0]


@pytest.mark.parametrize("actors", ["[]", "[7]", "7"])
def test_what_is_no_actor_is_refused_before_ray_is_imported(actors: str) -> None:
    check_python(f"""
import sys
import pytest
from gpuprof.integrations.ray import gather_stats, trace

with pytest.raises(TypeError, match="expected a list with the handles of Ray actors, got"):
    gather_stats({actors})
with pytest.raises(TypeError, match="expected a list with the handles of Ray actors, got"):
    with trace({actors}, "run.json"):
        pass
assert "ray" not in sys.modules
""")


def test_wrong_options_are_errors_of_the_call() -> None:
    check_python("""
import pytest
from gpuprof.integrations.ray import gather_stats, trace

class Actor:
    __ray_call__ = None

for options, error, text in (
    ({"timeout_s": -1}, ValueError, "timeout_s: expected a number from 0 to 86400, got -1"),
    ({"timeout_s": "x"}, TypeError, "timeout_s: expected a number from 0 to 86400, got 'x'"),
    ({"path": 5}, TypeError, "path: .*5|int"),
    ({"path": "%z.json"}, ValueError, "%z"),
):
    with pytest.raises(error, match=text):
        with trace([Actor()], **{"path": "run.json", **options}):
            raise AssertionError
with pytest.raises(ValueError, match="timeout_s"):
    gather_stats([Actor()], timeout_s=-1)
""")
