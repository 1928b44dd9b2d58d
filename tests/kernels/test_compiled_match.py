"""Which module records are given where what compiled functions launch is told by the test.

Further below, what they launch where the sources of inductor are told, without torch.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpuprof
from gpuprof._frameworks import torch_inductor
from gpuprof._frameworks.torch_inductor import Launch, Origin, launches
from tests.support.gpu_records import COPY, Recording

Given = Callable[..., None]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """Let functions be compiled: each is a text, as "relu:a.act gemm:b relu:b.act"."""

    def give(*functions: str) -> None:
        found = [[launch(each) for each in function.split()] for function in functions]
        monkeypatch.setattr("gpuprof._kernels.compiled.launches", lambda _names: found)

    return give


def launch(text: str) -> Launch:
    name, _, module = text.partition(":")
    origin = None if module == "?" else Origin(module, f"model.py:{len(module)} in forward")
    return Launch("" if name == "gemm" else name, origin)


def modules(gpu: Recording, names: str | Sequence[str], scope: str = "step") -> list[str]:
    with gpuprof.kernels() as k, gpuprof.timer(scope):
        for name in names.split() if isinstance(names, str) else names:
            gpu.run(name)
    return [each.module for each in k.records]


def test_a_kernel_that_serves_two_layers_has_the_module_of_each(
    gpu: Recording, given: Given
) -> None:
    given("relu:a.act add:a relu:b.act add:b")
    assert modules(gpu, "relu add relu add " * 3) == ["a.act", "a", "b.act", "b"] * 3


def test_kernels_of_libraries_are_those_between(gpu: Recording, given: Given) -> None:
    given("gemm:a relu:a.act gemm:b gemm:c add:d gemm:e")
    # Also from one call's end to the next one's begin, where there are as many.
    found = modules(gpu, "gemm relu gemm gemm add gemm " * 2)
    assert found == ["a", "a.act", "b", "c", "d", "e"] * 2


def test_several_kernels_for_one_product_share_its_module(gpu: Recording, given: Given) -> None:
    """Also copies and what clears a workspace."""
    given("relu:a.act gemm:a.one gemm:a.two add:b gemm:c relu:d")
    names = "relu split gemm split gemm add split reduce relu"
    assert modules(gpu, names) == ["a.act", "a", "a", "a", "a", "b", "c", "c", "d"]


def test_copies_between_are_left_out_where_the_kernels_are_as_many(
    gpu: Recording, given: Given
) -> None:
    given("relu:a gemm:b gemm:c add:d")
    with gpuprof.kernels() as k:
        gpu.run("relu")
        gpu.run("Memcpy DtoD", kind=COPY)
        for name in ("gemm", "gemm", "add"):
            gpu.run(name)
    assert [each.module for each in k.records] == ["a", "", "b", "c", "d"]


def test_kernels_around_a_call_that_may_be_others_have_none(gpu: Recording, given: Given) -> None:
    given("gemm:a relu:a.act gemm:b")
    assert modules(gpu, "eager gemm relu gemm eager") == ["", "", "a.act", "", ""]


def test_scopes_part_what_is_of_a_call_from_what_is_not(gpu: Recording, given: Given) -> None:
    given("gemm:a relu:a.act gemm:b", "gemm:b add:a gemm:a")
    with gpuprof.kernels() as k:
        for scope, names in (
            ("forward", "gemm relu gemm"),
            ("loss", "eager gemm"),
            ("backward", "gemm add gemm"),
        ):
            with gpuprof.timer(scope):
                for name in names.split():
                    gpu.run(name)
    found = [each.module for each in k.records]
    assert found == ["a", "a.act", "b", "", "", "b", "a", "a"]


def test_entries_of_one_scope_part_calls_from_what_is_between(gpu: Recording, given: Given) -> None:
    given("gemm:a relu:a.act gemm:b")
    with gpuprof.kernels() as k:
        for _ in range(2):
            with gpuprof.timer("forward"):
                for name in ("gemm", "relu", "gemm"):
                    gpu.run(name)
            with gpuprof.timer("loss"):
                gpu.run("gemm")
    assert [each.module for each in k.records] == ["a", "a.act", "b", ""] * 2


def test_functions_with_kernels_of_one_name_are_told_apart_by_what_follows(
    gpu: Recording, given: Given
) -> None:
    given("relu:a gemm:a.x add:b", "relu:c gemm:c.x mul:d")
    names = "relu gemm mul relu gemm add relu gemm mul"
    assert modules(gpu, names) == ["c", "c.x", "d", "a", "a.x", "b", "c", "c.x", "d"]


def test_what_cannot_be_told_apart_has_the_module_around_both(gpu: Recording, given: Given) -> None:
    given("relu:model.a gemm:model.a.x add:model.a", "relu:model.b gemm:model.b.x add:model.b")
    assert modules(gpu, "relu gemm add") == ["model", "model", "model"]


def test_a_kernel_that_was_left_out_moves_no_other(gpu: Recording, given: Given) -> None:
    """As where a size is zero. The layers after it are the last ones before the function ends."""
    given("begin:a relu:l.0 add:l.0 relu:l.1 add:l.1 relu:l.2 add:l.2 end:z")
    names = "begin relu add relu relu add end"
    assert modules(gpu, names) == ["a", "l.0", "l.0", "l.1", "l.2", "l.2", "z"]


def test_a_block_that_begins_in_the_middle_finds_its_place(gpu: Recording, given: Given) -> None:
    given("begin:a relu:l.0 relu:l.1 end:z")
    assert modules(gpu, "relu end begin relu relu end") == ["l.1", "z", "a", "l.0", "l.1", "z"]


def test_a_kernel_that_is_always_left_out_moves_no_other(gpu: Recording, given: Given) -> None:
    """What follows the gap is not taken for the begin of a call, which has that kernel, too."""
    given("relu:l.0 add:l.0 skip:c relu:l.1 add:l.1")
    assert modules(gpu, "relu add relu add " * 3) == [
        *("l.0", "l.0"),
        *("l.1", "l.1", "l.0", "l.0") * 2,
        *("l", "l"),
    ]


def test_calls_of_one_kernel_are_told_apart_by_where_the_block_begins(
    gpu: Recording, given: Given
) -> None:
    given("relu:l.0 relu:l.1")
    assert modules(gpu, "relu relu " * 3) == ["l.0", "l.1"] * 3


def test_a_kernel_that_serves_very_many_layers_takes_no_time_for_each_pair(
    gpu: Recording, given: Given
) -> None:
    layers = 600
    given(" ".join(["begin:a", *(f"relu:l.{number}" for number in range(layers)), "end:z"]))
    found = modules(gpu, "relu " * layers + "end")  # it begins after the first kernel
    assert found == [*(f"l.{number}" for number in range(layers)), "z"]


def test_threads_that_share_a_stream_are_followed_one_by_one(gpu: Recording, given: Given) -> None:
    given("relu:a add:b relu:c add:d")
    with gpuprof.kernels() as k:
        begin = 1_000_000
        for number, name in enumerate(["relu", "relu", "add", "add"] * 2):
            call = gpu.call(thread=1 + number % 2)
            gpu.work(name, call, begin + 1_000 * number, 900)
    assert [each.module for each in k.records] == ["a", "a", "b", "b", "c", "c", "d", "d"]


def test_what_only_a_module_is_around_was_launched_in_no_scope(
    gpu: Recording, given: Given
) -> None:
    given("relu:a.act add:b")
    with gpuprof.kernels() as k:
        for name in ("relu", "add", "eager"):
            gpu.run(name)
    assert any(note.startswith("3 of 3 were launched in no scope") for note in k.notes), k.notes


def test_streams_are_followed_one_by_one(gpu: Recording, given: Given) -> None:
    given("relu:a add:b mul:c")
    with gpuprof.kernels() as k:
        for name in ("relu", "add", "mul"):
            for stream in (7, 8):
                gpu.run(name, stream=stream)
    assert [each.module for each in k.records] == ["a", "a", "b", "b", "c", "c"]


def test_an_origin_that_is_not_known_is_none(gpu: Recording, given: Given) -> None:
    given("relu:? gemm:? add:b")
    with gpuprof.kernels() as k:
        for name in ("relu", "gemm", "add"):
            gpu.run(name)
    assert [(each.module, each.line) for each in k.records] == [
        *(("", ""), ("", ""), ("b", "model.py:1 in forward"))
    ]
    assert [each.path for each in k.rows] == ["b", "(no scope)"]


def test_replays_have_modules_below_the_scopes_of_the_capture(gpu: Recording, given: Given) -> None:
    given("gemm:a relu:a.act gemm:b")
    with gpuprof.kernels() as k:
        for _ in range(2):
            with gpuprof.timer("serve"):
                call = gpu.call("cudaGraphLaunch")
                begin = gpu.launches[-1]["begin_ns"]
                for at, name in enumerate(("gemm", "relu", "gemm")):
                    gpu.work(name, call, begin + 1_000 * at, 900, graph_id=3, node_id=at + 1)
    assert [each.module for each in k.records] == ["a", "a.act", "b"] * 2
    rows = {row.path: row for row in k.rows}
    assert [*rows] == ["serve", "serve/a", "serve/a/act", "serve/b"]
    assert [row.module for row in rows.values()] == ["", "a", "a.act", "b"]
    assert rows["serve/a"].count == 4
    assert rows["serve/a"].self_ms == pytest.approx(0.0018)


def test_a_failure_is_a_note_and_no_more(gpu: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_names: object) -> None:
        message = "another torch"
        raise AttributeError(message)

    monkeypatch.setattr("gpuprof._kernels.compiled.launches", fail)
    with gpuprof.kernels() as k:
        gpu.run("relu")
    assert [each.module for each in k.records] == [""]
    assert any("another torch" in note for note in k.notes)


def test_a_module_can_be_asked_for_as_a_scope_can(gpu: Recording, given: Given) -> None:
    given("relu:a.act add:a")
    with gpuprof.kernels() as k, gpuprof.timer("step"):
        gpu.run("relu")
        gpu.run("add")
    assert [each.name for each in k.by_kernel("step/a/act")] == ["relu"]
    assert len(k.by_kernel("step/a")) == 2
    assert k.to_dict()["rows"][1]["module"] == "a"


RELU = "triton_poi_fused_relu_0"
_SOURCE = f"""
{RELU} = async_compile.triton('{RELU}', '''
def {RELU}(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')

triton_own_0 = async_compile.triton('triton_own', '''
def triton_own(in_ptr0):
    pass
''', device_str='cuda')

def call(args):
    # Topologically Sorted Source Nodes: [up], Original ATen: [aten.relu]
    {RELU}.run(buf0, 8, stream=stream0)
    # Topologically Sorted Source Nodes: [own], Original ATen: []
    triton_own_0.run(buf0, stream=stream0)
    # Topologically Sorted Source Nodes: [down, unknown], Original ATen: [aten.relu]
    {RELU}.run(buf1, 8, stream=stream0)
    return (buf1, )
"""
_NODES = {name: Origin(f"layer.{name}", "model.py:1 in forward") for name in ("up", "own", "down")}

Compiled = Callable[..., Any]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiled:
    """Add compiled code, one with a traced graph or without; returns what calls it."""
    modules: list[Any] = []
    graphs: dict[str, dict[str, Origin]] = {}
    codecache = SimpleNamespace(PyCodeCache=SimpleNamespace(modules=modules))
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", codecache)
    monkeypatch.setattr(torch_inductor, "_graphs_of", lambda _files: graphs)

    def add(*, has_graph: bool = True) -> Any:
        file = tmp_path / f"{len(modules)}.py"
        file.write_text(_SOURCE)
        if has_graph:
            graphs[str(file)] = _NODES
        modules.append(SimpleNamespace(__file__=str(file), call=lambda: len(modules)))
        return modules[-1].call

    return add


def test_launches_have_the_origins_of_their_nodes(compiled: Compiled) -> None:
    compiled()
    up, own, down = _NODES.values()
    assert launches({RELU}) == [[Launch(RELU, up), Launch("", own), Launch(RELU, down)]]


def test_triton_kernels_of_the_users_are_known_by_no_name(compiled: Compiled) -> None:
    """They may run elsewhere, too."""
    compiled()
    assert launches({"triton_own"}) == []


def test_code_whose_graph_is_not_found_is_not_taken_for_that_of_another(
    compiled: Compiled,
) -> None:
    compiled()
    call = compiled(has_graph=False)
    known, unknown = launches({RELU})
    assert known[0].origin is not None
    assert [each.kernel for each in unknown] == [RELU, "", RELU]
    assert {each.origin for each in unknown} == {None}
    assert call() == 2


def test_code_that_nobody_can_call_any_more_is_none(compiled: Compiled) -> None:
    compiled()
    compiled(has_graph=False)
    assert len(launches({RELU})) == 1


def test_objects_behind_a_compiled_function_are_asked_for_nothing() -> None:
    class Odd:
        def __iter__(self) -> Iterator[int]:
            raise AssertionError

    gone = weakref.proxy(Odd())  # asked for its class it raises

    def forward() -> Any:
        return gone

    assert torch_inductor._files_behind(forward, {__file__}) == {__file__}
    assert torch_inductor._files_behind(forward, {"other.py"}) == set()
