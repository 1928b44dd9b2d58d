"""Kernels of compiled code and their modules: real code of inductor, kernels that note a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import run_fresh_python

pytestmark = pytest.mark.torch

_PREAMBLE = """
import json, warnings
warnings.simplefilter("ignore")
import torch
import gpuprof
from tests.support.compiled_code import LIBRARY, Net, Block, install
from torch._dynamo.utils import counters
gpu = install()
torch.manual_seed(0)
net, x = Net(), torch.randn(4, 8)

class Other(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = torch.nn.Sequential(Block(), torch.nn.Linear(8, 4), torch.nn.Tanh())

    def forward(self, x):
        return self.tower(x)

def step(model, x=x):
    with gpuprof.timer("forward"):
        y = model(x)
    gpu.run("loss")
    with gpuprof.timer("backward"):
        y.sum().backward()

def found(k):
    return [[r.name, "/".join(r.scope), r.module, r.line] for r in k.records]
"""

_PROGRAM = """
early, wide = Net(16), torch.randn(4, 16)
for block in early.encoder:
    block.act = torch.nn.Tanh()
early = torch.compile(early)
early(wide).sum().backward()  # before gpuprof is used
gpu.__init__()
with gpuprof.kernels() as k:
    step(early, wide)
result = {"early": found(k)}

gpu.__init__()
both = torch.compile(net), torch.compile(Other())
with gpuprof.trace(TRACE), gpuprof.kernels() as k:
    for _ in range(2):
        step(both[0])
result["records"] = found(k)
result["rows"] = {row.path: [row.module, row.count, row.entries] for row in k.rows}

gpu.__init__()
with gpuprof.kernels() as k:
    for model in (*both, both[1], both[0]):
        with gpuprof.timer("forward" if model is both[0] else "other"):
            model(x)
result["both"] = found(k)

gpu.__init__()
layers = Net(24).encoder
for layer in layers:
    layer.compile()
with gpuprof.kernels() as k:
    y = torch.randn(4, 24)
    for number, layer in enumerate(layers):
        with gpuprof.timer(f"layer {number}"):
            y = layer(y)
    with gpuprof.timer("backward"):
        y.sum().backward()
result["layers"] = found(k)

class Half(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        x = self.up(x).sin()
        torch._dynamo.graph_break()
        return self.down(x).cos()

class Broken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Half()
        self.second = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.SiLU())

    def forward(self, x):
        return self.second(self.first(x))

gpu.__init__()
model = torch.compile(Broken())
with gpuprof.kernels() as k:
    with gpuprof.timer("forward"):
        model(x)
result["broken"] = found(k)

class Short(Half):
    def forward(s, x):
        return s.down(s.up(x).sin()).cos()

def two(model, x):
    return model(x).exp()

gpu.__init__()
short = Short()
with gpuprof.kernels() as k:
    for scope, call in (("short", torch.compile(short)), ("two", torch.compile(two))):
        with gpuprof.timer(scope):
            call(*([short] if scope == "two" else []), x)
result["short"] = found(k)

from unittest import mock
gpu.__init__()
target = "gpuprof._frameworks.torch_inductor._copy_origins"
with mock.patch(target, side_effect=RuntimeError("broken")) as copy:
    model = torch.compile(Net(32))
    with gpuprof.kernels() as k:
        step(model, torch.randn(4, 32))
result["failed"], result["calls"] = found(k), copy.call_count
"""

_AGAIN = """
gpuprof.timer
with gpuprof.kernels() as k:
    step(torch.compile(net))
result = {"records": found(k), "hits": counters["inductor"]["fxgraph_cache_hit"]}
"""

# In the order in which they run; "" is the whole of the model.
_FORWARD = [
    *("encoder.0.up", "encoder.0.act", "encoder.0.down", "encoder.0"),
    *("encoder.1.up", "encoder.1.act", "encoder.1.down", "encoder.1"),
    *("head", "", ""),
]
_BACKWARD = [
    *("", "head", "head", "head", "encoder.1.norm", "encoder.1.norm"),
    *("encoder.1.down",) * 3,
    *("encoder.1.act", "encoder.1.up", "encoder.1.up", "encoder.1.up"),
    *("encoder.0", "encoder.0", "encoder.0.down", "encoder.0.down", "encoder.0.down"),
    *("encoder.0.act", "encoder.0.up", "encoder.0.up"),
]


Run = Callable[[str], Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def run(fake_path: Path, folder: Path) -> Run:
    """Run a program that sets `result`; all have their compiled code in one folder.

    Each is started from nothing: torch 2.8 to 2.10 name modules otherwise in a fork of a Python
    that has imported torch.
    """
    pytest.importorskip("torch", reason="torch is not installed")

    def run_body(body: str) -> Any:
        script = f"{_PREAMBLE}TRACE = {str(folder / 'trace.json')!r}\n{body}"
        done = run_fresh_python(
            f"{script}\nprint('RESULT', json.dumps(result))\n",
            timeout=400,
            driver=fake_path,
            TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"),
        )
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout.rpartition("RESULT ")[2])

    return run_body


@pytest.fixture(scope="module")
def seen(run: Run) -> Any:
    return run(_PROGRAM)


def modules(records: list[list[str]], scope: str) -> list[str]:
    return [module for _, path, module, _ in records if path.split("/")[0] == scope]


def test_kernels_have_their_modules_in_forward_and_backward(seen: Any) -> None:
    records = seen["records"]
    assert modules(records, "forward") == _FORWARD * 2
    assert modules(records, "backward") == _BACKWARD * 2
    assert [each[1:] for each in records if each[0] == "loss"] == [["", "", ""]] * 2
    lines = {line.split(":")[0] for name, _, _, line in records if name != "loss"}
    assert lines == {"support/compiled_code.py"}


def test_modules_are_rows_below_their_scopes(seen: Any) -> None:
    rows = seen["rows"]
    assert rows["forward"] == ["", 22, 2]
    assert rows["forward/encoder"] == ["encoder", 16, 0]
    assert rows["forward/encoder/0/up"] == ["encoder.0.up", 2, 0]
    assert rows["backward/encoder/1"] == ["encoder.1", 18, 0]


def test_code_from_a_cache_has_its_modules(seen: Any, run: Run) -> None:
    """Nothing is traced or generated again."""
    again = run(_AGAIN)
    assert again["hits"] >= 2
    assert modules(again["records"], "forward") == _FORWARD
    assert modules(again["records"], "backward") == _BACKWARD


def test_code_compiled_before_gpuprof_was_used_has_modules(seen: Any) -> None:
    """Backward passes have coarser ones: the module around those that are known on either side."""
    assert modules(seen["early"], "forward") == _FORWARD
    exact = 0
    for module, truth in zip(modules(seen["early"], "backward"), _BACKWARD, strict=True):
        assert f"{truth}.".startswith(f"{module}.") or not module, (module, truth)
        exact += module == truth
    assert exact >= 6


def test_two_compiled_regions_with_kernels_of_one_name_are_told_apart(seen: Any) -> None:
    records = seen["both"]
    names = [
        {name for name, path, *_ in records if path.startswith(scope) and "triton" in name}
        for scope in ("forward", "other")
    ]
    assert names[0] & names[1]
    tower = ["tower.0.up", "tower.0.act", "tower.0.down", "tower.0", "tower.1", "tower.2"]
    assert modules(records, "forward") == _FORWARD * 2
    assert modules(records, "other") == tower * 2


def test_layers_that_are_compiled_one_by_one_are_below_their_scopes(seen: Any) -> None:
    """They share one compiled function, in which no layer has the name of another."""
    records = seen["layers"]
    for number in range(2):
        assert modules(records, f"layer {number}") == ["up", "act", "down", ""]
    backward = {*modules(records, "backward")}
    assert {"up", "act", "down"} <= backward <= {"up", "act", "down", "norm", ""}


def test_after_a_graph_break_modules_begin_inside(seen: Any) -> None:
    assert modules(seen["broken"], "forward") == ["up", "", "down", "", "0", "1"]


def test_modules_of_a_method_begin_below_its_first_argument(seen: Any) -> None:
    """Whatever its name; one that a function calls is a part of it."""
    assert modules(seen["short"], "short") == ["up", "", "down", ""]
    assert modules(seen["short"], "two") == ["model.up", "model", "model.down", ""]


def test_slices_of_a_trace_are_inside_their_modules(seen: Any, folder: Path) -> None:
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    slices = [each for each in events if each.get("ph") == "X"]
    kernels = [each for each in slices if each["name"] == "triton_poi_fused_gelu_0"]
    assert [each["args"]["scope"] for each in kernels] == [
        *("forward/encoder/0/act", "forward/encoder/1/act") * 2
    ]
    second = kernels[1]
    assert second["args"]["line"].startswith("support/compiled_code.py:")
    around = [
        each["name"]
        for each in slices
        if each["tid"] == second["tid"]
        and each["ts"] <= second["ts"]
        and each["ts"] + each["dur"] >= second["ts"] + second["dur"]
        and each["cat"] == "gpu_user_annotation"
    ]
    assert around == ["forward", "encoder", "1", "act"]
    # What runs of one module in a row is in one slice of it.
    assert sum(each["name"] == "head" for each in slices) == 2 * 2


def test_a_compilation_never_fails_for_the_origins(seen: Any) -> None:
    assert seen["calls"] >= 1
    assert modules(seen["failed"], "forward") == _FORWARD
