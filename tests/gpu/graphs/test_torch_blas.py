"""The first cuBLAS call of a process, or of a thread, in a capture of torch's work."""

from __future__ import annotations

import pytest

from tests.gpu.support.callables import run_torch_script
from tests.gpu.support.frameworks import torch_or_skip

_SETUP = """
import threading
a = torch.randn(64, 64, device="cuda")
b = torch.randn(64, 64, device="cuda")

def work():
    return a @ b

def check(replay, result):
    for _ in range(3):
        a.normal_()
        replay()
        torch.testing.assert_close(result(), work())
"""


@pytest.fixture(autouse=True)
def torch() -> None:
    torch_or_skip()


_BODIES = {
    "a product": "a @ b",
    "a layer with a bias": "torch.nn.functional.linear(a.half(), b.half(), b[0].half())",
    "a batched product": "torch.bmm(a.view(4, 16, 64), b.view(4, 64, 16))",
    "a product of matrix and vector": "a @ b[0]",
}


@pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
@pytest.mark.parametrize("mode", ["thread_local", "global"])
def test_a_body_may_be_the_first_to_use_cublas(body: str, mode: str) -> None:
    run_torch_script(
        _SETUP
        + f"""
work = lambda: {body}
with gpuprof.capture(mode={mode!r}) as cap:
    out = work()
check(cap.graph.launch, lambda: out)
"""
    )


def test_a_callable_may_be_captured_without_a_warmup() -> None:
    run_torch_script(
        _SETUP
        + """
fast = gpuprof.make_graphed_callable(lambda x, y: x @ y, (a, b), warmup=0)
check(lambda: None, lambda: fast(a, b))
assert fast.stats().replays == 3 and fast.stats().failures == 0
"""
    )


def test_another_thread_may_be_the_first_to_use_cublas_in_a_capture() -> None:
    run_torch_script(
        _SETUP
        + """
work()
def run():
    with gpuprof.capture() as cap:
        out = work()
    check(cap.graph.launch, lambda: out)
    done.append(True)
done = []
thread = threading.Thread(target=run)
thread.start()
thread.join()
assert done
"""
    )


def test_the_workspace_of_a_graph_is_its_own() -> None:
    """Torch may give its workspaces back, as inductor does around its own graphs."""
    run_torch_script(
        _SETUP
        + """
with gpuprof.capture() as cap:
    out = work()
torch._C._cuda_clearCublasWorkspaces()
others = [torch.full((1 << 20,), 7, device="cuda") for _ in range(32)]
check(cap.graph.launch, lambda: out)
assert all(bool((each == 7).all()) for each in others)
"""
    )


def test_a_training_step_may_be_the_first_to_use_cublas() -> None:
    run_torch_script(
        _SETUP
        + """
a.requires_grad_()
a.grad = torch.zeros_like(a)
with gpuprof.capture() as cap:
    a.grad.zero_()
    (a @ b).sum().backward()
a.grad.fill_(9)
cap.graph.launch()
torch.testing.assert_close(a.grad, b.sum(1).expand(64, 64), rtol=0, atol=1e-4)
"""
    )
