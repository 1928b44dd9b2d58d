"""``gpuprof run --kernels --idle``: what is said of the GPU of an unchanged program."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.fake_cupti.build import cached
from tests.support.processes import SETUP_CUDA
from tests.support.programs import measured, script

ROOT = Path(__file__).parents[2]
IDLE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
{SETUP_CUDA}
with scope:
    pass
time.sleep(0.3)  # where it waits
"""


@pytest.mark.parametrize(
    ("end", "status"), [("", 0), ("raise ValueError('own')", 1), ("sys.exit(3)", 3)]
)
def test_the_idle_lines_of_a_program_are_shown(
    tmp_path: Path, fake_path: Path, end: str, status: int
) -> None:
    name = script(tmp_path, IDLE + end)
    done = measured(tmp_path, "--idle", name, program=name, GPUPROF_CUDA_DRIVER=str(fake_path))
    assert done.status == status
    table = done.report[done.report.index("GPU idle: ") :]
    assert "time.sleep(0.3)  # where it waits" in table
    assert f"{tmp_path.name}/{name}:" in table


@pytest.mark.skipif(sys.version_info < (3, 12), reason="this Python version does not warn")
def test_a_fork_beside_the_thread_that_looks_is_no_warning(tmp_path: Path, fake_path: Path) -> None:
    name = script(tmp_path, IDLE + "if (p := os.fork()) == 0: os._exit(0)\nos.waitpid(p, 0)\n")
    done = measured(tmp_path, "--idle", name, program=name, GPUPROF_CUDA_DRIVER=str(fake_path))
    assert "multi-threaded" not in done.err


def test_a_program_without_a_gpu_is_told_once(tmp_path: Path) -> None:
    name = script(tmp_path, "import gpuprof\nwith gpuprof.timer('a'):\n    pass\n")
    done = measured(tmp_path, "--idle", name, program=name, GPUPROF_CUDA_DRIVER="/missing.so")
    assert done.status == 0
    assert done.report.count("no scope ran on a GPU in that time") == 1


WORK = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
{SETUP_CUDA}
from tests.fake_cupti.control import CUDA_LAUNCH_KERNEL, RUNTIME_CALLS, FakeCupti
cupti = FakeCupti(_core._cupti_load([])["path"])
def launch(number):
    begin, until = cupti.now(), time.monotonic_ns() + 50_000
    while time.monotonic_ns() < until: pass
    cupti.call(RUNTIME_CALLS, CUDA_LAUNCH_KERNEL, thread=threading.get_native_id(),
               correlation=number, begin=begin + 20_000)
    cupti.kernel("gemm", begin + 25_000, begin + 29_000, correlation=number)
with gpuprof.timer("step", backend="cpu"):
    launch(1)
launch(2)
"""


@pytest.fixture
def with_cupti(tmp_path: Path, fake_path: Path, pytestconfig: pytest.Config) -> dict[str, str]:
    """Variables of processes that have the fake CUPTI as a wheel's."""
    folder = tmp_path / "wheels" / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcupti.so.13").symlink_to(cached(pytestconfig))
    return {"GPUPROF_CUDA_DRIVER": str(fake_path), "PYTHONPATH": str(tmp_path / "wheels")}


def test_kernels_are_in_table_trace_and_report(tmp_path: Path, with_cupti: dict[str, str]) -> None:
    name = script(tmp_path, WORK)
    files = ("-o", "t.json", "--html", "r.html")
    done = measured(tmp_path, *files, "--kernels", name, program=name, **with_cupti)
    assert done.status == 0, done.err
    assert "GPU work by scope" in done.report
    assert "GPU work by name, scope: all" in done.report
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "GPU work: by scope" in page
    assert "GPU work: by name" in page
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    kernels = [event for event in events if event.get("name") == "gemm"]
    assert [event["args"].get("scope") for event in kernels] == ["step", None]
    if sys.version_info >= (3, 12):
        assert "GPU work by caller, scope: all" in done.report
        assert "GPU work: by caller" in page
        assert all(" in launch" in event["args"]["caller"] for event in kernels)


@pytest.mark.parametrize(
    ("end", "status"), [("raise ValueError('own')", 1), ("sys.exit(3)", 3), ("os._exit(4)", 4)]
)
def test_with_kernels_a_program_ends_as_it_would(
    tmp_path: Path, with_cupti: dict[str, str], end: str, status: int
) -> None:
    name = script(tmp_path, WORK + end)
    done = measured(tmp_path, "--kernels", "--idle", name, program=name, **with_cupti)
    assert done.status == status
    assert ("GPU work by scope" in done.report) == (status != 4)


def test_idle_lines_outlive_an_interrupt_of_the_end(
    tmp_path: Path, with_cupti: dict[str, str]
) -> None:
    end = """
def interrupt(*_):
    import signal
    signal.raise_signal(signal.SIGINT)
    time.sleep(1)
type(gpuprof.kernels())._finish = interrupt
"""
    name = script(tmp_path, IDLE + end)
    done = measured(tmp_path, "--kernels", "--idle", name, program=name, **with_cupti)
    assert "time.sleep(0.3)  # where it waits" in done.report


def test_an_interrupt_of_no_signal_at_the_end_leaves_the_report(
    tmp_path: Path, with_cupti: dict[str, str]
) -> None:
    end = """
def interrupt(*_):
    raise KeyboardInterrupt
type(gpuprof.kernels())._finish = interrupt
"""
    name = script(tmp_path, IDLE + end)
    done = measured(tmp_path, "--kernels", "--idle", name, program=name, **with_cupti)
    assert done.status == -signal.SIGINT
    assert "time.sleep(0.3)  # where it waits" in done.report


def test_a_forked_child_has_no_part_in_it(tmp_path: Path, with_cupti: dict[str, str]) -> None:
    name = script(
        tmp_path,
        WORK + "child = os.fork()\nif child: assert os.waitpid(child, 0)[1] == 0\n",
    )
    done = measured(tmp_path, "--kernels", "--idle", name, program=name, **with_cupti)
    assert done.status == 0, done.err
    assert done.report.count("GPU work by scope") == 1


def test_without_cupti_it_is_refused_before_the_program_begins(tmp_path: Path) -> None:
    name = script(tmp_path, "print('ran')")
    given = ("--kernels", "--idle", "-o", "t.json", name)
    done = measured(tmp_path, *given, program=name, GPUPROF_CUDA_DRIVER="/missing/libcuda.so.1")
    assert done.status == 2
    assert "ran" not in done.out
    assert "libcuda" in done.err
    assert not done.report  # of a program that did not run
    assert not list(tmp_path.glob("t.json*"))
