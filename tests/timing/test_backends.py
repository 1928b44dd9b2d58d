"""Clocks that are not CUDA's: SyncBackend, Metal through a stand-in, and how a clock is named."""

from __future__ import annotations

import copy
import pickle
import sys
import types
import warnings
from typing import Any
from unittest.mock import MagicMock

import pytest

import gpuprof
from gpuprof.errors import GpuprofError
from tests.support.ids import short
from tests.support.scopes import Device


def wait_for_nothing() -> None:
    """Stand for a device that is always done; a module's function, so that it pickles."""


# SyncBackend


def test_a_sync_backend_is_waited_for_before_and_after_the_body() -> None:
    device = Device()
    with gpuprof.timer("step", backend=gpuprof.SyncBackend("tpu", device.synchronize)) as sample:
        device.log.append("body")
    assert device.log == ["wait", "body", "wait"]
    assert (sample.clock, sample.state) == ("tpu", "done")
    assert sample.ms == sample.host_ms > 0.0


def test_the_wait_after_the_body_is_inside_the_time_and_the_one_before_is_not() -> None:
    waits: list[gpuprof.Sample] = []

    def synchronize() -> None:
        with gpuprof.timer(backend="cpu") as wait:
            sum(range(50_000))
        waits.append(wait)

    with gpuprof.timer(backend="cpu") as whole:
        with gpuprof.timer("step", backend=gpuprof.SyncBackend("slow", synchronize)) as sample:
            pass
    before, after = waits
    assert after.ms <= sample.ms <= whole.ms - before.ms


def test_a_sync_backends_rows_are_apart_from_other_clocks_of_the_path() -> None:
    with gpuprof.timer("step", backend=gpuprof.SyncBackend("tpu", wait_for_nothing)):
        pass
    for _ in range(2):
        with gpuprof.timer("step", backend="cpu"):
            pass
    stats = gpuprof.stats()
    assert set(stats) == {("step", "tpu"), ("step", "cpu")}
    assert (stats["step", "tpu"].time.count, stats["step", "cpu"].time.count) == (1, 2)
    assert stats["step"].gpu.count == 0


def test_scopes_of_different_clocks_nest() -> None:
    tpu = gpuprof.SyncBackend("tpu", wait_for_nothing)
    with gpuprof.timer("a", backend="cpu"), gpuprof.timer("b", backend=tpu) as sample:
        pass
    assert sample.path == "a/b"


def test_a_sync_backend_is_not_waited_for_while_timing_is_off() -> None:
    device = Device()
    gpuprof.disable()
    with gpuprof.timer("step", backend=gpuprof.SyncBackend("tpu", device.synchronize)):
        pass
    assert device.log == []


@pytest.mark.parametrize("fails_at", ["enter", "exit", "both"])
def test_a_backend_that_fails_is_said_once_and_leaves_the_body_alone(fails_at: str) -> None:
    device, ran = Device(), []
    scope = gpuprof.timer("step", backend=gpuprof.SyncBackend("tpu", device.synchronize))
    samples = []
    with pytest.warns(RuntimeWarning, match="synchronize raised.*device lost") as said:
        for _ in range(3):
            device.error = OSError("device lost") if fails_at != "exit" else None
            with scope as sample:
                device.error = OSError("device lost") if fails_at != "enter" else None
                ran.append(True)
            samples.append(sample)
    assert len(said) == 1
    assert len(ran) == 3
    for sample in samples:
        assert (sample.state, sample.failed, sample.ready) == ("failed", True, False)
        assert sample.try_ms() is None
        with pytest.raises(GpuprofError, match="could not be measured"):
            _ = sample.ms
    row = gpuprof.stats()["step"]
    assert (row.failed, row.time.count) == (3, 0)


def test_the_bodys_exception_wins_over_the_backends() -> None:
    device, raised = Device(), ValueError("body")
    device.error = OSError("device lost")
    with (
        pytest.warns(RuntimeWarning, match="device lost"),
        pytest.raises(ValueError, match="body") as caught,
        gpuprof.timer("step", backend=gpuprof.SyncBackend("tpu", device.synchronize)),
    ):
        raise raised
    assert caught.value is raised
    assert raised.__context__ is None


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("at", ["enter", "exit"])
def test_an_interrupt_while_waiting_comes_out(at: str, interrupt: type[BaseException]) -> None:
    device, raised = Device(), interrupt()
    scope = gpuprof.timer("step", backend=gpuprof.SyncBackend("tpu", device.synchronize))
    device.error = raised if at == "enter" else None
    with pytest.raises(interrupt) as caught, scope:
        device.error = raised
    assert caught.value is raised
    assert at == "enter" or scope.last.failed
    with gpuprof.timer("after", backend="cpu") as after:
        pass
    assert after.path == "after"


def test_a_warning_that_is_an_error_does_not_reach_the_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_value))
    device = Device()
    device.error = OSError("device lost")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gpuprof.timer("step", backend=gpuprof.SyncBackend("tpu", device.synchronize)):
            pass
    assert [type(error) for error in reported] == [RuntimeWarning]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((3, wait_for_nothing), TypeError, "name: expected a non-empty str, got 3"),
        (("", wait_for_nothing), ValueError, "name: expected a non-empty str, got ''"),
        (("cuda", wait_for_nothing), ValueError, "name: .*got 'cuda'"),
        (("cpu", wait_for_nothing), ValueError, "name: .*got 'cpu'"),
        (("auto", wait_for_nothing), ValueError, "name: .*got 'auto'"),
        (("tpu", None), TypeError, "synchronize: expected a callable, got None"),
    ],
    ids=short,
)
def test_a_wrong_sync_backend_names_the_argument(
    arguments: tuple[Any, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        gpuprof.SyncBackend(*arguments)


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "🔥"], ids=ascii)
def test_any_text_may_name_a_sync_backend(name: str) -> None:
    backend = gpuprof.SyncBackend(name, wait_for_nothing)
    with gpuprof.timer("step", backend=backend) as sample:
        pass
    assert sample.clock == name.replace("\0", "\ufffd").replace("\ud800", "\ufffd")
    assert len(gpuprof.stats()) == 1


def test_scopes_with_a_sync_backend_pickle_if_it_does() -> None:
    scope = gpuprof.timer("step", backend=gpuprof.SyncBackend("tpu", wait_for_nothing))
    for twin in (pickle.loads(pickle.dumps(scope)), copy.deepcopy(scope)):
        with twin as sample:
            pass
        assert (sample.path, sample.clock) == ("step", "tpu")


# Metal, by a stand-in for torch


def stand_in_torch(device: Device, available: bool) -> types.ModuleType:
    torch = types.ModuleType("torch")
    mps = types.SimpleNamespace(synchronize=device.synchronize)
    seen = types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: available))
    torch.mps, torch.backends = mps, seen  # type: ignore[attr-defined]
    return torch


@pytest.fixture
def metal(monkeypatch: pytest.MonkeyPatch) -> Device:
    """Metal as torch shows it, on any machine."""
    device = Device()
    monkeypatch.setitem(sys.modules, "torch", stand_in_torch(device, available=True))
    return device


def test_metal_is_waited_for_before_and_after_the_body(metal: Device) -> None:
    with gpuprof.timer("step", backend="metal") as sample:
        metal.log.append("body")
    assert metal.log == ["wait", "body", "wait"]
    assert (sample.clock, sample.state) == ("metal", "done")
    assert gpuprof.backends()["metal"] == gpuprof.Backend(True, "torch.mps")


def test_a_timer_and_a_probe_work_on_metal(metal: Device) -> None:
    with gpuprof.Timer("metal") as timer:
        pass
    assert (timer.clock, timer.ready) == ("metal", True)
    probe = gpuprof.start_probe_timer_if(True, backend="metal")
    assert gpuprof.finish_probe_timer(probe) is not None
    assert metal.log == ["wait"] * 4


def test_metal_says_that_torch_has_no_such_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", stand_in_torch(Device(), available=False))
    with pytest.raises(
        GpuprofError, match=r"'metal' is not available: .*is_available\(\) is False"
    ):
        gpuprof.timer("step", backend="metal")


class RaisingModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} is not there")


@pytest.mark.parametrize("stub", [types.ModuleType("torch"), MagicMock(), RaisingModule("torch")])
def test_backends_are_told_where_torch_is_a_stub(
    monkeypatch: pytest.MonkeyPatch, stub: Any
) -> None:
    monkeypatch.setitem(sys.modules, "torch", stub)
    assert gpuprof.backends()["metal"].available is False
    with pytest.raises(GpuprofError, match="'metal' is not available: torch"):
        gpuprof.timer("step", backend="metal")


def test_metal_says_that_it_needs_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for make in (gpuprof.timer, gpuprof.Timer):
        with pytest.raises(GpuprofError, match="'metal' is not available: Metal needs macOS"):
            make(backend="metal")
    assert gpuprof.backends()["metal"].available is False


def test_metal_says_that_torch_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(GpuprofError, match="torch is not installed"):
        gpuprof.timer("step", backend="metal")


# Choosing a clock


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *(("cdua", "cuda"), ("cpus", "cpu"), ("Metal", "metal")),
        *(("gpu", "cuda"), ("GPU", "cuda"), ("host", "cpu"), ("mps", "metal")),
    ],
)
def test_another_word_for_a_backend_gets_a_hint(given: Any, meant: str) -> None:
    with pytest.raises(ValueError, match=f"got '{given}'; did you mean '{meant}'"):
        gpuprof.timer("step", backend=given)


def test_an_unknown_backend_is_told_which_there_are() -> None:
    with pytest.raises(ValueError, match=r"expected one of .*'cuda', 'cpu', 'metal'.*got 'fwd'"):
        gpuprof.timer("step", backend="fwd")


@pytest.mark.parametrize("make", [gpuprof.timer, gpuprof.Timer], ids=["scope", "Timer"])
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        *((3, "3"), (None, "None"), (object(), "a object"), (b"cpu", "b'cpu'")),
        *((["cpu"], r"\['cpu'\]"), (gpuprof.SyncBackend, "the class gpuprof.Sync")),
    ],
    ids=short,
)
def test_a_backend_of_a_wrong_type_is_a_type_error(make: Any, given: Any, shown: str) -> None:
    with pytest.raises(TypeError, match=f"SyncBackend, got {shown}"):
        make(backend=given)


def test_the_cpu_clock_is_always_there() -> None:
    backends = gpuprof.backends()
    assert set(backends) == {"cuda", "cpu", "metal"}
    assert backends["cpu"].available is True
    assert all(backend.reason for backend in backends.values())
    with pytest.raises(TypeError):
        backends["cpu"] = gpuprof.Backend(False, "")  # type: ignore[index]
