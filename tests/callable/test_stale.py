"""Graphs that are stale, and calls that look as if a graph fitted them."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

import gpuprof
from gpuprof import errors
from tests.support.callables import Counted, make, twice


@pytest.fixture
def model(torch: Any) -> Any:
    """A module with many tensors on the host, of which it returns what the last one holds."""

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.scale = 1.0
            for number in range(12):
                self.register_buffer(f"w{number}", torch.tensor([float(number)]))

        def forward(self, x: Any) -> Any:
            return x.copy(), float(self.w11) * self.scale

    return Model()


def give_memory(tensor: Any, value: float) -> None:
    """Give a tensor other memory, which a sweep finds when it comes to that tensor."""
    tensor.data = tensor.new_tensor([value])


def until(fast: Any, x: Any, expected: float) -> int:
    """Call until the last tensor's new value is in the result; return how many calls that took."""
    for calls in range(1, 40):
        if fast(x)[1] == expected:
            return calls
    pytest.fail("the new value was never found")


@pytest.mark.torch
@pytest.mark.parametrize("check", ["strict", "sweep"])
def test_once_a_change_was_found_every_call_is_refused(cupy: Any, model: Any, check: Any) -> None:
    x = cupy.array([0.0])
    fast = make(model, x, on_new_shape="raise", check=check)
    give_memory(model.w11, 99.0)
    with pytest.raises(errors.InvalidStateError, match="'w11': its memory moved"):
        for _ in range(1 if check == "strict" else 40):
            fast(x)
    for _ in range(20):
        with pytest.raises(errors.InvalidStateError, match="'w11': its memory moved"):
            fast(x)


@pytest.mark.torch
@pytest.mark.parametrize("check", ["strict", "sweep"])
def test_a_change_that_one_call_finds_is_found_for_all_graphs(
    cupy: Any, model: Any, check: Any
) -> None:
    x, longer = cupy.array([0.0]), cupy.array([0.0, 0.0])
    fast = make(model, x, check=check)
    fast(longer)
    give_memory(model.w11, 99.0)
    calls = until(fast, x, 99.0)
    assert calls == 1 or check == "sweep"
    assert fast(longer)[1] == 99.0


@pytest.mark.torch
def test_a_padded_call_finds_a_change_too(cupy: Any, model: Any) -> None:
    x = cupy.array([1.0, 2.0])
    fast = make(model, x, buckets={0: (4,)})
    for _ in range(2):
        found, last = fast(x)
        assert (found.tolist(), last) == ([1, 2], 11)
    give_memory(model.w11, 99.0)
    for _ in range(2):
        found, last = fast(x)
        assert (found.tolist(), last) == ([1, 2], 99)
    assert (fast.stats().recaptures, fast.stats().padded_calls) == (1, 2)


def scale(model: Any, value: float) -> None:
    """Have a module's attribute be another value, which is guarded as its tensors are."""
    model.scale = value


@pytest.mark.torch
def test_with_raise_a_change_is_named_until_it_is_reset(cupy: Any, model: Any) -> None:
    x = cupy.array([0.0])
    fast = make(model, x, on_new_shape="raise", name="step")
    scale(model, 3.0)
    for _ in range(2):
        with pytest.raises(
            errors.InvalidStateError,
            match=r"step: .*attribute 'scale': 3.0, captured with 1.0.*reset\(\)",
        ):
            fast(x)
    fast.reset()
    gpuprof.flush()
    assert [fast(x)[1] for _ in range(2)] == [33, 33]


@pytest.mark.torch
def test_with_raise_a_write_to_a_tensor_on_the_cpu_is_refused_until_it_is_reset(
    cupy: Any, torch: Any
) -> None:
    x, row = cupy.array([1.0]), torch.tensor([2.0])
    fast = make(lambda x: (x.copy(), (row + 1).item()), x, on_new_shape="raise")
    assert fast(x)[1] == 3
    row.fill_(4)
    for _ in range(2):
        with pytest.raises(errors.InvalidStateError, match=r"a tensor on the CPU, .*reset\(\)"):
            fast(x)
    fast.reset()
    assert fast(x)[1] == 5


@pytest.mark.torch
def test_with_eager_a_change_runs_the_function_from_then_on(cupy: Any, model: Any) -> None:
    x = cupy.array([0.0])
    fast = make(model, x, on_new_shape="eager")
    scale(model, 3.0)
    with pytest.warns(RuntimeWarning, match=r"run eagerly now, because of attribute 'scale': 3.0"):
        assert [fast(x)[1] for _ in range(2)] == [33, 33]
    assert (fast.stats().captures, fast.stats().eager_calls) == (1, 2)


@pytest.mark.torch
def test_what_changes_with_each_call_is_said_once(cupy: Any, model: Any) -> None:
    x = cupy.array([0.0])
    fast = make(model, x, warmup=0, name="step")
    for value in (5.0, 6.0, 7.0):
        scale(model, value)
        fast(x)
    scale(model, 8.0)
    with pytest.warns(RuntimeWarning, match=r"step: captured 4 times again.*'scale'") as told:
        fast(x)
    assert told[0].filename == __file__
    for value in (9.0, 10.0):
        scale(model, value)
        assert fast(x)[1] == 11 * value
    assert fast.stats().recaptures == 6
    assert len(fast.graphs) == 1


# What only the function knows of.


class Step:
    """A whole step with momentum on the host, and how often it ran."""

    def __init__(self) -> None:
        import torch

        self.model = torch.nn.Linear(2, 1)
        self.ones = torch.ones(2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.runs = Counted()

    def __call__(self, x: Any) -> Any:
        self.runs.note()
        self.optimizer.zero_grad()
        self.model(self.ones).sum().backward()
        self.optimizer.step()
        return x.copy()


@pytest.fixture
def step(torch: Any) -> Step:
    return Step()


@pytest.mark.torch
@pytest.mark.parametrize("warmup", [0, 3])
def test_state_that_is_made_anew_is_made_by_an_eager_call(
    cupy: Any, step: Step, warmup: int
) -> None:
    x = cupy.array([0.0])
    fast = gpuprof.make_graphed_callable(step, verify="off", warmup=warmup)
    empty = copy.deepcopy(step.optimizer.state_dict())
    for _ in range(6):
        fast(x)
    for _ in range(2):
        before = fast.stats()
        step.optimizer.load_state_dict(copy.deepcopy(empty))
        for _ in range(4):
            fast(x)
        after = fast.stats()
        assert after.captures == before.captures + 1
        assert after.eager_calls == before.eager_calls + 1
        assert after.replays == before.replays + 3


@pytest.mark.torch
def test_state_that_each_call_makes_anew_is_refused(cupy: Any, torch: Any) -> None:
    class Forgetful(Step):
        def __call__(self, x: Any) -> Any:
            self.optimizer.state.clear()
            return super().__call__(x)

    x, body = cupy.array([0.0]), Forgetful()
    with pytest.raises(errors.InvalidStateError, match=r"makes the state of its SGD .*warmup=1"):
        make(body, x, warmup=0)
    assert not any(body.optimizer.state.values())
    assert all(each.grad is None for each in body.model.parameters())
    fast = gpuprof.make_graphed_callable(body, verify="off", warmup=1)
    for _ in range(2):
        fast(x)
    with pytest.raises(errors.InvalidStateError, match="makes the state of its SGD"):
        fast(x)


class View:
    """An array of no library that gpuprof knows."""

    def __init__(self, array: Any, strides: tuple[int, ...] | None = None) -> None:
        self.array = array
        self.strides = strides

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = dict(self.array.__cuda_array_interface__)
        if self.strides is None:
            return interface
        return interface | {"shape": (2, 2), "strides": self.strides}


def test_an_array_that_is_used_in_place_has_a_graph_for_each_address(cupy: Any) -> None:
    def body(view: View) -> Any:
        return view.array.copy()

    views = [View(cupy.array([1.0])), View(cupy.array([2.0]))]
    fast = make(body, views[0])
    assert [fast(views[number])[:1].tolist() for number in (0, 1, 0, 1)] == [[1], [2], [1], [2]]
    assert fast.stats().captures == 2
    assert fast.stats().eager_calls == 0


def test_an_array_that_is_used_in_place_has_a_graph_for_each_layout(cupy: Any) -> None:
    array = cupy.array([1.0, 2.0, 3.0, 4.0])

    def body(view: View) -> Any:
        return (array.copy(), view.strides)

    item = array.dtype.itemsize
    fast = make(body, View(array, (2 * item, item)))
    assert fast(View(array, (item, 2 * item)))[1] == (item, 2 * item)
    assert fast.stats().captures == 2


def test_an_array_that_is_used_in_place_and_lies_elsewhere_is_named_where_refused(
    cupy: Any,
) -> None:
    views = [View(cupy.array([1.0])), View(cupy.array([2.0]))]
    fast = make(lambda view: view.array.copy(), views[0], on_new_shape="raise")
    with pytest.raises(errors.InvalidStateError, match=r"args\[0\]: another address or other st"):
        fast(views[1])


@dataclasses.dataclass
class Batch:
    x: Any


def test_an_attribute_that_a_dataclass_has_got_since_is_seen(cupy: Any) -> None:
    def body(batch: Any) -> Any:
        return batch.x.copy(), getattr(batch, "scale", 1)

    fast = make(body, Batch(cupy.array([1.0])))
    batch = Batch(cupy.array([1.0]))
    assert fast(batch)[1] == 1
    batch.scale = 5  # type: ignore[attr-defined]
    assert fast(batch)[1] == 5


class Changing:
    """Something whose hash changes, against all rules."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Changing) and self.value == other.value


def test_a_constant_that_changes_its_hash_breaks_nothing(cupy: Any) -> None:
    constant, x = Changing(0), cupy.array([1.0])

    def body(x: Any, constant: Changing) -> Any:
        return x.copy(), constant.value

    fast = make(body, x, constant, warmup=0, max_graphs=2)
    with pytest.warns(RuntimeWarning, match="graphs were captured and dropped again"):
        for value in range(1, 30):
            constant.value = value
            found, frozen = fast(cupy.array([1.0] * (value % 3 + 1)), constant)
            assert found.tolist() == [1] * (value % 3 + 1)
            assert frozen <= value
    assert len(fast.graphs) == 2
    assert fast.stats().eager_calls == 0


def test_an_attribute_of_a_constant_is_frozen_and_another_constant_is_not(cupy: Any) -> None:
    constant, x = Changing(1), cupy.array([1.0])
    fast = make(lambda _, each: each.value, x, constant)
    assert fast(x, constant) == 1
    constant.value = 2
    assert fast(x, constant) == 1
    assert fast(x, Changing(3)) == 3
    assert fast.stats().captures == 2


def test_callables_of_one_pool_share_their_generation(cupy: Any) -> None:
    pool, x = gpuprof.CapturePool(), cupy.array([1.0])
    one, other = (make(twice(cupy), x, outputs="static", pool=pool) for _ in range(2))
    one(x)
    made = one.generation
    other(x)
    assert one.generation != made


def test_a_bucket_that_is_used_stays(cupy: Any) -> None:
    fast = make(twice(cupy), cupy.array([1.0] * 3), buckets={0: (4,)}, max_graphs=2)
    fast(cupy.array([1.0] * 3))  # shows how results are cut
    for size in range(5, 9):
        fast(cupy.array([1.0] * size))
        fast(cupy.array([1.0] * 3))
    stats = fast.stats()
    assert (stats.captures, stats.evictions) == (5, 3)
    assert any("(4,)" in each.arguments for each in stats.graphs)


def test_a_plain_value_of_the_arguments_is_in_a_padded_result(cupy: Any) -> None:
    class Config:
        pass

    config = Config()

    def body(x: Any, config: Config) -> Any:
        return x.copy(), config

    fast = make(body, cupy.array([1.0] * 3), config, buckets={0: (4,)})
    result = fast(cupy.array([1.0, 2.0, 3.0]), config)
    assert result[0].tolist() == [1, 2, 3]
    assert result[1] is config


def test_a_function_that_changes_a_container_is_refused_however_it_was_warmed_up(
    cupy: Any,
) -> None:
    def body(batch: dict[str, Any]) -> Any:
        batch["y"] = 1
        return batch["x"].copy()

    for warmup in (0, 2):
        with pytest.raises(TypeError, match=r"changes its arguments, .*'y'\]: 1, captured"):
            make(body, {"x": cupy.array([1.0])}, warmup=warmup)
        with pytest.warns(RuntimeWarning, match="the capture failed"):
            fast = make(body, {"x": cupy.array([1.0])}, warmup=warmup, on_capture_error="eager")
        assert fast({"x": cupy.array([2.0])}).tolist() == [2]
