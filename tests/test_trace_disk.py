"""Traces whose file cannot be written: one warning, and the program goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import gpuprof
from tests.processes import run_python
from tests.trace_events import SCOPES, complete_lines, files, names


def test_a_full_disk_is_one_warning_and_the_old_file_is_untouched(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    out.write_text("old")
    done = run_python(
        SCOPES
        + f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with gpuprof.trace({str(out)!r}) as writer:
    for _ in range(5):
        work("a", 2000)
        writer.flush()
    print(writer.error)
print("on")
"""
    )
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout
    assert done.stdout.endswith("on\n")
    assert done.stderr.count("RuntimeWarning") == 1
    assert out.read_text() == "old"
    part = tmp_path / "run.json.part"
    assert part.stat().st_size == 20_000
    assert len(complete_lines(part)) > 100


@pytest.mark.parametrize(
    "kind", ["missing folder", "file as folder", "folder", "link", "fifo", "device"]
)
def test_a_path_that_cannot_be_written_is_one_warning(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "x.json"
    if kind == "missing folder":
        out = tmp_path / "gone" / "x.json"
    elif kind == "file as folder":
        (tmp_path / "file").write_text("")
        out = tmp_path / "file" / "x.json"
    elif kind == "folder":
        out.mkdir()
    elif kind == "device":
        os.mkfifo(out)
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
            with gpuprof.timer("a", backend="cpu"):
                pass
    assert len(warned) == 1
    assert writer.error == "No such file or directory"


def test_a_compression_that_fails_leaves_the_part_and_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "run.json.gz"
    out.write_bytes(b"old")
    writer = gpuprof.TraceWriter(out)
    writer.push("a", "test", 0.1)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match=r"what there is stays in .*run\.json\.gz\.part"):
        writer.close()
    assert writer.error == "No space left on device"
    assert out.read_bytes() == b"old"
    assert files(tmp_path) == {"run.json.gz", "run.json.gz.part"}
    assert names(tmp_path / "run.json.gz.part") == ["a"]
