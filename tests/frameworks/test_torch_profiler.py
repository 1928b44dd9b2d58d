"""Scopes and annotations in the trace of `torch.profiler`, and beside it in gpuprof's own."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.support.processes import run_command, run_python
from tests.support.threads import in_threads
from tests.support.warm_torch import WarmTorch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

FORMS: list[Callable[..., Any]] = [gpuprof.timer, gpuprof.annotate]
form = pytest.mark.parametrize("form", FORMS, ids=["timer", "annotate"])
CATEGORY = "user_annotation"  # what torch files its record_function under


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def profile(torch: Any) -> Callable[..., Any]:
    """Make a profiler of the CPU."""

    def make(**options: Any) -> Any:
        return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)

    return make


def read(path: Path) -> dict[str, Any]:
    with path.open(encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def exported(prof: Any, path: Path) -> list[dict[str, Any]]:
    """Return the named spans of the profiler's Chrome trace, by when they began."""
    prof.export_chrome_trace(str(path))
    events = [e for e in read(path)["traceEvents"] if e.get("cat") == CATEGORY and e["ph"] == "X"]
    own = [e for e in events if not e["name"].startswith("ProfilerStep")]
    return sorted(own, key=lambda event: event["ts"])


def names(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["name"] for event in events]


def is_inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    return bool(
        outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    )


@form
def test_names_and_nesting_are_in_the_profilers_trace(
    form: Callable[..., Any], profile: Callable[..., Any], torch: Any, tmp_path: Path
) -> None:
    with profile() as prof:
        with form("outer"):
            with form("inner"):
                torch.ones(8).sum()
            with form("second"):
                pass

    outer, inner, second = exported(prof, tmp_path / "torch.json")
    assert names([outer, inner, second]) == ["outer", "inner", "second"]
    assert is_inside(inner, outer)
    assert is_inside(second, outer)
    assert inner["ts"] + inner["dur"] <= second["ts"]
    events = read(tmp_path / "torch.json")["traceEvents"]
    work = next(e for e in events if e["name"] == "aten::sum" and e["ph"] == "X")
    assert is_inside(work, inner)
    assert work["tid"] == inner["tid"]


@form
def test_the_profilers_events_know_who_is_inside_whom(
    form: Callable[..., Any], profile: Callable[..., Any], torch: Any
) -> None:
    with profile() as prof:
        with form("outer"), form("inner"):
            torch.ones(8)

    by_name = {event.name: event for event in prof.events()}
    assert by_name["inner"].cpu_parent.name == "outer"
    assert by_name["aten::ones"].cpu_parent.name == "inner"
    assert by_name["outer"].cpu_parent is None


def test_a_scope_and_an_annotation_of_one_name_nest(
    profile: Callable[..., Any], tmp_path: Path
) -> None:
    with profile() as prof:
        with gpuprof.timer("step"), gpuprof.annotate("step"), gpuprof.timer("step"):
            pass

    events = exported(prof, tmp_path / "torch.json")
    assert names(events) == ["step"] * 3
    assert is_inside(events[1], events[0])
    assert is_inside(events[2], events[1])
    assert list(gpuprof.stats()) == ["step", "step/step"]


@form
def test_decorated_functions_are_in_the_trace(
    form: Callable[..., Any], profile: Callable[..., Any], tmp_path: Path
) -> None:
    @form("work")
    def work() -> int:
        return 1

    @form("later")
    async def later() -> int:
        await asyncio.sleep(0)
        return 2

    with profile() as prof:
        assert work() + work() == 2
        assert asyncio.run(later()) == 2

    found = names(exported(prof, tmp_path / "torch.json"))
    assert found[:2] == ["work", "work"]
    assert set(found[2:]) <= {"later"}


@form
def test_nothing_is_recorded_while_the_profiler_is_off(
    form: Callable[..., Any], profile: Callable[..., Any], tmp_path: Path
) -> None:
    with form("before"):
        pass
    with profile() as prof:
        with form("during"):
            pass
    with form("after"):
        pass

    assert names(exported(prof, tmp_path / "torch.json")) == ["during"]


@form
def test_a_profiler_that_starts_or_stops_inside_the_block_harms_nothing(
    form: Callable[..., Any], profile: Callable[..., Any], tmp_path: Path
) -> None:
    first, second = profile(), profile()
    with form("open at the start"):
        first.start()
        with form("whole"):
            pass
    with form("open at the end"):
        first.stop()
    with second:
        with form("next"):
            pass

    found = names(exported(first, tmp_path / "first.json"))
    assert found[0] == "whole"
    assert set(found[1:]) <= {"open at the end"}
    assert names(exported(second, tmp_path / "second.json")) == ["next"]


@form
def test_only_the_active_steps_of_a_schedule_are_recorded(
    form: Callable[..., Any], profile: Callable[..., Any], torch: Any, tmp_path: Path
) -> None:
    written: list[list[str]] = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)

    def ready(prof: Any) -> None:
        written.append(names(exported(prof, tmp_path / "torch.json")))

    with profile(schedule=schedule, on_trace_ready=ready) as prof:
        for number in range(6):
            with form(f"step{number}"):
                torch.ones(2)
            prof.step()

    assert written == [["step2", "step3"]]


@form
def test_an_exception_closes_the_span_and_passes_unchanged(
    form: Callable[..., Any], profile: Callable[..., Any], tmp_path: Path
) -> None:
    error = ValueError("the body's")
    with profile() as prof:
        with form("around"):
            with pytest.raises(ValueError, match="the body's") as caught:
                with form("fails"):
                    raise error
            with form("next"):
                pass

    assert caught.value is error
    around, fails, after = exported(prof, tmp_path / "torch.json")
    assert names([around, fails, after]) == ["around", "fails", "next"]
    assert is_inside(after, around)
    assert fails["ts"] + fails["dur"] <= after["ts"]


@form
def test_threads_have_tracks_of_their_own(
    form: Callable[..., Any], profile: Callable[..., Any], torch: Any, tmp_path: Path
) -> None:
    barrier = threading.Barrier(2)

    def work(name: str) -> None:
        with form(name):
            barrier.wait()  # both are open at once

    everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with profile(experimental_config=everywhere) as prof:
        in_threads(lambda: work("left"), lambda: work("right"))
        with form("main"):
            pass

    tracks = {e["name"]: e["tid"] for e in exported(prof, tmp_path / "torch.json")}
    assert sorted(tracks) == ["left", "main", "right"]
    assert tracks["main"] == threading.get_native_id()
    assert len(set(tracks.values())) == 3


@form
def test_threads_that_the_profiler_does_not_watch_are_left_alone(
    form: Callable[..., Any], profile: Callable[..., Any], tmp_path: Path
) -> None:
    done = []

    def work() -> None:
        with form("unwatched"):
            done.append(True)

    with profile() as prof:
        in_threads(work)
        with form("main"):
            pass

    assert done
    assert names(exported(prof, tmp_path / "torch.json")) == ["main"]


def test_a_disabled_scope_is_not_in_the_trace(profile: Callable[..., Any], tmp_path: Path) -> None:
    with profile() as prof:
        with gpuprof.timer("off", enabled=False), gpuprof.timer("on"):
            pass

    assert names(exported(prof, tmp_path / "torch.json")) == ["on"]


@pytest.mark.filterwarnings("ignore:gpuprof:RuntimeWarning")
@pytest.mark.parametrize("name", ["\ud800", "a\0b", 'a "quoted" \\', "ü🚀", "a\nb", "x" * 100_000])
def test_a_name_that_torch_does_not_take_harms_nobody(
    name: str, profile: Callable[..., Any], tmp_path: Path
) -> None:
    with profile() as prof:
        with gpuprof.annotate(name), gpuprof.timer(name) as sample:
            pass
        with gpuprof.annotate("plain"):
            pass

    assert sample.ms > 0
    assert "plain" in [event.name for event in prof.events()]


FIRST_SPANS = """
with torch.profiler.profile() as prof:
    with gpuprof.timer("scope"):
        pass
    with gpuprof.annotate("note"):
        pass
print(sorted(event.name for event in prof.events()))
"""
ORDERS = {
    "gpuprof before torch": "import gpuprof\nimport torch",
    "scopes before torch": (
        "import gpuprof\ngpuprof.timer('scope'); gpuprof.annotate('note')\nimport torch"
    ),
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_first_span_is_in_the_trace_where_torch_comes_later(order: str, torch: Any) -> None:
    done = run_python(ORDERS[order] + FIRST_SPANS)
    assert done.stdout == "['note', 'scope']\n", done.stderr


def test_the_first_span_is_in_the_trace_where_torch_was_there(warm_torch: WarmTorch) -> None:
    done = warm_torch.run("-c", "import torch\nimport gpuprof" + FIRST_SPANS)
    assert done.stdout == "['note', 'scope']\n", done.stderr


# --- beside gpuprof's own trace --------------------------------------------------------------


@pytest.fixture
def both_traces(profile: Callable[..., Any], tmp_path: Path) -> tuple[Path, Path]:
    """Write the same twenty spans to a trace of gpuprof's and to one of torch's."""
    ours, theirs = tmp_path / "gpuprof.json", tmp_path / "torch.json"
    with profile() as prof, gpuprof.trace(ours):
        for number in range(20):
            with gpuprof.annotate(f"span{number}"):
                time.sleep(0.001)
    prof.export_chrome_trace(str(theirs))
    return ours, theirs


def spans(trace: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Return (begin, end) of the slices called span0 to span19, in microseconds."""
    found: dict[str, list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["name"].startswith("span"):
            found.setdefault(event["name"], []).append((event["ts"], event["ts"] + event["dur"]))
    return found


def assert_they_line_up(pairs: Iterable[list[tuple[float, float]]]) -> None:
    # An offset of the clocks moves all of them; the best of them is not touched by a busy machine.
    pairs = list(pairs)
    assert len(pairs) == 20
    assert all(len(pair) == 2 for pair in pairs)
    for edge in (0, 1):
        assert min(abs(first[edge] - second[edge]) for first, second in pairs) < 100


def test_gpuprofs_trace_and_torchs_have_one_clock(both_traces: tuple[Path, Path]) -> None:
    ours, theirs = (read(path) for path in both_traces)
    shift = (int(ours["baseTimeNanoseconds"]) - int(theirs["baseTimeNanoseconds"])) / 1000
    moved = {
        name: [(begin + shift, end + shift) for begin, end in found]
        for name, found in spans(ours).items()
    }
    assert_they_line_up([*moved[name], *found] for name, found in spans(theirs).items())


def test_merged_they_line_up(both_traces: tuple[Path, Path], tmp_path: Path) -> None:
    merged = tmp_path / "merged.json"
    command = (sys.executable, "-m", "gpuprof", "trace", "merge", *both_traces, "-o", merged)
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    assert_they_line_up(spans(read(merged)).values())
