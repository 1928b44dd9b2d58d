"""push and pop, names of threads and streams, and the domain without a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof import nvtx
from tests.fake_driver.control import FakeCuda
from tests.nvtx_injection.processes import calls_under_tool, check_under_tool
from tests.support.processes import SETUP_CUDA
from tests.support.trace_events import events

TOOL = "extension"


def test_push_and_pop_count_their_depth_by_domain() -> None:
    assert [nvtx.push("a"), nvtx.push("b"), nvtx.push("c", domain="d")] == [0, 1, 0]
    assert [nvtx.pop(), nvtx.pop("d"), nvtx.pop()] == [1, 0, 0]


def test_pushed_ranges_mix_with_annotations(tool: Path) -> None:
    code = """
from gpuprof import nvtx
nvtx.push("a", color="red", category="c", payload=3, args={"x": 1})
with gpuprof.annotate("b"):
    nvtx.push("c")
    nvtx.pop()
nvtx.pop()
"""
    assert calls_under_tool(tool, code) == "push a, push b, push c, pop, pop, pop"


def test_the_same_name_is_pushed_often(tool: Path) -> None:
    code = """
from gpuprof import nvtx
for _ in range(3):
    nvtx.push("a")
for depth in (2, 1, 0):
    assert nvtx.pop() == depth
"""
    assert calls_under_tool(tool, code) == "push a, push a, push a, pop, pop, pop"


def test_each_thread_has_ranges_of_its_own(tool: Path) -> None:
    code = """
import threading, warnings
from gpuprof import nvtx
nvtx.push("main's")
def run():
    assert nvtx.push("thread's") == 0
    nvtx.pop()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [nvtx.pop(), nvtx.pop()] == [-1, -1]
    assert len(caught) == 1, caught
    assert "no pushed range in the domain 'gpuprof'" in str(caught[0].message)
thread = threading.Thread(target=run)
thread.start()
thread.join()
assert nvtx.pop() == 0
"""
    assert calls_under_tool(tool, code) == "push main's, push thread's, pop, pop"


def test_a_range_that_was_pushed_while_nvtx_was_off_is_popped_of_nothing(tool: Path) -> None:
    code = """
from gpuprof import nvtx
nvtx.disable()
nvtx.push("unseen")
nvtx.enable()
nvtx.push("seen")
nvtx.pop()
nvtx.pop()
"""
    assert calls_under_tool(tool, code) == "push seen, pop"


def test_pushed_ranges_are_in_traces(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with gpuprof.trace(path):
        nvtx.push("outer")
        nvtx.push("inner", payload=[1, 2])
        nvtx.pop()
        nvtx.pop()
    slices = {each["name"]: each for each in events(path)}
    assert slices["outer"]["dur"] >= slices["inner"]["dur"]
    assert slices["inner"]["args"]["payload"] == [1, 2]


@pytest.mark.parametrize("name", [3, None, b"x"])
def test_the_name_of_a_pushed_range_is_a_str(name: Any) -> None:
    with pytest.raises(TypeError, match="name: expected a str"):
        nvtx.push(name)
    with pytest.raises(TypeError, match="name: expected a non-empty str"):
        nvtx.name_thread(name)


def test_a_push_with_a_wrong_argument_has_pushed_nothing() -> None:
    with pytest.raises(ValueError, match="color"):
        nvtx.push("x", color="octarine")
    assert nvtx.push("y") == 0
    nvtx.pop()


def test_the_domain_without_a_name_is_nvtxs_own(tool: Path) -> None:
    code = """
        with gpuprof.annotate("a", domain="", category="c") as a:
            assert a.is_active
        gpuprof.mark("b", domain="")
        kinds = ("push", "pop", "mark", "category")
        print([(e.kind, e.domain) for e in tool.events(*kinds) if e.domain != "gpuprof"])
        print("" in [e.text for e in tool.events("domain")])
    """
    out = check_under_tool(tool, code)
    shown, made = out.splitlines()
    assert shown == str([("category", None), ("push", None), ("pop", None), ("mark", None)])
    assert made == "False"


def test_a_thread_gets_a_name_in_tools(tool: Path) -> None:
    code = """
        import threading
        from gpuprof import nvtx
        nvtx.name_thread("main loop")
        nvtx.name_thread("other", 77)
        nvtx.disable()
        nvtx.name_thread("unseen")
        ids = [threading.get_native_id(), 77]
        print([(e.text, e.id == id) for e, id in zip(tool.events("thread"), ids, strict=True)])
    """
    assert check_under_tool(tool, code).strip() == "[('main loop', True), ('other', True)]"


@pytest.mark.parametrize(
    ("tid", "error"), [("1", TypeError), (True, TypeError), (-1, ValueError), (1 << 32, ValueError)]
)
def test_a_wrong_number_of_a_thread_is_refused(tid: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="tid: expected"):
        nvtx.name_thread("x", tid)
    with pytest.raises(ValueError, match="name: expected a non-empty str"):
        nvtx.name_thread("")


def test_a_stream_gets_a_name_in_tools(tool: Path, fake_path: Path) -> None:
    out = check_under_tool(
        tool,
        "\n"
        + SETUP_CUDA
        + """
gpuprof.name_stream(stream, "copies")
gpuprof.nvtx.disable()
gpuprof.name_stream(stream, "unseen")
print([(e.text, e.id == stream) for e in tool.events("stream")])
""",
        GPUPROF_CUDA_DRIVER=str(fake_path),
    )
    assert out.strip() == "[('copies', True)]"


def test_a_stream_is_named_where_no_tool_listens(fake: FakeCuda, stream: int) -> None:
    gpuprof.name_stream(stream, "copies")
