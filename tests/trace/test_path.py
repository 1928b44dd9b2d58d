"""Where traces are written: links, files of others, and what no file may be put in place of."""

from __future__ import annotations

import errno
import gzip
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.support.processes import check_python, run_python
from tests.support.trace_events import OLD, SCOPES, files, names
from tests.trace.programs import check_program

# What a path may be


def refused(path: object) -> str | None:
    """Return why a trace is not written to a path."""
    with pytest.warns(RuntimeWarning, match="cannot write the trace"):
        return gpuprof.TraceWriter(str(path)).start().error


def opened(path: Path) -> str:
    """Return where a trace of a path is written, which has one slice, "a"."""
    with gpuprof.TraceWriter(path) as writer:
        writer.span("a", 1.0, cat="test")
        return writer.path


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "to folder").symlink_to("folder")
    (tmp_path / "to fifo").symlink_to("fifo")
    (tmp_path / "circle").symlink_to("circle")
    for name, text in (
        ("folder", os.strerror(errno.EISDIR)),
        ("to folder", os.strerror(errno.EISDIR)),
        ("fifo", "is not a regular file"),
        ("to fifo", "is not a regular file"),
        ("circle", os.strerror(errno.ELOOP)),
    ):
        assert refused(tmp_path / name) == text


def test_a_name_of_an_open_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        for name in (f"/dev/fd/{log.fileno()}", f"/proc/self/fd/{log.fileno()}"):
            assert "stands for an open file" in str(refused(name))
    read, write = os.pipe()
    try:
        assert "stands for an open file" in str(refused(f"/dev/fd/{write}"))
    finally:
        os.close(read)
        os.close(write)


def test_a_link_of_somebody_else_in_a_shared_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "run.json"
    link.symlink_to(tmp_path / "mine")
    assert opened(link) == str(tmp_path / "mine")
    lstat, owner = os.stat, os.geteuid()

    def of_another(path: object, **options: bool) -> object:
        status = lstat(path, **options)  # type: ignore[call-overload]
        if str(path) != str(link) or options.get("follow_symlinks", True):
            return status
        return os.stat_result((*status[:4], owner + 1, *status[5:10]))

    monkeypatch.setattr(os, "stat", of_another)
    assert "somebody else" in str(refused(link))
    shared.chmod(0o777)  # not sticky: whoever may write there may do so much more
    assert opened(link) == str(tmp_path / "mine")


# Traces


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_trace_goes_where_its_link_leads(tmp_path: Path, suffix: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (disk / f"real.{suffix}").write_text(OLD)
    link = tmp_path / f"run.{suffix}"
    link.symlink_to("second")
    (tmp_path / "second").symlink_to(disk / f"real.{suffix}")
    check_program("work('a')", GPUPROF_TRACE_OUT=str(link))
    assert link.is_symlink()
    assert names(link) == names(disk / f"real.{suffix}") == ["a"]
    assert files(disk) == {f"real.{suffix}"}
    assert files(tmp_path) == {"disk", "second", link.name}


def test_the_standard_output_is_no_place_for_a_trace(tmp_path: Path) -> None:
    out = tmp_path / "stdout"
    (tmp_path / "link").symlink_to("/dev/stdout")
    done = run_python(
        f"""
import os
os.dup2(os.open({str(out)!r}, os.O_WRONLY | os.O_CREAT), 1)
"""
        + SCOPES
        + "work('a'); print('on')",
        GPUPROF_TRACE_OUT=str(tmp_path / "link"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("stands for an open file") == 1
    assert out.read_text() == "on\n"
    assert files(tmp_path) == {"link", "stdout"}


def test_a_part_of_somebody_else_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "run.json.part"
    part.write_text("")
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    path = Path(opened(tmp_path / "run.json"))
    assert path.name == f"run.{os.getpid()}.json"
    assert names(path) == ["a"]
    assert part.read_text() == ""
    assert not (tmp_path / "run.json").exists()


def test_a_part_that_is_another_name_of_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")
    (tmp_path / "run.json.part").hardlink_to(tmp_path / "precious")
    path = opened(tmp_path / "run.json")
    assert (tmp_path / "precious").read_text() == ""
    assert names(Path(path)) == ["a"]
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_a_part_that_was_swapped_does_not_get_the_trace_s_name(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"run.{suffix}"
    part = tmp_path / f"run.{suffix}.part"
    writer = gpuprof.TraceWriter(out).start()
    writer.span("a", 1.0, cat="test")
    part.rename(tmp_path / "moved")
    part.write_text("another's")
    with pytest.warns(RuntimeWarning, match="another file was put in the place"):
        writer.close()
    assert writer.error == "another file was put in the place of this trace's"
    assert part.read_text() == "another's"
    assert files(tmp_path) == {part.name, "moved"}
    assert names(tmp_path / "moved") == ["a"]


def test_an_empty_part_of_one_s_own_is_used(tmp_path: Path) -> None:
    (tmp_path / "run.json.part").write_text("")
    opened(tmp_path / "run.json")
    assert files(tmp_path) == {"run.json"}


def test_a_file_is_as_the_umask_wants_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        for name in ("run.json", "run.json.gz"):
            opened(tmp_path / name)
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640
    finally:
        os.umask(before)


def test_a_trace_that_could_not_begin_leaves_no_part(tmp_path: Path) -> None:
    class Rude:
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    writer = gpuprof.TraceWriter(tmp_path / "run.json", args={"a": Rude()})
    with pytest.raises(KeyboardInterrupt):
        writer.start()
    assert files(tmp_path) == set()


def test_a_trace_opened_while_another_of_its_path_is_compressed_keeps_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run.json.gz"
    first = gpuprof.TraceWriter(out)
    first.span("first", 0.1, cat="test")
    second: list[gpuprof.TraceWriter] = []

    class Meanwhile(gzip.GzipFile):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            if not second:
                second.append(gpuprof.TraceWriter(out))
                second[0].span("second", 0.1, cat="test")
            super().__init__(*arguments, **options)

    monkeypatch.setattr(gzip, "GzipFile", Meanwhile)
    first.close()
    second[0].close()
    assert names(out) == ["first"]
    assert names(Path(second[0].path)) == ["second"]


# When they are opened


def test_opening_a_trace_is_in_no_scope_s_time(tmp_path: Path) -> None:
    out = check_python(
        """
        import os, time
        import gpuprof
        opened = os.open
        def slowly(*arguments, **options):
            print("opened", flush=True)
            time.sleep(0.2)
            return opened(*arguments, **options)
        os.open = slowly
        scope = gpuprof.timer("first", backend=gpuprof.SyncBackend("none", lambda: None))
        with scope as first:
            child = os.fork()  # which finds its own trace not open as the scope ends
        assert first.ms < 150, first.ms
        assert not child or os.waitpid(child, 0)[1] == 0
        """,
        GPUPROF_TRACE_OUT=str(tmp_path / "run.json"),
    )
    assert out.split() == ["opened"] * 2
