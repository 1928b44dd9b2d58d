"""`gpuprof.compat.ScopedTimer` at its edges, and what it adds to gpuprof's statistics."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

import gpuprof
from gpuprof.compat import ScopedTimer
from tests.fake_driver.control import FakeCuda

MS = 1_000_000


def test_a_timer_is_a_scope_with_the_gpus_time(
    fake: FakeCuda, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScopedTimer("step") as timer:
        fake.work(0, 3 * MS)
    assert capsys.readouterr().out.startswith("step took ")
    assert timer.sample is not None
    assert timer.sample.ms == pytest.approx(3, abs=0.01)
    assert gpuprof.stats()["step"].gpu.count == 1


def test_synchronize_waits_for_the_gpu_before_and_after(fake: FakeCuda) -> None:
    before = fake.calls("cuCtxSynchronize")
    with ScopedTimer("step", synchronize=True, print=False):
        fake.work(0, MS)
    assert fake.calls("cuCtxSynchronize") - before == 2


def test_without_cuda_synchronize_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ScopedTimer("step", synchronize=True):
        pass
    assert capsys.readouterr().out.startswith("step took ")


def test_a_failed_wait_is_raised_unless_the_block_raised(fake: FakeCuda) -> None:
    with pytest.raises(gpuprof.errors.CudaError):
        with ScopedTimer("step", print=False) as timer:
            timer.synchronize = True  # only at the end
            fake.script("cuCtxSynchronize@1=400")
    with pytest.raises(KeyError, match="mine"):
        with ScopedTimer("step", print=False) as timer:
            timer.synchronize = True
            fake.script("cuCtxSynchronize@1=400")
            raise KeyError("mine")


def test_an_inactive_timer_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ScopedTimer("step", active=False) as timer:
        pass
    assert (timer.elapsed, timer.sample, capsys.readouterr().out) == (0.0, None, "")
    assert "step" not in gpuprof.stats()


def test_all_timers_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ScopedTimer, "enabled", False)
    with ScopedTimer("step"):
        pass
    assert capsys.readouterr().out == ""


def test_detailed_prints_the_functions_that_ran(capsys: pytest.CaptureFixture[str]) -> None:
    def inner() -> int:
        return sum(range(100))

    with ScopedTimer("step", detailed=True):
        inner()
    out = capsys.readouterr().out
    assert "function calls" in out
    assert "(inner)" in out


def test_times_are_appended_to_a_list_that_is_there() -> None:
    times = {"step": [1.0]}
    with ScopedTimer("step", dict=times, print=False) as timer:
        pass
    assert times == {"step": [1.0, timer.elapsed]}


def test_a_name_may_be_empty_or_hold_a_slash(capsys: pytest.CaptureFixture[str]) -> None:
    with ScopedTimer(""), ScopedTimer("a/b"):
        pass
    assert capsys.readouterr().out.splitlines()[0].startswith("    a/b took ")
    assert [row.names for row in gpuprof.stats().values()] == [("a/b",)]


def test_activities_are_refused_with_what_shows_them() -> None:
    given: dict[str, Any] = {"cuda_filter": 1}
    with pytest.raises(ValueError, match=r"cuda_filter: expected 0, got 1.*gpuprof.kernels\(\)"):
        ScopedTimer("step", **given)
    ScopedTimer("step", cuda_filter=0, report_func=print, skip_tape=True)


def test_threads_indent_on_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        with ScopedTimer("inner"):
            pass

    with ScopedTimer("outer"):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert [line.split(" took")[0] for line in capsys.readouterr().out.splitlines()] == [
        "inner",
        "outer",
    ]


def test_a_timer_that_is_entered_again_closes_each_of_its_scopes() -> None:
    timer = ScopedTimer("again", print=False)
    with timer, timer:
        pass
    with gpuprof.timer("after"):
        pass
    assert set(gpuprof.stats()) == {"again", "again/again", "after"}


def test_a_wrong_colour_leaves_no_profiler_behind() -> None:
    before = sys.getprofile()
    with pytest.raises((TypeError, ValueError), match="color: 'nope'"):
        with ScopedTimer("step", detailed=True, use_nvtx=True, color="nope"):
            pass
    assert sys.getprofile() is before
    assert "step" not in gpuprof.stats()
