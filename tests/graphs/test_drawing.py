"""Graphs as DOT and as HTML, from their nodes alone, and in files."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof import GraphNode, _core, results
from gpuprof._graphs import drawing
from tests.fake_driver.control import FakeCuda
from tests.support.captures import captured
from tests.support.graph_nodes import HOSTILE, Spec, chain, make

# Four kernels: two wait for the first, and the last for both.
_DIAMOND = make(
    Spec("add"), Spec("mul", after=[0]), Spec("mul", after=[0]), Spec("sub", after=[1, 2])
)


# DOT


def test_dot_is_as_it_was_written_before() -> None:
    def node(index: int, name: str, after: list[int], **fields: Any) -> GraphNode:
        kernel = {"grid": (1024, 2, 1), "block": (256, 1, 1), "shared_memory": 49_152}
        fields = {"type": "kernel", **kernel, **fields} if name else fields
        return GraphNode(index, name=name, symbol=name, dependencies=after, **fields)

    long = "x" * 300 + HOSTILE + "y" * 300
    inner = (node(0, "f<int>(int)", []), node(1, HOSTILE, [0]))
    nodes = (
        node(0, "void at::add<float, 4>(float*, int)", []),
        node(1, "", [0], type="memset", nbytes=1_500_000, value=0xFF, scope=f"step/{HOSTILE}"),
        node(2, HOSTILE, [0, 1], programmatic=[1], scope="s" * 100),
        node(3, long, [2]),
        node(4, "", [3], type="graph", children=inner),
        node(5, "", [0], type="conditional"),
    )
    expected = Path(__file__).with_name("graph.dot").read_text(encoding="utf-8")
    assert _core._to_dot(nodes, f"step {HOSTILE}") == expected


def test_what_a_drawing_would_read_as_markup_is_text() -> None:
    text = _core._to_dot(chain("k&lt;"), "a&amp;b")
    assert "0 k&amp;lt;" in text
    assert 'label="a&amp;amp;b"' in text


# Files


@pytest.fixture
def graph(fake: FakeCuda, stream: int) -> Iterator[gpuprof.CapturedGraph]:
    with captured(fake, stream, name="µ") as made:
        yield made


def test_dot_is_written_whole_and_replaces_what_was_there(
    graph: gpuprof.CapturedGraph, tmp_path: Path
) -> None:
    path = tmp_path / "graph.dot"
    path.write_text("old")
    for name in (path, str(path)):
        text = graph.to_dot(name)
        assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("/no/such/folder/graph.dot", FileNotFoundError, "'/no/such/folder/graph.dot'"),
        ("/dev/full", OSError, "/dev/full"),
        ("", ValueError, "path: expected the name of a file to write, got ''"),
        ("a\0b", ValueError, "path: expected the name of a file to write, got 'a\\x00b'"),
        (b"graph.dot", TypeError, "path: expected a str or os.PathLike of text"),
        (3, TypeError, "path: expected a str or os.PathLike, got 3"),
    ],
)
def test_a_path_that_cannot_be_written_is_an_error_that_names_it(
    graph: gpuprof.CapturedGraph, path: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        graph.to_dot(path)


def test_a_directory_is_an_error_that_names_the_path(
    graph: gpuprof.CapturedGraph, tmp_path: Path
) -> None:
    for name in (tmp_path, f"{tmp_path}/", f"{tmp_path}/."):
        with pytest.raises(
            IsADirectoryError, match=f"is a directory; .*{re.escape(str(tmp_path))}"
        ) as raised:
            graph.to_dot(name)
        assert raised.value.errno == errno.EISDIR


def test_a_full_disk_leaves_the_old_file_and_names_the_path(
    graph: gpuprof.CapturedGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "graph.dot"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=re.escape(str(path))) as raised:
        graph.to_dot(path)
    assert raised.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# HTML


class _Page(HTMLParser):
    """The elements and the text of a fragment that closes what it opens."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text: list[str] = []
        self.rows = 0
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Give the means to put a program named ``dot`` on an otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(script: str) -> None:
        program = tmp_path / "dot"
        program.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
        program.chmod(0o755)

    return install


def page_of(nodes: Sequence[GraphNode], name: str = "step", **facts: str) -> str:
    return drawing.html_view(nodes, name, facts)


@pytest.mark.usefixtures("programs")
def test_without_graphviz_a_graph_is_shown_as_a_table() -> None:
    page = _Page(page_of(_DIAMOND, replays="3"))
    assert page.tags == {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert page.rows == 1 + len(_DIAMOND)
    assert "replays: 3" in page.text
    assert "add" in page.text


@pytest.mark.usefixtures("programs")
def test_hostile_names_are_only_text_in_html() -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=y>" + HOSTILE
    page = _Page(page_of(chain(hostile), hostile, **{hostile: hostile}))
    assert page.tags == {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert not any("\x1b" in text for text in page.text)


@pytest.mark.usefixtures("programs")
def test_of_many_nodes_the_kinds_are_counted() -> None:
    page = _Page(page_of(chain(*["add"] * 501, *[f"k{i}" for i in range(60)])))
    assert page.rows == 1 + 50
    assert "561 nodes, too many to draw; by kind:" in page.text
    assert "501" in page.text
    assert "and 11 more kinds" in page.text


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (results.OpenCapture(7, 2, gpuprof.CaptureMode.GLOBAL, 1, 3), "OpenCapture(id=7, stream=2"),
        (results.CaptureInfo(gpuprof.CaptureStatus.NONE, None, None, ()), "CaptureInfo(status="),
        (results.SpanTiming((1.0, 2.0, None)), "countmsmean33.00001.5000"),
    ],
)
def test_what_is_known_of_a_capture_is_shown_in_notebooks(shown: Any, words: str) -> None:
    page = _Page(shown._repr_html_())
    assert words in "".join(page.text)
    assert not page.open


def test_graphviz_draws_where_it_is_installed(programs: Callable[[str], None]) -> None:
    programs(
        "text = sys.stdin.read()\n"
        "assert sys.argv[1:] == ['-Tsvg'] and 'n0 -> n1' in text\n"
        "print('<?xml version=\"1.0\"?><!DOCTYPE svg><svg><title>drawn</title></svg>')"
    )
    page = page_of(chain("a", "b"))
    assert "<svg><title>drawn</title></svg>" in page
    assert "<?xml" not in page
    assert "<table>" not in page


@pytest.mark.parametrize(
    "script", ["sys.exit(1)", "print('no drawing')", "import time; time.sleep(60)"]
)
def test_where_graphviz_fails_or_hangs_a_table_is_shown(
    script: str, programs: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "_DOT_TIMEOUT_S", 0.5 if "sleep" in script else 30.0)
    programs(script)
    assert "<table>" in page_of(chain("a", "b"))
