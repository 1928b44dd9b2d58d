"""The recipe for scopes on JAX's work, on JAX for the CPU, each test in a process of its own.

JAX starts threads and warns of every later fork, so it is kept out of the process of the tests.
"""

from __future__ import annotations

import importlib.util

import pytest

from tests.docs.examples import of_integration
from tests.support.processes import check_python

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)

SETUP = """
import jax.numpy as jnp

@jax.jit
def work(x):  # some ten milliseconds, which JAX queues
    for _ in range(30):
        x = x @ x / 400
    return x

x = jnp.ones((400, 400))
jax.block_until_ready(work(x))
gpuprof.reset()
"""


def check(body: str) -> str:
    return check_python(of_integration("jax")[0].script + SETUP + body, JAX_PLATFORMS="cpu")


def test_a_scope_on_the_backend_ends_when_the_work_has() -> None:
    check("""
with gpuprof.timer("queued") as queued:
    y = work(x)
assert not y.is_ready()  # which is why a scope on the host's clock says too little
y.block_until_ready()

with gpuprof.timer("step", backend=BACKEND) as sample:
    y = work(x)
    assert not y.is_ready()
assert y.is_ready()
assert sample.clock == "jax"
row = gpuprof.stats()["step"]
assert (row.clock, row.time.count) == ("jax", 1)
""")


def test_a_scope_on_the_backend_begins_when_earlier_work_is_over() -> None:
    check("""
earlier = work(x)
assert not earlier.is_ready()
with gpuprof.timer("step", backend=BACKEND):
    assert earlier.is_ready()
""")


def test_a_decorated_function_is_measured_from_ready_arguments_to_ready_results() -> None:
    check("""
@timer("step")
@jax.jit
def step(x):
    return {"sum": x.sum(), "rest": [x, None]}

y = work(x)
assert not y.is_ready()
found = step(y)
assert y.is_ready() and all(leaf.is_ready() for leaf in jax.tree_util.tree_leaves(found))
assert step(y)["rest"][1] is None
assert step.__name__ == "step" and step.__wrapped__.lower(x) is not None
row = gpuprof.stats()["step"]
assert (row.clock, row.time.count) == ("jax", 2)

class Model:
    @timer("Model.call")
    def call(self, x, how="plain"):
        return x

assert Model().call(y, how="other") is y
assert gpuprof.stats()["Model.call"].time.count == 1
""")


def test_in_a_transform_nothing_is_measured_and_the_operations_get_the_name() -> None:
    check("""
@timer("inner/loss")
def loss(x):
    return (x * x).sum()

small = jnp.ones(4)
compiled = jax.jit(lambda x: loss(x) + 1)
assert float(compiled(small)) == 5.0
assert jax.grad(loss)(small).tolist() == [2.0] * 4
assert jax.vmap(loss)(jnp.ones((3, 4))).shape == (3,)
assert len(gpuprof.stats()) == 0
assert "inner/loss" in compiled.lower(small).as_text(debug_info=True)
assert float(loss(small)) == 4.0
assert gpuprof.stats()["inner/loss", "jax"].time.count == 1
""")


def test_a_jitted_function_under_a_scope_is_in_the_trace(tmp_path: object) -> None:
    check(f"""
import json
path = {str(tmp_path)!r} + "/run.json"
step = timer("step")(work)
with gpuprof.trace(path), gpuprof.timer("epoch", backend=BACKEND):
    jax.block_until_ready(step(step(x)))
events = json.load(open(path))["traceEvents"]
spans = [event for event in events if event["ph"] == "X" and event["name"] in ("step", "epoch")]
assert sorted(event["name"] for event in spans) == ["epoch", "step", "step"], spans
assert min(event["dur"] for event in spans) > 0
assert gpuprof.stats()["epoch/step"].time.count == 2
""")


def test_donated_and_failed_arrays_do_not_break_a_scope() -> None:
    check("""
import logging
logging.disable()  # JAX logs what a callback raises

take = jax.jit(lambda x: x + 1, donate_argnums=0)
given = jnp.ones(8)

def fail(value):
    raise ValueError("the callback fails")

failing = jax.jit(
    lambda x: jax.pure_callback(fail, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
)
with gpuprof.timer("step", backend=BACKEND) as sample:
    taken = take(given)
    try:
        bad = failing(taken)  # raises here or where the result is used
    except Exception:
        pass
    y = work(x)
assert given.is_deleted() and y.is_ready() and not sample.failed

@timer("failing")
def step(x):
    return failing(x)

try:
    step(taken)
except Exception as error:
    assert "the callback fails" in str(error)
else:
    raise AssertionError
assert gpuprof.stats().get("failing") is None or not gpuprof.stats()["failing"].time.count
""")


def test_nothing_waits_while_gpuprof_is_disabled() -> None:
    check("""
step = timer("step")(work)
gpuprof.disable()
y = step(x)
assert not y.is_ready()
y.block_until_ready()
gpuprof.enable()
assert step(x).is_ready()
assert gpuprof.stats()["step"].time.count == 1
""")


def test_a_benchmark_of_a_blocking_function_waits_for_each_call() -> None:
    check("""
ready = []
step = blocking(jax.jit(lambda x: x + 1))

def noted(x):
    ready.append(step(x).is_ready())
    return None

found = gpuprof.benchmark(
    noted, (jnp.ones(4),), warmup_s=0.0, min_samples=3, min_time_s=0.0, progress=False
)
assert found.mode == "cpu" and found.median_ms > 0.0
assert ready and all(ready)
assert blocking(work).__name__ == "work"
""")


def test_a_jitted_function_keeps_its_static_arguments() -> None:
    check("""
static = timer("static")(jax.jit(lambda x, how, n=1: how(x) * n, static_argnames=("how", "n")))
assert static(jnp.zeros(1), jnp.cos, n=2).tolist() == [2.0]
""")
