"""Kernels of compiled code on a GPU: those of Triton and of libraries, each under its module."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support.frameworks import torch_or_skip
from tests.support.processes import result_of

_PREAMBLE = """
import json, warnings
warnings.simplefilter("ignore")
import torch
import gpuprof
from tests.support.compiled_code import Net

torch.manual_seed(0)
net, x = Net(64).cuda(), torch.randn(32, 64, device="cuda")

def step(model):
    net.zero_grad(set_to_none=True)
    with gpuprof.timer("forward"):
        y = model(x)
    with gpuprof.timer("loss"):
        loss = y.square().sum()
    with gpuprof.timer("backward"):
        loss.backward()

def collected(model, times=2):
    step(model)
    torch.cuda.synchronize()
    with gpuprof.kernels() as k:
        for _ in range(times):
            step(model)
    print(k)
    return [[r.name, r.scope[0] if r.scope else "", r.module, r.line] for r in k.records]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch_or_skip()
    pytest.importorskip("triton", reason="torch.compile needs Triton")
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("torch.compile needs a C compiler")
    return tmp_path_factory.mktemp("inductor")


def run(folder: Path, body: str, cache: str = "cache") -> Any:
    """Run a program that sets `result`; code that was compiled lies in a folder of that name."""
    script = _PREAMBLE + textwrap.dedent(body)
    return result_of(script, timeout=400, TORCHINDUCTOR_CACHE_DIR=str(folder / cache))


def triton(records: list[list[str]], scope: str) -> list[tuple[str, str]]:
    return [(name, module) for name, of, module, _ in records if of == scope and "triton_" in name]


def layers(records: list[list[str]], scope: str) -> list[str]:
    """Return the layers of Triton's kernels in the order in which they came first."""
    found = [".".join(module.split(".")[:2]) for _, module in triton(records, scope)]
    return [*dict.fromkeys(each for each in found if each.startswith("encoder."))]


def check(records: list[list[str]], *, is_replay: bool = False) -> None:
    forward, backward = triton(records, "forward"), triton(records, "backward")
    assert forward
    assert backward
    # Layer by layer, and back; one Triton kernel serves both layers.
    assert layers(records, "forward") == ["encoder.0", "encoder.1"]
    assert layers(records, "backward") == ["encoder.1", "encoder.0"]
    gelu = [(name, module) for name, module in forward if "gelu" in name]
    assert len({name for name, _ in gelu}) < len(gelu)
    for (_, module), layer in zip(gelu, ["encoder.0", "encoder.1"] * 2, strict=True):
        # The bias of the product before it may be in the same kernel.
        assert module in (layer, f"{layer}.act")
    for scope in ("forward", "backward"):
        modules = {module for name, of, module, _ in records if of == scope}
        products = {
            module
            for name, of, module, _ in records
            if of == scope and "triton_" not in name and module
        }
        # A library may launch more in a capture, and then its kernels have the module around all.
        assert is_replay or {"encoder.0.down", "encoder.1.down"} <= products, products
        known = {f"encoder.{n}{part}" for n in range(2) for part in ("", ".up", ".act", ".down")}
        assert modules <= {*known, "encoder.0.norm", "encoder.1.norm", "encoder", "head", ""}
    assert all(line for name, of, _, line in records if "triton_" in name)
    assert {module for _, of, module, _ in records if of == "loss"} == {""}


def test_triton_kernels_have_their_modules_in_forward_and_backward(folder: Path) -> None:
    """Also in a second process, for which a cache has the code."""
    for _ in range(2):
        check(
            run(
                folder,
                """
                gpuprof.timer  # before anything is compiled
                result = collected(torch.compile(net))
                """,
            )
        )


def test_code_compiled_before_gpuprof_was_used_has_modules(folder: Path) -> None:
    records = run(
        folder,
        """
        model = torch.compile(net)
        model(x).square().sum().backward()
        result = collected(model)
        """,
        cache="early",
    )
    assert layers(records, "forward") == ["encoder.0", "encoder.1"]
    assert {module.split(".")[0] for _, module in triton(records, "backward")} <= {
        *("encoder", "head", "")
    }
    assert {"encoder.0", "encoder.1"} <= {*layers(records, "backward")}


def test_replays_of_graphs_have_the_modules_of_their_code(folder: Path) -> None:
    """Forward and backward are a graph each, and nobody calls the compiled function."""
    eager, replayed = run(
        folder,
        """
        gpuprof.timer
        eager = collected(torch.compile(net))
        fast = gpuprof.make_graphed_callable(net, (x,), compile=True)
        result = [eager, collected(fast)]
        assert fast.stats().replays >= 3, fast.stats()
        """,
    )
    check(eager)
    check(replayed, is_replay=True)
    for scope in ("forward", "backward"):
        assert triton(replayed, scope) == triton(eager, scope)


def test_replays_of_torchs_own_graphs_have_modules(folder: Path) -> None:
    check(
        run(
            folder,
            """
            gpuprof.timer
            model = torch.compile(net, mode="reduce-overhead")

            def marked(x):
                torch.compiler.cudagraph_mark_step_begin()
                return model(x)

            for _ in range(3):  # torch warms up, and captures in the second one
                step(marked)
            result = collected(marked)
            """,
        )
    )


def test_layers_that_are_compiled_one_by_one_are_below_the_scopes_around_them(
    folder: Path,
) -> None:
    found = run(
        folder,
        """
        for block in net.encoder:
            block.compile()

        def layers():
            y = x
            for number, block in enumerate(net.encoder):
                with gpuprof.timer(f"layer {number}"):
                    y = block(y)

        layers()
        with gpuprof.kernels() as k:
            layers()
        result = [[r.scope[0], r.module] for r in k.records if "gelu" in r.name]
        """,
    )
    assert [scope for scope, _ in found] == ["layer 0", "layer 1"]
    assert {module for _, module in found} <= {"act", ""}
