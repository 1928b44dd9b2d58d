"""A trace in Perfetto's user interface, as a person sees it who opens the file."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.perfetto import browser
from tests.perfetto.browser import Browser, BrowserError
from tests.support.processes import ROOT

MS = 1_000_000
PNG = b"\x89PNG\r\n\x1a\n"
WIDTH = 1600


@pytest.fixture(autouse=True, scope="module")
def chromium() -> None:
    if reason := browser.missing():
        pytest.skip(reason)


@pytest.fixture
def trace(fake: FakeCuda, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "trace.json.gz"
    stream = fake.stream_create()
    with gpuprof.trace(path):
        for i in range(5):
            with gpuprof.timer("step", stream=stream), gpuprof.annotate("fwd", payload=i):
                fake.work(stream, 2 * MS)
            gpuprof.counter("queue").set(i)
    yield path
    fake.stream_destroy(stream)


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(PNG)
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_the_tracks_of_a_trace_are_shown(trace: Path) -> None:
    with Browser(trace.read_bytes()) as page:
        titles = page.tracks()
        for expected in ("MainThread", "GPU 0", "queue value"):
            assert any(title.startswith(expected) for title in titles), titles
        rows = page.query("select name, count(*) as count from slice group by name order by name")
        assert rows == [{"name": "fwd", "count": 5}, {"name": "step", "count": 10}]
        assert page.query("select count(*) as count from flow") == [{"count": 5}]
        page.expand()
        page.select("step")
        page.look_at(0, 10 * MS)
        page.fit()
        assert size_of(page.screenshot())[0] == WIDTH
        with pytest.raises(BrowserError, match="no slice 'nothing'"):
            page.select("nothing")


def test_a_file_that_is_no_trace_is_an_error() -> None:
    with pytest.raises(BrowserError, match="Cannot open this file"):
        Browser(b"no trace")


def test_a_picture_of_a_trace_is_made_from_the_command_line(trace: Path, tmp_path: Path) -> None:
    picture = tmp_path / "trace.png"
    subprocess.run(
        [
            *(sys.executable, "-m", "tests.perfetto.screenshot", str(trace), str(picture)),
            *("--expand", "--select", "step", "--between", "0", "10"),
        ],
        cwd=ROOT,
        check=True,
        timeout=200,
    )
    assert size_of(picture.read_bytes())[0] == WIDTH
