"""Graphed calls of torch functions: arguments and results of every structure, and refusals."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest

import gpuprof
from gpuprof.errors import GpuprofError
from tests.gpu.support.callables import assert_replays
from tests.gpu.support.frameworks import torch_or_skip

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::torch")]


@pytest.fixture
def torch() -> Any:
    return torch_or_skip()


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Sample:
    values: Any
    weights: Any = None
    label: str = "none"


@pytest.mark.parametrize(("verify", "runs"), [("off", 3), ("capture", 4)])
def test_the_first_calls_run_eagerly_where_no_sample_is_given(
    torch: Any, verify: Any, runs: int
) -> None:
    ran = []

    def double(values: Any) -> Any:
        ran.append(values)
        return values * 2

    fast = gpuprof.make_graphed_callable(double, warmup=2, verify=verify)
    given = [torch.full((8,), float(step), device="cuda") for step in range(6)]
    found = [fast(values) for values in given]
    for values, result in zip(given, found, strict=True):
        assert torch.equal(result, values * 2)
    seen = fast.stats()
    assert (seen.captures, seen.replays) == (1, 4), seen
    assert seen.eager_calls == 0  # a warm-up is none
    # Where torch.compile was used in this process, a capture that is thrown away comes before.
    assert len(ran) - runs in {0, 1}
    assert fast.eager is double


def test_a_nested_argument_and_a_nested_result_keep_their_structure(torch: Any) -> None:
    def mixed(batch: dict[str, Any], sample: Sample, *, pair: Pair, nothing: None) -> Any:
        total = batch["x"] + batch["more"][0] * sample.values
        return {
            "total": total,
            "pair": Pair(pair.first - 1, [pair.second, None]),
            "sample": Sample(sample.values * 2, label=sample.label),
            "plain": (1, "text", 2.5),
            "order": collections.OrderedDict(b=total + 1, a=total + 2),
        }

    def arguments(seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        torch.manual_seed(seed)
        x, y, z, v, w = (torch.randn(4, 8, device="cuda") for _ in range(5))
        args = ({"x": x, "more": [y, None, "text"]}, Sample(z, label="one"))
        return args, {"pair": Pair(v, w), "nothing": None}

    fast = gpuprof.make_graphed_callable(mixed, *arguments(0))
    for seed in range(3):
        args, kwargs = arguments(seed)
        found, wanted = fast(*args, **kwargs), mixed(*args, **kwargs)
        assert list(found) == list(wanted)
        assert torch.equal(found["total"], wanted["total"])
        assert type(found["pair"]) is Pair
        assert torch.equal(found["pair"].first, wanted["pair"].first)
        assert type(found["pair"].second) is list
        assert torch.equal(found["pair"].second[0], kwargs["pair"].second)
        assert found["pair"].second[1] is None
        assert type(found["sample"]) is Sample
        assert torch.equal(found["sample"].values, wanted["sample"].values)
        assert (found["sample"].weights, found["sample"].label) == (None, "one")
        assert found["plain"] == (1, "text", 2.5)
        assert type(found["order"]) is collections.OrderedDict
        assert list(found["order"]) == ["b", "a"]
        assert torch.equal(found["order"]["a"], wanted["order"]["a"])
    assert_replays(fast, 3)


def test_keywords_match_by_name_and_dictionaries_in_order(torch: Any) -> None:
    def less(batch: dict[str, Any], *, by: Any, scale: Any) -> Any:
        return (batch["x"] - batch["y"]) * scale - by

    x, y, by, scale = (torch.randn(8, device="cuda") for _ in range(4))
    fast = gpuprof.make_graphed_callable(less, ({"x": x, "y": y},), {"by": by, "scale": scale})
    assert torch.equal(fast({"x": y, "y": x}, scale=by, by=scale), (y - x) * by - scale)
    assert_replays(fast, 1)
    assert torch.equal(fast({"y": x, "x": y}, scale=by, by=scale), (y - x) * by - scale)
    assert_replays(fast, 2, captures=2)


def test_a_plain_value_is_part_of_the_key(torch: Any) -> None:
    def scaled(values: Any, by: float) -> Any:
        return values * by

    values = torch.randn(8, device="cuda")
    fast = gpuprof.make_graphed_callable(scaled, (values, 2.0))
    for by in (2.0, 3.0, 2.0, 3.0):
        assert torch.equal(fast(values, by), values * by)
    assert_replays(fast, 4, captures=2)
    assert len(fast.graphs) == 2
    assert fast.graph is fast.graphs[0]


def test_a_bound_method_and_one_array_given_twice(torch: Any) -> None:
    class Scaler:
        def __init__(self) -> None:
            self.scale = torch.rand(8, device="cuda")

        def scaled(self, values: Any, more: Any) -> Any:
            return values * self.scale + more

    scaler = Scaler()
    values, more = (torch.randn(8, device="cuda") for _ in range(2))
    fast = gpuprof.make_graphed_callable(scaler.scaled, (values, more))
    assert torch.equal(fast(more, values), more * scaler.scale + values)
    assert torch.equal(fast(more, more), more * scaler.scale + more)
    assert_replays(fast, 2)


def test_an_unused_argument_may_change(torch: Any) -> None:
    values, unused = (torch.randn(8, device="cuda") for _ in range(2))
    fast = gpuprof.make_graphed_callable(lambda values, _unused: values * 2, (values, unused))
    for _ in range(3):
        values, unused = (torch.randn(8, device="cuda") for _ in range(2))
        assert torch.equal(fast(values, unused), values * 2)
    assert_replays(fast, 3)


def test_a_closure_without_arguments_runs_once_and_is_launched(torch: Any) -> None:
    values = torch.zeros(8, device="cuda")
    values += 0
    ran = []

    def step() -> Any:
        ran.append(1)
        values.add_(1)
        return values * 2

    torch.mul(values, 2)
    fast = gpuprof.make_graphed_callable(step, ())
    assert len(ran) == 1
    assert values[0].item() == 0.0
    first = fast()
    second = fast()
    fast.launch()
    assert values.tolist() == [3.0] * 8
    assert (first[0].item(), second[0].item()) == (2.0, 4.0)
    assert len(ran) == 1
    assert fast.graph.num_replays == 3
    seen = fast.stats()
    assert (seen.captures, seen.eager_calls) == (1, 0), seen


def test_results_are_memory_of_their_own(torch: Any) -> None:
    given = [torch.full((8,), float(step), device="cuda") for step in range(3)]
    fast = gpuprof.make_graphed_callable(lambda values: (values + 1, values * 2), (given[0],))
    results = [fast(values) for values in given]
    addresses = {array.data_ptr() for result in results for array in result}
    assert len(addresses) == 6
    for values, (more, double) in zip(given, results, strict=True):
        assert torch.equal(more, values + 1)
        assert torch.equal(double, values * 2)
    results[0][0].fill_(-1.0)  # nobody else's
    assert torch.equal(fast(given[0])[0], given[0] + 1)
    assert_replays(fast, 4)


def test_static_results_are_written_again_and_the_generation_says_so(torch: Any) -> None:
    given = [torch.full((8,), float(step), device="cuda") for step in range(3)]
    fast = gpuprof.make_graphed_callable(lambda v: v + 1, (given[0],), outputs="static")
    first = fast(given[1])
    generation = fast.generation
    assert torch.equal(first, given[1] + 1)
    second = fast(given[2])
    assert fast.generation == generation + 1
    assert second.data_ptr() == first.data_ptr()
    assert torch.equal(first, given[2] + 1)
    assert_replays(fast, 2)


def test_one_array_twice_in_a_result_stays_one(torch: Any) -> None:
    def twice(values: Any) -> Any:
        result = values * 2
        return result, [result]

    values = torch.randn(8, device="cuda")
    fast = gpuprof.make_graphed_callable(twice, (values,))
    first, (second,) = fast(values)
    assert first is second
    assert torch.equal(first, values * 2)
    assert_replays(fast, 1)


def test_results_that_share_memory_or_are_the_argument(torch: Any) -> None:
    def parts(values: Any) -> Any:
        result = values * 2
        return result[:4], result[4:], result.view(2, 4).t(), values, values[1:3]

    values = torch.randn(8, device="cuda")
    fast = gpuprof.make_graphed_callable(parts, (values,))
    for _ in range(3):
        values = torch.randn(8, device="cuda")
        for found, wanted in zip(fast(values), parts(values), strict=True):
            assert torch.equal(found, wanted)
    assert_replays(fast, 3)


def test_empty_and_scalar_arrays(torch: Any) -> None:
    def total(values: Any, scale: Any, empty: Any) -> Any:
        return values.sum() * scale, empty * 2

    values, scale = torch.arange(8.0, device="cuda"), torch.tensor(2.0, device="cuda")
    empty = torch.empty(0, 4, device="cuda")
    fast = gpuprof.make_graphed_callable(total, (values, scale, empty))
    for _ in range(2):
        scale = scale + 1
        found, nothing = fast(values, scale, empty)
        assert found.shape == ()
        assert found.item() == 28.0 * scale.item()
        assert nothing.shape == (0, 4)
    assert_replays(fast, 2)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "int64", "float16", "float64", "complex64", "float8_e4m3fn"]
)
def test_arrays_of_every_type_pass(torch: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    given = [torch.arange(5, device="cuda").add(step).remainder(2).to(kind) for step in range(3)]
    fast = gpuprof.make_graphed_callable(lambda values: values.clone(), (given[0],))
    for values in given:
        found = fast(values)
        assert found.dtype == kind
        assert torch.equal(found.view(torch.uint8), values.view(torch.uint8))
    assert_replays(fast, 3)


def test_another_shape_or_type_gets_a_graph_of_its_own(torch: Any) -> None:
    fast = gpuprof.make_graphed_callable(lambda v: v * 2, (torch.ones(4, device="cuda"),))
    others = [
        torch.ones(4, device="cuda"),
        torch.ones(5, device="cuda"),
        torch.ones(2, 2, device="cuda"),
        torch.ones(4, device="cuda", dtype=torch.float64),
    ]
    for _ in range(2):
        for values in others:
            found = fast(values)
            assert (found.dtype, found.shape) == (values.dtype, values.shape)
            assert torch.equal(found, values * 2)
    assert_replays(fast, 8, captures=4)


def test_another_shape_runs_eagerly_where_that_is_asked_for(torch: Any) -> None:
    fast = gpuprof.make_graphed_callable(
        lambda v: v * 2, (torch.ones(4, device="cuda"),), on_new_shape="eager"
    )
    for count in (4, 5, 4, 6):
        values = torch.randn(count, device="cuda")
        assert torch.equal(fast(values), values * 2)
    seen = fast.stats()
    assert (seen.replays, seen.eager_calls, seen.captures) == (2, 2, 1), seen


def test_a_refused_shape_lists_every_difference(torch: Any) -> None:
    def mixed(batch: dict[str, Any], more: Any) -> Any:
        return batch["x"] * 2 + more

    given = ({"x": torch.ones(4, 8, device="cuda")}, torch.ones(8, device="cuda"))
    fast = gpuprof.make_graphed_callable(mixed, given, on_new_shape="raise")
    other = ({"x": torch.ones(1, 8, device="cuda")}, torch.ones(8, device="cuda").double())
    with pytest.raises((TypeError, ValueError, GpuprofError)) as caught:
        fast(*other)
    assert "args[0]['x']: shape (1, 8), captured (4, 8)" in str(caught.value)
    assert "args[1]: dtype" in str(caught.value)
    assert torch.equal(fast(*given), mixed(*given))
    assert_replays(fast, 1)


def test_buckets_pad_to_the_listed_sizes(torch: Any) -> None:
    fast = gpuprof.make_graphed_callable(
        lambda values: values * 2 + 1, (torch.ones(8, 4, device="cuda"),), buckets={0: (4, 8)}
    )
    for count in (1, 3, 4, 5, 8, 2):
        values = torch.randn(count, 4, device="cuda")
        found = fast(values)
        assert found.shape == (count, 4)
        assert torch.equal(found, values * 2 + 1)
    # The function answers the first padded call of each graph: how to cut is learned from it.
    seen = fast.stats()
    assert (seen.captures, seen.replays, seen.eager_calls, seen.padded_calls) == (2, 4, 2, 2), seen


def test_gradients_flow_back_through_padded_calls(torch: Any) -> None:
    layer = torch.nn.Linear(4, 4, device="cuda")

    def body(values: Any) -> Any:
        return layer(values).tanh() * values

    sample = torch.randn(8, 4, device="cuda", requires_grad=True)
    fast = gpuprof.make_graphed_callable(body, (sample,), buckets={0: (4, 8)})
    for count in (3, 5, 2, 4, 7):
        values = torch.randn(count, 4, device="cuda")
        worlds = []
        for function in (fast, body):
            given = values.clone().requires_grad_()
            layer.zero_grad()
            (function(given * 2).square().sum() / count).backward()
            worlds.append([given.grad, layer.weight.grad.clone(), layer.bias.grad.clone()])
        for found, expected in zip(*worlds, strict=True):
            torch.testing.assert_close(found, expected)
    assert fast.stats().padded_calls == 2, fast.stats()


def test_a_bare_tensor_as_the_sample_is_refused(torch: Any) -> None:
    with pytest.raises(TypeError, match=r"\(x,\)"):
        gpuprof.make_graphed_callable(lambda v: v * 2, torch.ones(4, device="cuda"))


@pytest.mark.parametrize("when", ["sample", "call"])
def test_a_tensor_on_the_cpu_is_refused_by_its_path(torch: Any, when: str) -> None:
    def double(batch: dict[str, Any]) -> Any:
        return batch["x"] * 2

    good, bad = {"x": torch.ones(4, device="cuda")}, {"x": torch.ones(4)}
    with pytest.raises(TypeError, match=r"args\[0\]\['x'\]"):
        fast = gpuprof.make_graphed_callable(double, (bad if when == "sample" else good,))
        fast(bad)


@pytest.mark.parametrize("of", ["argument", "parameter"])
def test_a_call_that_needs_gradients_has_a_graph_of_its_own(torch: Any, of: str) -> None:
    layer = torch.nn.Linear(4, 4, device="cuda").requires_grad_(of == "parameter")
    given = torch.ones(2, 4, device="cuda", requires_grad=of == "argument")
    with torch.no_grad():
        fast = gpuprof.make_graphed_callable(layer, (torch.ones(2, 4, device="cuda"),))
        assert not fast(given).requires_grad
    found = fast(given)
    assert found.requires_grad
    tensor = given if of == "argument" else layer.weight
    (mine,) = torch.autograd.grad(found.sum(), tensor)
    (wanted,) = torch.autograd.grad(layer(given).sum(), tensor)
    torch.testing.assert_close(mine, wanted)
    with torch.no_grad():
        torch.testing.assert_close(fast(given), layer(given))
    seen = fast.stats()
    assert (seen.captures, seen.eager_calls, seen.failures) == (2, 0, 0), seen


def test_a_call_in_somebodys_capture_becomes_part_of_it(torch: Any) -> None:
    given = torch.ones(8, device="cuda")
    fast = gpuprof.make_graphed_callable(lambda values: values * 2 + 1, (given,))
    fast(given)
    with gpuprof.capture() as cap:
        result = fast(given)
    assert cap.graph.num_nodes >= 2
    for step in range(3):
        given.fill_(step)
        cap.graph.launch()
        assert torch.equal(result, given * 2 + 1)
    seen = fast.stats()
    assert (seen.replays, seen.eager_calls, seen.captures) == (1, 1, 1), seen


def test_timers_inside_are_read_after_a_call(torch: Any) -> None:
    def timed(values: Any) -> Any:
        with gpuprof.timer("inside"):
            torch.cuda._sleep(100_000)
            return values * 2

    given = torch.ones(8, device="cuda")
    fast = gpuprof.make_graphed_callable(timed, (given,), name="timed")
    for _ in range(2):
        assert torch.equal(fast(given), given * 2)
    assert fast.timings()["inside"].ms > 0.01
    assert_replays(fast, 2)


def test_reset_lets_the_graphs_go_and_the_next_calls_capture_again(torch: Any) -> None:
    given = torch.randn(8, device="cuda")
    fast = gpuprof.make_graphed_callable(lambda values: values * 2, (given,))
    kept = fast(given)
    fast.reset()
    assert fast.graphs == ()
    for _ in range(6):
        values = torch.randn(8, device="cuda")
        assert torch.equal(fast(values), values * 2)
    assert len(fast.graphs) == 1
    assert fast.graph.num_replays >= 1
    assert torch.equal(kept, given * 2)


def test_what_is_seen_of_it(torch: Any) -> None:
    given = torch.randn(8, 4, device="cuda")
    fast = gpuprof.make_graphed_callable(lambda values: values * 2, (given,), name="doubled")
    fast(given)
    seen = fast.stats()
    (row,) = seen.graphs
    assert (row.replays, row.num_nodes) == (1, fast.graph.num_nodes)
    assert "(8, 4)" in row.arguments
    assert seen.capture_s > 0.0
    assert seen.hits == 1
    assert "doubled" in repr(fast)
    for text in (repr(seen), seen._repr_html_()):
        assert "1 replay" in text
