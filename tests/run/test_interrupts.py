"""Ctrl-C at any moment: traces and reports are whole, and the process ends by it."""

from __future__ import annotations

import gzip
import json
import random
import signal
import time
from pathlib import Path

import pytest

from tests.support.processes import check_cuda
from tests.support.programs import script, start

REPORT = """
import gpuprof
for number in range(300):
    with gpuprof.timer(f"work{number}"):
        pass
print("now", flush=True)
"""
WINDOWS = """
import gpuprof
with gpuprof.timer("first"):
    pass
print("now", flush=True)
with gpuprof.trace_windows("t.json", schedule=(0, 0, 1, 0)) as windows:
    for _ in range(500):
        with gpuprof.timer("step"):
            pass
        windows.step()
"""
TRACES = """
import gpuprof
with gpuprof.timer("first"):
    pass
print("now", flush=True)
for number in range(500):
    with gpuprof.trace(f"{number}.json.gz"):
        with gpuprof.timer("step"):
            pass
"""
RUN = ("-m", "gpuprof", "run", "-o", "t.json.gz", "--stats", "s.json", "--html", "h.html")


def _interrupted(folder: Path, *arguments: str, count: int, seconds: float) -> list[int]:
    """Interrupt so many processes at random times; return how they ended, with whole files."""
    moments = random.Random(5)
    ends = []
    for number in range(count):
        own = folder / str(number)
        own.mkdir()
        process = start(own, *arguments)
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        time.sleep(moments.random() * seconds)
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=60)[1]
        # Python itself forgets one that comes while it joins threads, or is about to end.
        assert process.returncode in {0, -signal.SIGINT}, error
        ends.append(process.returncode)
        for path in own.iterdir():
            assert path.suffix != ".part", error
            content = path.read_bytes()
            if path.suffix != ".html":
                assert json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    return ends


def test_a_report_that_is_being_written_gets_done(tmp_path: Path) -> None:
    name = script(tmp_path, REPORT)
    ends = _interrupted(tmp_path, *RUN, str(tmp_path / name), count=8, seconds=0.05)
    assert ends.count(-signal.SIGINT) >= 4
    for number in range(8):
        files = {path.name for path in (tmp_path / str(number)).iterdir()}
        assert files == {"t.json.gz", "s.json", "h.html"}


@pytest.mark.parametrize("program", [WINDOWS, TRACES], ids=["windows", "traces"])
def test_a_trace_that_ends_gets_done(tmp_path: Path, program: str) -> None:
    name = script(tmp_path, program)
    _interrupted(tmp_path, str(tmp_path / name), count=8, seconds=0.2)


@pytest.mark.parametrize("how", ["trace_windows({}, (0, 0, 1, 0))", "trace({})"])
def test_it_ends_the_wait_for_a_gpu_that_is_never_done(
    tmp_path: Path, fake_path: Path, how: str
) -> None:
    path = tmp_path / "t.json"
    body = f"""
    import signal
    threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    trace = gpuprof.{how.format(repr(str(path)))}
    try:
        with trace:
            fake.work(stream, 10**15)
            with scope:
                fake.work(stream, 10**15)
            trace.close()
        raise AssertionError("it waited for ever")
    except KeyboardInterrupt:
        print(trace.error, os.listdir({str(tmp_path)!r}))
        sys.stdout.flush()
    os._exit(0)  # the gpu is never done
    """
    name = "t.1.json" if "windows" in how else "t.json"
    assert check_cuda(fake_path, body) == f"None ['{name}']\n"
    assert json.loads((tmp_path / name).read_text())["traceEvents"]
