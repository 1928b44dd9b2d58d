"""Traces whose file cannot be written: one warning, and the program goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import gpuprof
from tests.support.trace_events import OLD, complete_lines, files, measured, names
from tests.trace.programs import run_program, run_with_limits


def test_a_full_disk_is_one_warning_and_the_old_file_is_untouched(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    out.write_text(OLD)
    done = run_with_limits(f"""
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with gpuprof.trace({str(out)!r}) as writer:
    for _ in range(5):
        work("a", 2000)
        writer.flush()
    print(writer.error)
print("on")
""")
    assert "File too large" in done.stdout
    assert done.stdout.endswith("on\n")
    assert done.stderr.count("RuntimeWarning") == 1
    assert out.read_text() == OLD
    part = tmp_path / "run.json.part"
    assert part.stat().st_size == 20_000
    assert len(complete_lines(part)) > 100


@pytest.mark.parametrize("kind", ["missing folder", "file as folder", "link", "fifo"])
def test_a_path_that_cannot_be_written_is_one_warning(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "x.json"
    if kind == "missing folder":
        out = tmp_path / "gone" / "x.json"
    elif kind == "file as folder":
        (tmp_path / "file").write_text("")
        out = tmp_path / "file" / "x.json"
    elif kind == "link":
        (tmp_path / "target").write_text("precious")
        (tmp_path / "x.json.part").symlink_to(tmp_path / "target")
    else:
        os.mkfifo(tmp_path / "x.json.part")
    with pytest.warns(RuntimeWarning, match="cannot write the trace") as warned:
        writer = gpuprof.trace(out)
        with writer, gpuprof.timer("a", backend="cpu") as sample:
            pass
    assert len(warned) == 1
    assert sample.ms >= 0
    assert writer.error
    if kind == "link":
        assert (tmp_path / "target").read_text() == "precious"


def test_a_folder_that_vanishes_is_one_warning(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.warns(RuntimeWarning, match="cannot write the trace") as warned:
        with gpuprof.trace(folder / "run.json") as writer:
            for entry in folder.iterdir():
                entry.unlink()
            folder.rmdir()
            measured("a")
    assert len(warned) == 1
    assert writer.error == "No such file or directory"


def test_a_compression_that_fails_leaves_the_part_and_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "run.json.gz"
    out.write_bytes(OLD.encode())
    writer = gpuprof.TraceWriter(out)
    writer.span("a", 0.1, cat="test")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match=r"what there is stays in .*run\.json\.gz\.part"):
        writer.close()
    assert writer.error == "No space left on device"
    assert out.read_bytes() == OLD.encode()
    assert files(tmp_path) == {"run.json.gz", "run.json.gz.part"}
    assert names(tmp_path / "run.json.gz.part") == ["a"]


# The end of a trace


@pytest.mark.parametrize("end", ["exit", "close"])
def test_a_disk_that_is_full_at_the_end_is_told_for_each_trace(tmp_path: Path, end: str) -> None:
    done = run_with_limits(f"""
for name in ("first", "second"):
    trace = gpuprof.trace(f"{tmp_path}/{{name}}.json").start()
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    work("a", 100)
    if {end == "close"}:
        trace.close()
        assert "File too large" in trace.error
""")
    for name in ("first", "second"):
        told = [line for line in done.stderr.splitlines() if f"{name}.json.part" in line]
        assert len(told) == 1, done.stderr
        assert "The trace is incomplete" in told[0]
    assert files(tmp_path) == {"first.json.part", "second.json.part"}


# A program that closes what it did not open


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_trace_closes_where_no_descriptor_is_free(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"run.{suffix}"
    done = run_with_limits(f"""
trace = gpuprof.trace({str(out)!r}).start()
work("a")
taken = []
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
trace.close()
print(trace.error)
""")
    if suffix == "json":
        assert (done.stdout, done.stderr) == ("None\n", "")
        assert names(out) == ["a"]
    else:  # there is no way to make a second file
        assert done.stdout == "Too many open files\n"
        assert done.stderr.count("RuntimeWarning") == 1
        assert names(tmp_path / "run.json.gz.part") == ["a"]


def test_a_trace_whose_descriptor_the_program_closed_is_said_to_be_incomplete(
    tmp_path: Path,
) -> None:
    out = tmp_path / "run.json"
    done = run_program(f"""
trace = gpuprof.trace({str(out)!r}).start()
work("a")
trace.flush()
os.closerange(3, 100)
work("b")
trace.close()
print(trace.error)
with gpuprof.trace({str(tmp_path / "next.json")!r}):
    work("c")
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("the program closed its file descriptor")
    assert done.stderr.count("RuntimeWarning") == 1
    assert "The trace is incomplete" in done.stderr
    part = complete_lines(tmp_path / "run.json.part")
    assert [event["name"] for event in part if event["ph"] == "X"] == ["a"]
    assert names(tmp_path / "next.json") == ["c"]


def test_a_descriptor_that_is_another_file_s_now_is_left_alone(tmp_path: Path) -> None:
    done = run_program(f"""
trace = gpuprof.trace({str(tmp_path / "run.json")!r}).start()
work("a")
trace.flush()
os.closerange(3, 100)
for number in range(3, 40):  # one of them is what the trace had
    os.dup2(os.open({str(tmp_path / "mine")!r}, os.O_RDWR | os.O_CREAT), number)
work("b", 1000)
trace.close()
for number in range(3, 40):
    os.fstat(number)  # nor was it closed
""")
    assert done.returncode == 0, done.stderr
    assert "The trace is incomplete" in done.stderr
    assert (tmp_path / "mine").read_bytes() == b""
