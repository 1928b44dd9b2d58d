"""Arrays as payloads of ranges: what a tool reads, what traces show, what is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.nvtx_injection.build import build
from tests.nvtx_injection.processes import check_under_tool
from tests.support.trace_events import events

TOOL = "extension"


def payloads(tool: Path, *expressions: str) -> list[Any]:
    """Return what a tool read of these payloads, each given to a range."""
    code = f"""
    import array, json, math
    import numpy as np
    for payload in [{", ".join(expressions)}]:
        with gpuprof.annotate("x", payload=payload):
            pass
    print(json.dumps([e.payload for e in tool.events("push")]))
    """
    found: list[Any] = json.loads(check_under_tool(tool, code))
    return found


CASES: dict[str, Any] = {
    "[1, -2, 3]": [1, -2, 3],
    "(1, 2.5)": [1.0, 2.5],
    "range(3)": [0, 1, 2],
    "[True, False]": [1, 0],
    "b'ab'": [97, 98],
    "bytearray(b'c')": [99],
    "memoryview(b'abcd')[::2]": [97, 99],
    "array.array('H', [1, 65535])": [1, 65535],
    "array.array('d', [0.5])": [0.5],
    "np.arange(3, dtype='int8')": [0, 1, 2],
    "np.arange(3, dtype='uint64') + 2**63": [2**63, 2**63 + 1, 2**63 + 2],
    "np.array([1.5, -2], 'float16')": [1.5, -2.0],
    "np.array([1.5, -2], 'float32')": [1.5, -2.0],
    "np.array([[1, 2], [3, 4]], 'int32')": [1, 2, 3, 4],
    "np.array([[1, 2], [3, 4]], 'int32').T": [1, 3, 2, 4],
    "np.arange(10)[::-3]": [9, 6, 3, 0],
    "np.array([True, False])": [1, 0],
    "np.array(7)": [7],
    "np.float32(2.5)": 2.5,
    "np.int16(3)": 3,
    "[10**400, -(10**400)]": [float("inf"), float("-inf")],
    "[]": None,
    "np.zeros((0, 3))": None,
    "b''": None,
}


def test_a_tool_reads_the_numbers_of_an_array(tool: Path) -> None:
    found = payloads(tool, *CASES)
    assert dict(zip(CASES, found, strict=True)) == CASES


def test_the_layout_is_registered_once_for_a_domain_and_a_type(tool: Path) -> None:
    code = """
        for domain in (None, "model", ""):
            for payload in ([1], [2, 3], [0.5], b"a"):
                gpuprof.mark("x", payload=payload, domain=domain)
        schemas = tool.events("schema")
        print(len(schemas), {e.domain for e in schemas} == {"gpuprof", "model", None})
        print({(e.category, e.color) for e in schemas})
    """
    # Nine: three types in three domains. Of a dynamic size, with two entries.
    assert check_under_tool(tool, code).splitlines() == ["9 True", "{(2, None)}"]


def test_a_tool_that_knows_no_layouts_sees_the_range_without_the_array(tool_folder: Path) -> None:
    code = """
        with gpuprof.annotate("x", payload=[1, 2]):
            pass
        print(tool.calls(), tool.events("push")[0].payload)
    """
    assert check_under_tool(build(tool_folder, "plain"), code).strip() == "['push x', 'pop'] None"


def test_the_numbers_are_those_of_when_the_annotation_was_made(tool: Path) -> None:
    code = """
        values = [1, 2]
        annotation = gpuprof.annotate("x", payload=values)
        values[0] = 9
        for _ in range(2):
            with annotation:
                pass
        gpuprof.range_end(gpuprof.range_start("y", payload=values))
        print([e.payload for e in tool.events("push", "start")])
    """
    assert check_under_tool(tool, code).strip() == "[[1, 2], [1, 2], [9, 2]]"


def test_traces_show_short_arrays_whole_and_long_ones_by_their_size(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with gpuprof.trace(path):
        gpuprof.mark("short", payload=(1.5, 2))
        gpuprof.mark("long", payload=range(1000))
        gpuprof.mark("bytes", payload=b"ab")
    shown = {each["name"]: each["args"]["payload"] for each in events(path, "i")}
    assert shown == {"short": [1.5, 2.0], "long": "1000 x int64", "bytes": [97, 98]}


WRONG = [
    (["a"], "payload: expected a list of int or float, got 'a'"),
    ([[1]], "payload: expected a list of int or float, got \\[1\\]"),
    ([None], "payload: expected a list of int or float, got None"),
    ({1, 2}, "payload: expected an int, a float, an array of numbers in host memory"),
    ({"a": 1}, "payload: expected an int, a float, an array of numbers in host memory"),
    ("text", "payload: expected an int, a float, an array of numbers in host memory"),
]


def test_characters_are_an_array_of_bytes() -> None:
    gpuprof.annotate("x", payload=memoryview(b"abcd").cast("c"))


@pytest.mark.parametrize(("payload", "message"), WRONG, ids=repr)
def test_what_is_no_array_of_numbers_is_refused(payload: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        gpuprof.annotate("x", payload=payload)


def test_structured_and_complex_elements_are_refused_by_their_format() -> None:
    numpy = pytest.importorskip("numpy", reason="the original package is not installed")
    for given in (numpy.zeros(2, "complex64"), numpy.zeros(2, [("a", "i4")]), numpy.array(["x"])):
        with pytest.raises(TypeError, match="payload: expected an array of numbers, got elements"):
            gpuprof.annotate("x", payload=given)


def test_an_array_that_has_no_buffer_is_refused_with_the_reason() -> None:
    numpy = pytest.importorskip("numpy", reason="the original package is not installed")
    with pytest.raises(
        TypeError, match=r"payload: expected an array .* got a numpy\.ndarray"
    ) as info:
        gpuprof.annotate("x", payload=numpy.zeros(2, "datetime64[s]"))
    assert isinstance(info.value.__cause__, ValueError)
    view = memoryview(b"ab")
    view.release()
    with pytest.raises(TypeError, match=r"payload: expected an array .* got a memoryview"):
        gpuprof.annotate("x", payload=view)


def test_a_list_may_hold_what_is_a_number_by_itself(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy", reason="the original package is not installed")
    path = tmp_path / "trace.json"
    with gpuprof.trace(path):
        gpuprof.mark("whole", payload=[numpy.int8(3), 4])
        gpuprof.mark("real", payload=(numpy.float32(0.5), 4))
        gpuprof.mark("large", payload=[2**70, -1])
    shown = {each["name"]: each["args"]["payload"] for each in events(path, "i")}
    assert shown == {"whole": [3, 4], "real": [0.5, 4.0], "large": [2.0**70, -1.0]}


def test_an_annotation_with_an_array_pickles(tool: Path) -> None:
    before = gpuprof.annotate("x", payload=[1, 2, 3])
    after = pickle.loads(pickle.dumps(before))
    assert after._options == before._options
