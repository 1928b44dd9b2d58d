"""What ``gpuprof run`` measures of a program that uses torch and does not know of gpuprof."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.programs import Ended, counts, measured, rows, script
from tests.support.warm_torch import WarmTorch

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch

MODEL = """
import sys, time, warnings
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
        self.head = nn.Linear(8, 1)
    def forward(self, x):
        x = self.body(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

def data(workers=0):
    set = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
    return DataLoader(set, batch_size=4, num_workers=workers)
"""
TRAIN = """
def train(model, batches, step=lambda loss: loss.backward()):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        step(loss)
        optimizer.step()
    print(loss.item())
"""


Run: TypeAlias = Callable[..., tuple[Ended, dict[str, int]]]


@pytest.fixture
def run(tmp_path: Path, warm_torch: WarmTorch) -> Run:
    """Run a script, which must end well, and return the count of each row."""

    def run_code(
        code: str, *options: str, by: Callable[..., Ended] = warm_torch.measured
    ) -> tuple[Ended, dict[str, int]]:
        name = script(tmp_path, MODEL + TRAIN + code)
        done = by(tmp_path, *options, "--stats", "s.json", name, program=name)
        assert (done.status, done.err) == (0, "")
        return done, counts(tmp_path / "s.json")

    return run_code


def test_modules_are_rows_down_to_the_depth(
    tmp_path: Path, warm_torch: WarmTorch, run: Run
) -> None:
    code = "train(Net(), data())\n"
    none, found = run(code, "--watch", "0")
    assert found == {}
    two, found = run(code, "--watch", "2", by=measured)  # which imports torch itself
    of_modules = ["Net", "Net/body", "Net/layers.0", "Net/layers.1", "Net/head"]
    assert found == {
        "dataloader": 5,
        **dict.fromkeys(of_modules, 4),
        "backward": 4,
        "optimizer.step": 4,
    }
    assert none.out == two.out == warm_torch.plain(tmp_path, "script.py").out


def test_one_level_is_what_nobody_asked_for(run: Run) -> None:
    _, found = run("train(Net(), data(workers=1))\n")
    assert found == {"dataloader": 5, "Net": 4, "backward": 4, "optimizer.step": 4}


def test_an_exception_in_a_module_closes_its_scopes_and_keeps_its_traceback(
    tmp_path: Path, warm_torch: WarmTorch
) -> None:
    code = """
class Failing(nn.Module):
    def forward(self, x):
        raise x
model = nn.Sequential(nn.Identity(), Failing())
for error in (ValueError(), KeyboardInterrupt()):
    try:
        model(error)
    except (ValueError, KeyboardInterrupt):
        pass
time.sleep(0.05)
nn.Identity()(1)
nn.Sequential(nn.Identity())(1)
model(ValueError("the last"))
"""
    name = script(tmp_path, MODEL + code)
    expected = warm_torch.plain(tmp_path, name)
    done = warm_torch.measured(tmp_path, "--watch", "2", "--stats", "s.json", name, program=name)
    assert done.status == expected.status == 1
    assert done.err.splitlines()[-1] == expected.err.splitlines()[-1] == "ValueError: the last"
    assert "gpuprof" not in done.err
    found = rows(tmp_path / "s.json")
    assert found["Sequential/1"]["failed"] == 3
    assert found["Sequential"]["failed"] == 3
    assert found["Identity"]["host"]["count"] == 1
    assert found["Sequential#2/0"]["host"]["count"] == 1


def test_a_data_set_that_fails_shows_no_frame_of_gpuprof(
    tmp_path: Path, warm_torch: WarmTorch
) -> None:
    code = """
class Failing(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        raise IndexError("from the data")
for _ in DataLoader(Failing()):
    pass
"""
    name = script(tmp_path, MODEL + code)
    expected = warm_torch.plain(tmp_path, name)
    done = warm_torch.measured(tmp_path, name, program=name)
    assert (done.status, done.out, done.err) == expected[:3]


def test_transforms_are_a_part_of_the_wait_for_a_batch(run: Run) -> None:
    code = """
class Transformed(torch.utils.data.Dataset):
    work = nn.Linear(4, 4)
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return self.work(torch.randn(4)).detach()
for _ in DataLoader(Transformed(), batch_size=2):
    pass
"""
    _, found = run(code)
    assert found == {"dataloader": 3}


def test_each_thing_has_its_place(tmp_path: Path, run: Run) -> None:
    code = """
from torch.utils.checkpoint import checkpoint

# Two models of a class are two rows, and one that is made anew is one.
models = [Net(), Net()]
for model in models:
    model(torch.randn(2, 4))
for _ in range(3):
    nn.MSELoss()(torch.zeros(1), torch.zeros(1))

# What a checkpoint runs again is a part of the backward pass.
class Outer(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.net = Net()
        self.reentrant = reentrant
    def forward(self, x):
        return checkpoint(self.net, x.requires_grad_(), use_reentrant=self.reentrant)
for reentrant in (True, False):
    outer = Outer(reentrant)
    outer(torch.ones(2, 4)).sum().backward()

# A step that fails ends with it.
def fail():
    raise ValueError
try:
    torch.optim.SGD(models[0].parameters(), lr=0.1).step(fail)
except ValueError:
    pass
nn.Identity()(1)

# A closure runs inside of the step.
class Inner(Net): ...
model = Inner()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)
def closure():
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    return loss
optimizer.step(closure)
model(torch.ones(2, 4))
"""
    _, found = run(code, by=measured)
    assert found["optimizer.step"] == 1
    assert found["optimizer.step/Inner"] == found["optimizer.step/backward"] >= 1
    del found["optimizer.step"], found["optimizer.step/Inner"], found["optimizer.step/backward"]
    assert found == {
        "Net": 1,
        "Net#2": 1,
        "MSELoss": 3,
        "Outer": 2,
        "backward": 2,
        "Identity": 1,
        "Inner": 1,
    }
    assert rows(tmp_path / "s.json")["optimizer.step"]["failed"] == 1


def test_compiled_models_are_what_they_are_without(tmp_path: Path, warm_torch: WarmTorch) -> None:
    code = """
from torch._dynamo.utils import counters
warnings.filterwarnings("error", message=".*global hooks")

def whole_step():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    @torch.compile(backend="eager")
    def step(x):
        model(x).sum().backward()
        optimizer.step()
    for _ in range(3):
        step(torch.ones(2, 4))
    print(model.head.bias.item())

def in_place():
    model = Net()
    model.compile(backend="eager", fullgraph=True)
    train(model, data())

def part():
    model = Net()
    model.body.compile(backend="aot_eager")
    train(model, data())

for each in (
    lambda: train(torch.compile(Net(), backend="eager", fullgraph=True), data()),
    lambda: train(torch.compile(Net(), backend="aot_eager"), data()),
    in_place,
    part,
    whole_step,
):
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    each()
    print(counters["stats"])
"""
    name = script(tmp_path, MODEL + TRAIN + code)
    expected = warm_torch.plain(tmp_path, name)
    assert expected.status == 0, expected.err
    done = measured(tmp_path, "--watch", "2", "--stats", "s.json", name, program=name)
    assert (done.status, done.out) == (0, expected.out), done.err


def test_a_compiled_model_is_one_row_with_its_own_name(run: Run) -> None:
    code = "train(torch.compile(Net(), backend='eager', fullgraph=True), data())"
    _, found = run(code, "--watch", "3")
    assert found == {"dataloader": 5, "Net": 4, "backward": 4, "optimizer.step": 4}


def test_a_graph_that_breaks_loses_no_scope_and_calls_nothing_without_end(run: Run) -> None:
    code = """
import logging
logging.disable()  # torch tells of the graph's break
class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
    def forward(self, x):
        x = self.inner(x)
        torch._dynamo.graph_break()
        return x.sum() * x.sum().item()
def step(x):
    breaks(x).backward()
breaks = Breaks()
compiled = torch.compile(step, backend="eager")
for _ in range(4):
    compiled(torch.ones(1, 3))
"""
    _, found = run(code, by=measured)
    assert found == {"Breaks": 4, "backward": 4}


def test_wrapped_models_have_their_own_name_and_level(run: Run) -> None:
    code = """
import os
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
train(nn.parallel.DistributedDataParallel(Net()), data())
torch.distributed.destroy_process_group()
"""
    _, found = run(code, "--watch", "2")
    assert found["Net"] == found["Net/body"] == found["Net/head"] == 4
    assert not [name for name in found if "module" in name or "Distributed" in name]


def test_what_waits_for_a_gpu_is_a_row(run: Run) -> None:
    code = """
import contextlib, pickle
on_cpu, on_gpu = torch.ones(()), torch.ones(())
torch.Tensor.is_cuda = property(lambda tensor: tensor is on_gpu)
with torch.device("cpu"):  # a mode of functions, which gets the call
    on_gpu.item()
on_gpu.item(), on_cpu.item(), torch.Tensor.item(on_gpu), nn.Parameter(on_gpu).item()
torch.cuda._lazy_init = torch._C._cuda_synchronize = lambda: None
torch.cuda.device = contextlib.nullcontext
torch.cuda.synchronize()
assert pickle.loads(pickle.dumps(torch.Tensor.item)) is torch.Tensor.item
assert pickle.loads(pickle.dumps(torch.cuda.synchronize)) is torch.cuda.synchronize
"""
    _, found = run(code, by=measured)
    assert found == {"waiting/item": 3, "waiting/synchronize": 1}


def test_tensors_are_what_they_are_without(tmp_path: Path, warm_torch: WarmTorch) -> None:
    code = """
import torch._dynamo
from torch.overrides import TorchFunctionMode
torch._dynamo.config.capture_scalar_outputs = True
class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        print(function.__name__, function is torch.Tensor.item)
        return function(*args, **(kwargs or {}))
class Quiet(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        print(function.__name__)
        return super().__torch_function__(function, types, args, kwargs)
class NoLook(torch.Tensor):
    @property
    def is_cuda(self):
        raise RuntimeError("looked")
x = torch.ones(1)
def in_mode():
    with Mode():
        return x.item()
def compiled(function, *arguments):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="eager")(*arguments)
def quiet(x):
    with Quiet():
        return x.item() + x.to("cpu")
def default(x):
    return x.item() + x.cpu()
for each in (
    lambda: nn.Sequential(nn.LazyLinear(3)).to("cpu").cpu().double(),
    lambda: nn.UninitializedParameter().cpu().shape,
    in_mode, x.as_subclass(Sub).item, x.as_subclass(NoLook).item,
    torch.Tensor.item, lambda: torch.Tensor.item(3), lambda: torch.Tensor.item(self=x),
    lambda: x.to("no device"), lambda: x.to(x=1), lambda: torch.ones(2).item(),
    lambda: compiled(default, x), lambda: compiled(quiet, x),
    lambda: compiled(lambda x: torch.Tensor.item(x) + 1, x),
    lambda: compiled(lambda xs: list(map(torch.Tensor.item, xs)), [x, x]),
    lambda: compiled(lambda xs: list(map(torch.Tensor.cpu, xs)), [x, x]),
    lambda: compiled(lambda x: torch.Tensor.to(x, "cpu") + 1, x),
    lambda: torch.set_default_device("cpu"), lambda: compiled(default, x),
):
    try:
        print(each())
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""
    name = script(tmp_path, MODEL + code)
    expected = warm_torch.plain(tmp_path, name)
    assert expected.status == 0, expected.err
    done = measured(tmp_path, name, program=name)  # before the compiler knows these functions
    assert (done.status, done.out) == (0, expected.out), done.err


def test_torch_is_as_it_was_at_the_end_and_in_children(run: Run) -> None:
    code = """
import atexit, os
hooks = torch.nn.modules.module
def state():
    return (len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks),
            torch.autograd.backward.__module__, hasattr(torch.autograd.backward, "__wrapped__"))
print(state())
child = os.fork()
if child == 0:
    print(state(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done, _ = run(code, by=measured)
    assert done.out.splitlines() == [
        "(1, 1, 'torch.autograd', True)",
        "(0, 0, 'torch.autograd', False)",
    ]


def test_what_is_pickled_and_copied_has_nothing_of_it(
    tmp_path: Path, warm_torch: WarmTorch
) -> None:
    code = """
import copy, io, pickle
model = Net()
model(torch.ones(1, 4))
copy.deepcopy(model), pickle.loads(pickle.dumps(torch.autograd.backward))
torch.save(model.state_dict(), io.BytesIO())
print(b"gpuprof" in pickle.dumps(model))
torch.jit.script(model.body)
torch.jit.trace(model.body, torch.ones(1, 4))
torch.export.export(model, (torch.ones(1, 4),))
torch.fx.symbolic_trace(model.body)
"""
    name = script(tmp_path, MODEL + code)
    expected = warm_torch.plain(tmp_path, name)
    done = warm_torch.measured(tmp_path, "--watch", "2", name, program=name)
    assert done[:2] == expected[:2]
    assert done.out == "False\n"


def test_a_program_without_torch_does_not_get_it(tmp_path: Path) -> None:
    name = script(tmp_path, "import sys\nprint('torch' in sys.modules, 'numpy' in sys.modules)\n")
    assert measured(tmp_path, name, program=name).out == "False False\n"
