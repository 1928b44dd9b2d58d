"""Files that are replaced as a whole, and locks among processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuprof._common.files import FileLock, open_regular, replace_file, replacing


def test_a_file_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")
    path.chmod(0o640)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["folder", "FIFO"])
def test_only_a_regular_file_is_opened_and_nothing_is_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "thing"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(OSError, match="thing is not a regular file"):
        open_regular(path)


def test_a_lock_is_held_by_one_until_it_is_released(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    with second:
        with first:
            assert first.acquire()
            assert not second.acquire(0.05)
        assert second.acquire(0.05)
    first.release()  # once more does nothing
