"""The figures of `gpuprof.watch`, how they are shown, and what it refuses."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import gpuprof
from tests.support.processes import check_python
from tests.support.watched import Recursive, Shared, Slow, nn, torch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:::torch")]


class Stack(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Slow(0.01, 0.03), Slow(0.02, 0.01)])
        self.head = nn.Sequential(Slow(0.01, 0.02), nn.Identity())

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def encode(self, x: Any) -> Any:
        return self.layers[0](x)


def at_least(ms: float) -> Any:
    """A sleep of so many milliseconds, on a machine that may be busy."""
    return pytest.approx(1.5 * ms + 15, abs=0.5 * ms + 16)


@pytest.fixture(scope="module")
def rows() -> Any:
    model = Stack()
    with gpuprof.watch(model, depth=2) as seen:
        for _ in range(3):
            model(torch.ones(3, requires_grad=True)).sum().backward()
    return seen.read()


def test_each_module_has_the_time_that_it_takes(rows: Any) -> None:
    expected = {"layers.0": (10, 30), "layers.1": (20, 10), "head": (10, 20), "head.0": (10, 20)}
    for path, (forward, backward) in expected.items():
        assert rows[path].forward.mean_ms == at_least(forward), path
        assert rows[path].backward.mean_ms == at_least(backward), path
        assert rows[path].forward.mean_ms >= forward
        assert rows[path].backward.mean_ms >= backward
    assert rows[""].forward.mean_ms >= 40
    assert rows[""].backward.mean_ms >= 60


def test_sums_counts_shares_and_own_times_agree(rows: Any) -> None:
    top, layers = rows[""], rows["layers"]
    assert (top.forward.calls, top.backward.calls, top.share) == (3, 3, None)
    assert top.forward.total_ms == pytest.approx(3 * top.forward.mean_ms)
    parts = ["layers.0", "layers.1"]
    assert layers.forward.calls == 0
    assert layers.forward.total_ms == pytest.approx(sum(rows[p].forward.total_ms for p in parts))
    assert layers.share == pytest.approx(layers.total_ms / top.total_ms)
    assert sum(rows[part].share for part in parts) == pytest.approx(1)
    below = layers.total_ms + rows["head"].total_ms
    assert top.forward.self_ms + top.backward.self_ms == pytest.approx(top.total_ms - below)
    assert rows["head.0"].share <= 1
    assert rows["head"].forward.self_ms < rows["head"].forward.total_ms / 2


def test_parameters_are_counted_with_those_below(rows: Any) -> None:
    assert [*rows] == ["", "layers", "layers.0", "layers.1", "head", "head.0", "head.1"]
    counts = [rows[path].parameters for path in ("", "layers", "layers.0", "head.1")]
    assert counts == [9, 6, 3, 0]
    assert rows[""].parameter_bytes == 36
    assert rows[""].activation_bytes is None  # nothing is on a GPU
    assert rows["head"].class_name == "Sequential"


def test_a_result_is_a_tree_and_plain_data(rows: Any) -> None:
    lines = repr(rows).splitlines()
    assert lines[0] == "clock: cpu (host time; no GPU time was measured)"
    assert [line.split()[0] for line in lines[3:]] == [
        "(Stack)", "layers", "0", "1", "head", "0", "1",
    ]  # fmt: skip
    assert lines[5].startswith("    0 ")
    assert "activations" not in lines[1]
    assert "ModuleList" in rows._repr_html_()
    assert "Slow" in rows["head.0"]._repr_html_()
    assert "timed" in rows["head.0"].forward._repr_html_()
    found = json.loads(json.dumps(rows.to_dict()))
    assert found["modules"]["layers.0"]["forward"]["calls"] == 3
    assert found["clocks"] == ["cpu"]
    assert pickle.loads(pickle.dumps(rows)) == rows


@pytest.mark.parametrize(("depth", "paths"), [(0, 1), (1, 3), (2, 7), (99, 7)])
def test_modules_are_watched_down_to_a_depth(depth: int, paths: int) -> None:
    with gpuprof.watch(Stack(), depth) as seen:
        assert len(seen.read()) == paths
        assert "no forward pass" in str(seen)


def test_a_part_that_is_called_from_outside_has_no_share_of_the_model() -> None:
    model = Stack()
    with gpuprof.watch(model) as seen:
        model.encode(torch.ones(3))
        alone = seen.read()
        model(torch.ones(3))
    both = seen.read()
    assert alone[""].forward.calls == 0
    assert alone[""].forward.total_ms == alone["layers.0"].forward.total_ms
    assert both["layers.0"].forward.calls == 2
    assert both["layers.0"].share == pytest.approx(
        both["layers.0"].total_ms / both["layers"].total_ms
    )
    assert both["layers"].share < 1


def test_a_module_in_several_places_has_a_row_in_each() -> None:
    model = Shared()
    with gpuprof.watch(model) as seen:
        model(torch.randn(2, 4)).sum().backward()
    rows = seen.read()
    calls = {path: (row.forward.calls, row.backward.calls) for path, row in rows.items()}
    assert calls["left.0"] == (2, 2)
    assert calls["right.0"] == (1, 1)
    assert calls["layers.0"] == (2, 2)
    assert rows["layers.0"].also == ("layers.1",)
    assert "layers.1" not in rows
    assert "also layers.1" in str(rows)


def test_a_module_that_calls_itself_counts_its_outermost_time() -> None:
    model = Recursive()
    with gpuprof.watch(model) as seen:
        model(torch.randn(2, 4)).sum().backward()
    row = seen.read()[""]
    assert row.forward.calls == row.backward.calls == 3
    assert row.forward.total_ms < row.forward.timed * row.forward.mean_ms
    assert row.forward.self_ms <= row.forward.total_ms


def test_a_watch_is_shown_while_it_runs() -> None:
    model = Stack()
    seen = gpuprof.watch(model)
    model(torch.ones(3))
    assert "head" in repr(seen)
    assert "head" in str(seen)
    assert "head" in seen._repr_html_()
    assert seen.to_dict()["modules"]["head"]["forward"]["timed"] == 1
    seen.close()


def test_the_scopes_of_a_watch_stay_out_of_the_statistics() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with gpuprof.watch(model), gpuprof.timer("step", backend="cpu"):
        for _ in range(100):
            model(torch.randn(2, 4)).sum().backward()
    assert [*gpuprof.stats()] == ["step"]


def test_switched_off_scopes_measure_nothing() -> None:
    model = Stack()
    gpuprof.disable()
    with gpuprof.watch(model) as seen:
        model(torch.ones(3)).sum().backward()
    assert (seen.read()[""].forward.calls, seen.read()[""].forward.timed) == (1, 0)


def test_lazy_modules_are_counted_once_they_have_parameters() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with gpuprof.watch(model) as seen:
        assert seen.read()[""].parameters == 0
        model(torch.ones(2, 5))
    assert seen.read()[""].parameters == 18


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "model: expected a torch.nn.Module, got None"),
        (len, "model: expected a torch.nn.Module, got a builtin_function_or_method"),
        (nn.Linear, "got the class torch.nn.modules.linear.Linear; pass an instance of it"),
    ],
)
def test_what_is_no_module_is_refused(given: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        gpuprof.watch(given)
    assert text in str(caught.value)


@pytest.mark.parametrize("depth", [-1, 1.5, None, True])
def test_a_depth_is_a_whole_number(depth: Any) -> None:
    model = Stack()
    with pytest.raises((TypeError, ValueError), match="depth: expected a whole number"):
        gpuprof.watch(model, depth)
    assert not model._forward_hooks


def test_without_torch_it_is_said_that_it_is_missing() -> None:
    out = check_python("""
        import sys
        sys.modules["torch"] = None  # as if it were not installed
        import gpuprof
        try:
            gpuprof.watch(object())
        except ModuleNotFoundError as error:
            print(error.name, error, sep=": ")
        """)
    assert out.strip() == (
        "torch: gpuprof.watch needs torch, which is not installed: pip install torch"
    )
