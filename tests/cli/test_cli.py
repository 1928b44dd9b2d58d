"""The command: what it prints and how it ends, each in a process of its own."""

from __future__ import annotations

import gzip
import json
import platform
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import gpuprof
from tests.cli.conftest import Call
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_python, environment

COLUMNS = ["scope", "GPU p50", "host p50", "count", "total", "self", "% parent", "first call"]


@pytest.fixture
def no_driver(tmp_path: Path) -> Path:
    """A driver that cannot be opened, also on a machine that has one."""
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(b"")
    path.chmod(0o600)
    return path


def command(*arguments: str, driver: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuprof", *arguments],
        env=environment(driver, **variables),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def output(*arguments: str, driver: Path, **variables: str) -> str:
    done = command(*arguments, driver=driver, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def figures(table: str) -> dict[str, list[str]]:
    """The words behind each scope's name."""
    return {words[0]: words[1:] for line in table.splitlines() if (words := line.split())}


def entries(info: str) -> dict[str, str]:
    """The lines of ``gpuprof info`` by their labels."""
    return dict(re.split("  +", line, maxsplit=1) for line in info.splitlines())


def test_the_demo_without_a_driver_times_the_cpu_and_says_why(no_driver: Path) -> None:
    text = output("demo", "--steps", "2", driver=no_driver)
    first, title, header = text.splitlines()[:3]
    assert first.startswith("CPU clock: ")
    assert str(no_driver) in first
    assert "no GPU time was measured" in title
    assert [column for column in COLUMNS if column not in header] == ["GPU p50"]
    found = figures(text)
    assert list(found)[4:8] == ["step", "tokenise", "count", "sort"]
    *_, cost, following = text.splitlines()
    assert "ns of host time on the cpu clock" in cost
    assert following.startswith("next: ")


def test_the_demo_on_a_driver_times_the_gpu(fake_path: Path) -> None:
    text = output("demo", "--steps", "3", driver=fake_path)
    first, title, *_ = text.splitlines()
    assert first.startswith("GPU clock: Fake GPU, driver for CUDA ")
    assert str(fake_path) in first
    assert title == "clock: cuda (GPU time, from events in the stream)"
    found = figures(text)
    # The fake driver writes 64 bytes a nanosecond, and 1.28 µs lie between two records.
    assert found["load"][:2] == ["132", "µs"]
    assert found["compute"][:2] == ["1.05", "ms"]
    assert found["store"][:2] == ["34.0", "µs"]
    assert found["step"][4] == "3"
    assert "ns of host time on the cuda clock" in text
    assert "dropped" not in text


@pytest.mark.torch
def test_the_demo_with_torch_times_a_training_step(fake_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    shutil.copy(fake_path, tmp_path / "libcuda.so.1")  # a driver named as such is not torch's
    code = """
        warnings.simplefilter("ignore")
        import torch
        # The CPU's build of torch does the work here; what counts is which scopes are around it.
        torch.nn.Module.cuda = torch.Tensor.cuda = lambda self: self
        torch.cuda.is_available = lambda: True
        from tests.support.benchmark_results import command
        command("demo", "--steps", "1")
    """
    text = check_python(code, LD_LIBRARY_PATH=str(tmp_path))
    assert "work by torch" in text
    assert list(figures(text))[4:8] == ["step", "forward", "backward", "optimizer"]


def test_the_demo_with_timing_off_fails_and_says_so(no_driver: Path) -> None:
    done = command("demo", "--steps", "1", driver=no_driver, GPUPROF_DISABLE="1")
    assert done.returncode == 1
    assert "GPUPROF_DISABLE" in done.stdout


def test_the_demo_leaves_no_statistics(call: Call) -> None:
    code, out, _ = call("demo", "--steps", "1")
    assert (code, out != "") == (0, True)
    assert len(gpuprof.stats()) == 0


def test_info_says_why_there_is_no_gpu(no_driver: Path) -> None:
    found = entries(output("info", driver=no_driver))
    assert found["devices"] == "none"
    assert "available: no; reason: " in found["driver"]
    assert f"; tried: {no_driver}; " in found["driver"]
    assert found["backends cpu"].startswith("available: yes; ")
    assert found["backends cuda"].startswith("available: no; ")


def test_info_names_driver_and_device(fake_path: Path) -> None:
    found = json.loads(output("info", "--format", "json", driver=fake_path))
    assert found["driver"]["available"] is True
    assert found["driver"]["path"] == found["driver"]["override"] == str(fake_path)
    assert found["driver"]["version"] == 13000
    assert found["devices"][0]["name"] == "Fake GPU"
    text = output("info", driver=fake_path)
    assert f"override: {fake_path}; " in text
    assert "Fake GPU" in text


def test_info_as_json_has_every_section(no_driver: Path) -> None:
    found = json.loads(output("info", "--format", "json", driver=no_driver))
    assert found["format"] == "gpuprof-info"
    assert found["version"] == 1
    assert found["gpuprof"]["version"] == gpuprof.__version__
    assert found["devices"] == []
    assert set(found["backends"]) == {"cuda", "cpu", "metal"}
    assert set(found["frameworks"]) == {"torch", "cupy"}
    assert found["environment"]["GPUPROF_CUDA_DRIVER"] == str(no_driver)


def test_info_repeats_the_drivers_warning(tmp_path: Path) -> None:
    shared = tmp_path / "libcuda.so"
    shared.write_bytes(b"")
    shared.chmod(0o666)
    text = output("info", driver=shared)
    assert "others than its owner can write it" in text


def test_info_shows_the_other_sections_where_one_fails(
    monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    def fail() -> None:
        message = "no luck"
        raise RuntimeError(message)

    monkeypatch.setattr("gpuprof._core.driver_info", fail)
    found = entries(call("info")[1])
    assert found["driver"] == "unknown: RuntimeError: no luck"
    assert found["python"].startswith(f"version: {platform.python_version()}; ")


class FakeNvml(types.ModuleType):
    """As much of ``pynvml`` as is asked, for one device."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.is_open = 0
        self.known = "GPU-"

    def nvmlInit(self) -> None:
        self.is_open += 1

    def nvmlShutdown(self) -> None:
        self.is_open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.159"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if not uuid.startswith(self.known):
            raise self.NVMLError
        return uuid

    def nvmlDeviceGetName(self, _handle: str) -> str:
        return "A GPU"

    def nvmlDeviceGetClockInfo(self, _handle: str, which: int) -> int:
        return 1500 * which

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _handle: str) -> int:
        return 0x4 | 0x1000

    def nvmlDeviceGetMigMode(self, _handle: str) -> list[int]:
        raise self.NVMLError


def test_clocks_come_from_nvml_where_it_is_there(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert json.loads(call("info", "--format", "json")[1])["nvml"] == {
        "available": True,
        "driver_release": "580.159",
        "devices": [
            {
                "index": 0,
                "name": "A GPU",
                "sm_mhz": 1500,
                "sm_max_mhz": None,
                "memory_mhz": 3000,
                "clock_reasons": ["software power cap", "0x1000"],
                "mig": None,
            }
        ],
    }
    assert nvml.is_open == 0
    found = entries(call("info")[1])
    assert found["nvml"] == "available: yes; driver release: 580.159"
    assert "sm mhz: 1500; sm max mhz: not known" in found["nvml devices 0"]
    assert "clock reasons: software power cap, 0x1000; mig: not known" in found["nvml devices 0"]
    nvml.known = "of another machine"
    assert json.loads(call("info", "--format", "json")[1])["nvml"]["devices"] == []


def test_a_failure_is_one_line_and_ends_with_1(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    def fail(*_: object) -> int:
        raise gpuprof.errors.GpuprofError("the driver said no")

    monkeypatch.setattr("gpuprof._cli.demo.run", fail)
    assert call("demo") == (1, "", "gpuprof: the driver said no\n")


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpuprof._cli.demo.run", interrupt)
    assert call("demo")[0] == 130


def test_a_reader_that_went_away_is_no_failure(no_driver: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "gpuprof", "info"],
        env=environment(no_driver),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_output_fits_a_terminal_without_unicode(no_driver: Path) -> None:
    text = output("demo", "--steps", "1", driver=no_driver, PYTHONIOENCODING="ascii")
    assert text.isascii()
    assert "step" in text


def test_the_demo_writes_a_trace_of_nested_scopes(no_driver: Path, tmp_path: Path) -> None:
    out = tmp_path / "demo.json.gz"
    text = output("demo", "--steps", "3", "--trace", str(out), driver=no_driver)
    assert f"trace: open {out}" in text
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert names.count("step") == 3
    steps = [event for event in events if event["ph"] == "X" and event["name"] == "step"]
    inner = [event for event in events if event["ph"] == "X" and event["name"] != "step"]
    assert inner
    for event in inner:
        assert any(
            step["ts"] <= event["ts"] and event["ts"] + event["dur"] <= step["ts"] + step["dur"]
            for step in steps
        )


def test_a_demo_that_cannot_write_its_trace_says_so_and_fails(
    no_driver: Path, tmp_path: Path
) -> None:
    out = tmp_path / "gone" / "demo.json"
    done = command("demo", "--steps", "1", "--trace", str(out), driver=no_driver)
    assert done.returncode == 1
    assert "cannot write the trace" in done.stderr
