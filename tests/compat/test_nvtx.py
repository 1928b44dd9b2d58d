"""`gpuprof.compat.nvtx` and ``torch.cuda.nvtx`` at their edges: switches, domains, decorators."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from gpuprof.compat import nvtx
from gpuprof.compat import torch as compat_torch
from tests.nvtx_injection.build import build
from tests.support.processes import check_python, run_python


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvtx"), "extension")


def seen(tool: Path, code: str, **variables: str) -> list[str]:
    """Return each call as ``domain:kind text``; the domain of torch and nvtx is empty."""
    program = f"""
from gpuprof.compat import nvtx
from tests.nvtx_injection.tool import Tool
{code}
for e in Tool().events("push", "pop", "mark", "start", "end"):
    print(f"{{e.domain or ''}}:{{e.kind}} {{e.text or ''}}".strip())
"""
    return check_python(program, NVTX_INJECTION64_PATH=str(tool), **variables).splitlines()


def test_torchs_ranges_are_in_the_domain_without_a_name(tool: Path) -> None:
    code = """
from gpuprof.compat.torch import nvtx
assert [nvtx.range_push("outer"), nvtx.range_push("inner")] == [0, 1]
nvtx.mark("here")
assert [nvtx.range_pop(), nvtx.range_pop()] == [1, 0]
number = nvtx.range_start("open")
nvtx.range_end(number)
with nvtx.range("step {} of {total}", 3, total=9):
    pass
@nvtx.range("decorated")
def work():
    nvtx.mark("in it")
work()
"""
    assert seen(tool, code) == [
        *[":push outer", ":push inner", ":mark here", ":pop", ":pop"],
        *[":start open", ":end", ":push step 3 of 9", ":pop"],
        *[":push decorated", ":mark in it", ":pop"],
    ]


def test_both_packages_share_a_domain_and_its_order(tool: Path) -> None:
    code = """
nvtx.range_push("torch's")
with nvtx.annotate("nvtx's"):
    pass
nvtx.pop_range()
"""
    assert seen(tool, code) == [":push torch's", ":push nvtx's", ":pop", ":pop"]


def test_a_pop_without_a_push_pops_nobodys_range_and_warns_once(tool: Path) -> None:
    code = f"""
import os
os.environ["NVTX_INJECTION64_PATH"] = {str(tool)!r}
from gpuprof.compat import nvtx
with nvtx.annotate("a"):
    assert nvtx.range_pop() == -1
    nvtx.pop_range("other")
from tests.nvtx_injection.tool import Tool
print(Tool().calls())
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['push a', 'pop']"
    assert done.stderr.count("Warning") == 1
    assert "call push() first, on the same thread" in done.stderr


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({}, True),
        ({"GPUPROF_NVTX": "1"}, True),
        ({"GPUPROF_NVTX": "0"}, False),
        ({"GPUPROF_DISABLE": "1"}, False),
    ],
)
def test_the_environment_decides_whether_ranges_are_shown(
    tool: Path, variables: dict[str, str], shown: bool
) -> None:
    code = "nvtx.mark('x')\n"
    assert seen(tool, code, **variables) == ([":mark x"] if shown else [])


def test_functions_of_every_kind_are_decorated() -> None:
    @nvtx.annotate("plain", color="green")
    def plain(value: int) -> int:
        """Say so."""
        return value + 1

    @nvtx.annotate()
    async def awaited(value: int) -> int:
        return value + 2

    @nvtx.annotate("changes", payload=[1, 2])
    def changes(value: int) -> int:
        return value + 3

    assert (plain(1), asyncio.run(awaited(1)), changes(1)) == (2, 3, 4)
    assert (plain.__name__, plain.__doc__) == ("plain", "Say so.")


def test_a_payload_that_changed_is_read_at_each_entry(tool: Path) -> None:
    code = """
values = [1, 2]
region = nvtx.annotate("region", payload=values)
with region:
    values.append(3)
    with region:
        pass
assert [e.payload for e in Tool().events("push")] == [[1, 2], [1, 2, 3]]
"""
    assert len(seen(tool, code)) == 4


def test_colours_are_names_of_matplotlibs_too(tool: Path) -> None:
    pytest.importorskip("matplotlib", reason="the original package is not installed")
    code = """
nvtx.mark("a", color="tab:orange")
nvtx.mark("b", color=0x123456)
assert [hex(e.color & 0xFFFFFF) for e in Tool().events("mark")] == ["0xff7f0e", "0x123456"]
"""
    assert seen(tool, code) == [":mark a", ":mark b"]
    with pytest.raises(ValueError, match="octarine"):
        nvtx.mark("c", color="octarine")


def test_a_category_may_be_a_number(tool: Path) -> None:
    code = """
nvtx.mark("a", category=5)
assert [e.text for e in Tool().events("category")] == ["5"]
"""
    assert seen(tool, code) == [":mark a"]


def test_attributes_of_a_domain_are_used_again_and_changed(tool: Path) -> None:
    code = """
domain = nvtx.get_domain("engine")
assert domain is nvtx.get_domain("engine") and domain.name == "engine"
attributes = domain.get_event_attributes(message=domain.get_registered_string("a"))
domain.push_range(attributes)
domain.push_range(attributes, message="b", category=domain.get_category_id("c"))
domain.pop_range()
domain.pop_range()
domain.end_range(domain.start_range(attributes))
try:
    domain.mark(attributes, text="x")
except TypeError as error:
    assert "text: no such attribute" in str(error)
"""
    assert seen(tool, code) == [
        *["engine:push a", "engine:push b", "engine:pop", "engine:pop"],
        *["engine:start b", "engine:end"],
    ]


def test_an_annotation_pickles_as_its_arguments() -> None:
    before = nvtx.annotate("x", color="red", domain="d", category="c", payload=(1, 2))
    after = pickle.loads(pickle.dumps(before))
    assert after._arguments == before._arguments


def test_what_shows_nothing_does_nothing() -> None:
    assert nvtx.start_range() == (0, 0)
    nvtx.end_range(None)
    nvtx.mark()
    with nvtx.annotate():
        pass
    assert nvtx.enabled()


def test_torchs_functions_are_the_same_in_both_modules() -> None:
    for name in ("range_push", "range_pop", "range_start", "range_end", "range"):
        assert getattr(nvtx, name) is getattr(compat_torch.nvtx, name)


def test_threads_that_share_an_annotation_close_their_own_ranges(tool: Path) -> None:
    # The payload is read anew at each entry, so each has an annotation of its own.
    code = """
import threading
shared = nvtx.annotate("shared", payload=[1])
first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
def first():
    with shared:
        first_is_in.set()
        second_is_in.wait()
    nvtx.mark("first is out")
    first_is_out.set()
def second():
    first_is_in.wait()
    with shared:
        second_is_in.set()
        first_is_out.wait()
threads = [threading.Thread(target=each) for each in (first, second)]
for each in threads:
    each.start()
for each in threads:
    each.join(60)
"""
    pushes, rest = [":push shared"] * 2, [":pop", ":mark first is out", ":pop"]
    assert seen(tool, code) == pushes + rest


def test_an_unknown_colour_is_named() -> None:
    with pytest.raises((TypeError, ValueError), match="color: 'nope'"):
        nvtx.annotate("x", color="nope")
