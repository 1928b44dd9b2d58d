"""Signals that ask a flight recorder for a dump, and what else they do."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.processes import check_python, run_python
from tests.support.torch_blocks import Run
from tests.support.trace_events import files, names
from tests.trace.programs import check_program, run_program

START = """
import signal, threading
from tests.support.recorders import until
def recorded(number=signal.SIGUSR1, name="last", **options):
    path = f"{folder}/{name}.json"
    return gpuprof.flight_recorder(path, keep_last="30s", dump_on=number, **options)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda body: check_program(f"folder = {str(tmp_path)!r}\n{START}{body}")


def check_ended_by(number: signal.Signals, folder: Path, body: str) -> None:
    done = run_program(f"folder = {str(folder)!r}\n{START}{body}")
    assert done.returncode == -number, done.stderr


def test_a_signal_is_a_dump_and_an_earlier_handler_still_runs(run: Run, tmp_path: Path) -> None:
    out = run("""
signal.signal(signal.SIGUSR1, lambda number, frame: print("earlier", number, flush=True))
with recorded() as recorder:
    work("a")
    os.kill(os.getpid(), signal.SIGUSR1)
    until(lambda: recorder.stats()["dumps"])
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(0.05)
""")
    assert out == "earlier 10\nearlier 10\n"
    assert files(tmp_path) == {"last.1.json"}
    assert names(tmp_path / "last.1.json") == ["a"]


def test_a_signal_comes_through_while_the_program_hangs_in_a_call(run: Run, tmp_path: Path) -> None:
    run("""
import ctypes
hang = ctypes.PyDLL(None).usleep  # which keeps the interpreter lock
with recorded() as recorder:
    work("a")
    if (child := os.fork()) == 0:
        time.sleep(0.1)
        os.kill(os.getppid(), signal.SIGUSR1)
        os._exit(0)
    for _ in range(40):  # a signal ends one of them
        hang(10_000)
    there = os.listdir(folder)
    os.waitpid(child, 0)
assert there == ["last.1.json"], there
""")
    assert names(tmp_path / "last.1.json") == ["a"]


def test_signals_in_the_middle_of_a_dump_are_one_more(run: Run, tmp_path: Path) -> None:
    run("""
with recorded(max_dumps=1000) as recorder:
    work("a", 20_000)
    for _ in range(200):
        os.kill(os.getpid(), signal.SIGUSR1)
    work("b")
    os.kill(os.getpid(), signal.SIGUSR1)
    last = recorder.stats()["dumps"]
    until(lambda: any('"b"' in open(f"{folder}/{each}").read()
                      for each in os.listdir(folder) if each.endswith(".json")))
""")
    for name in files(tmp_path):
        assert names(tmp_path / name).count("a") == 20_000


@pytest.mark.parametrize("rings", [1, 2])
def test_a_signal_that_ends_the_program_does_so_after_the_dump(tmp_path: Path, rings: int) -> None:
    body = f"""
rings = [recorded(signal.SIGTERM, name=f"ring{{n}}").start() for n in range({rings})]
work("a", 5000)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(20)
"""
    check_ended_by(signal.SIGTERM, tmp_path, body)
    assert files(tmp_path) == {f"ring{n}.1.json" for n in range(rings)}
    assert len(names(tmp_path / "ring0.1.json")) == 5000


def test_the_handler_is_gone_with_the_recorder(tmp_path: Path) -> None:
    body = """
with recorded():
    with recorded(name="inner"):
        pass
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(20)
"""
    check_ended_by(signal.SIGUSR1, tmp_path, body)
    assert files(tmp_path) == set()


def test_a_child_without_a_ring_of_its_own_can_be_ended(run: Run, tmp_path: Path) -> None:
    out = run("""
with recorded(signal.SIGTERM):
    if (child := os.fork()) == 0:
        time.sleep(20)
        os._exit(0)
    time.sleep(0.05)
    os.kill(child, signal.SIGTERM)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]))
""")
    assert out == "15\n"
    assert files(tmp_path) == set()


def test_a_handler_put_over_it_that_calls_it_is_not_called_for_ever(
    run: Run, tmp_path: Path
) -> None:
    run("""
import faulthandler
with recorded() as first:
    faulthandler.register(signal.SIGUSR1, file=open(os.devnull, "w"), chain=True)
    with recorded(name="second") as second:
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: first.stats()["dumps"] and second.stats()["dumps"])
os.kill(os.getpid(), signal.SIGUSR1)
""")
    assert files(tmp_path) == {"last.1.json", "second.1.json"}


def test_system_calls_are_not_disturbed_where_there_was_no_handler(run: Run) -> None:
    run("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
with recorded() as recorder:
    end, begin = os.pipe()
    def later():
        time.sleep(0.1)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        time.sleep(0.1)
        os.write(begin, b"x")
    thread = threading.Thread(target=later)
    thread.start()
    buffer = ctypes.create_string_buffer(1)
    assert libc.read(end, buffer, 1) == 1, ctypes.get_errno()
    thread.join()
    until(lambda: recorder.stats()["dumps"])
""")


# From outside, by GPUPROF_FLIGHT_RECORDER

ARMED = """
import os, signal
import gpuprof
from tests.support.recorders import until
folder = os.path.dirname(os.environ["GPUPROF_FLIGHT_RECORDER"])
def wait_for(*files):
    until(lambda: set(files) <= set(os.listdir(folder)))
"""


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_the_environment_arms_a_recorder_that_a_signal_dumps(tmp_path: Path, name: str) -> None:
    chosen = {} if name == "SIGUSR1" else {"GPUPROF_FLIGHT_RECORDER_SIGNAL": name}
    check_python(
        f"""{ARMED}
with gpuprof.timer("a", backend="cpu"):
    pass
assert os.listdir(folder) == []
os.kill(os.getpid(), signal.{name})
wait_for("last.1.json")
if (child := os.fork()) == 0:
    with gpuprof.timer("b", backend="cpu"):
        pass
    os.kill(os.getpid(), signal.{name})
    wait_for(f"last.1.{{os.getpid()}}.json")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
        GPUPROF_FLIGHT_RECORDER=str(tmp_path / "last.json"),
        **chosen,
    )
    assert names(tmp_path / "last.1.json") == ["a"]
    (of_child,) = files(tmp_path) - {"last.1.json"}
    assert names(tmp_path / of_child) == ["b"]


def test_without_a_signal_the_environments_recorder_writes_nothing(tmp_path: Path) -> None:
    check_python(f"{ARMED}gpuprof.timer('a')", GPUPROF_FLIGHT_RECORDER=str(tmp_path / "last.json"))
    assert files(tmp_path) == set()


@pytest.mark.parametrize(
    ("path", "name", "said"),
    [
        ("last.json", "SIGNONE", "dump_on: expected a whole number"),
        ("last.json", "SIG_IGN", "dump_on: expected a whole number"),
        ("last.json", "SIGKILL", "expected signals that a program may go on after"),
        ("last.json.gz", "SIGUSR1", "end it in .json"),
    ],
)
def test_a_wrong_wish_is_one_warning(tmp_path: Path, path: str, name: str, said: str) -> None:
    done = run_python(
        "import gpuprof\nwith gpuprof.timer('a'):\n    pass",
        GPUPROF_FLIGHT_RECORDER=str(tmp_path / path),
        GPUPROF_FLIGHT_RECORDER_SIGNAL=name,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("GPUPROF_FLIGHT_RECORDER was ignored: ") == 1
    assert said in done.stderr
    assert files(tmp_path) == set()


def test_it_is_not_armed_where_gpuprof_is_disabled(tmp_path: Path) -> None:
    check_python(
        "import gpuprof, os\ngpuprof.timer('a')\nassert len(os.listdir('/proc/self/task')) == 1",
        GPUPROF_FLIGHT_RECORDER=str(tmp_path / "last.json"),
        GPUPROF_DISABLE="1",
    )
