"""Tensors among the arguments and results of graphed callables, as torch itself makes them."""

from __future__ import annotations

import collections
import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from gpuprof import _core
from gpuprof._callable.observe import Observation
from gpuprof._callable.pytree import flatten_result, rebuild
from gpuprof._frameworks.array_facts import facts_by_attributes
from gpuprof._frameworks.torch_constants import HostConstants
from tests.support.stand_in_arrays import Array
from tests.support.structures import flat, same

pytestmark = pytest.mark.torch


def quantized(torch: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


def nested(torch: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def jagged(torch: Any) -> Any:
    parts = [torch.ones(2), torch.ones(3)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


def fake(torch: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


def subclass(torch: Any) -> Any:
    return torch.ones(2).as_subclass(type("Mine", (torch.Tensor,), {}))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda torch: torch.ones(2),
            r"a CPU tensor; a CUDA graph reads .*move it with \.cuda\(\)",
        ),
        (lambda torch: torch.nn.Parameter(torch.ones(2)), "a CPU tensor"),
        (lambda torch: torch.nn.Buffer(torch.ones(2)), "a CPU tensor"),
        (lambda torch: torch.ones(2, device="meta"), "a meta tensor, which holds no values"),
        (lambda torch: torch.eye(2).to_sparse(), r"torch\.sparse_coo, .*: pass a dense one"),
        (lambda torch: torch.eye(2).to_sparse_csr(), r"torch\.sparse_csr"),
        (lambda torch: torch.eye(2).to_mkldnn(), r"layout torch\._mkldnn"),
        (quantized, r"a quantized tensor: pass what it holds"),
        (nested, "a nested tensor, whose shapes are not fixed: pass a padded one"),
        (jagged, r"NestedTensor, a tensor subclass, .*: pass plain tensors"),
        (fake, "FakeTensor, a tensor subclass"),
        (subclass, "Mine, a tensor subclass"),
        (lambda torch: torch.nn.UninitializedParameter(), "UninitializedParameter, a tensor subc"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_tensors_that_a_graph_cannot_work_on_are_refused(
    torch: Any, make: Callable[[Any], Any], text: str
) -> None:
    with pytest.raises(TypeError, match=rf"^args\[0\]\['mask'\]: .*{text}"):
        flat({"mask": make(torch)})
    with pytest.raises(TypeError, match=r"^result\[0\]: "):
        flatten_result([make(torch)])


def test_what_is_no_tensor_is_a_constant(torch: Any) -> None:
    values = [torch.float32, torch.device("cuda:0"), torch.strided, torch.channels_last]
    values += [torch.Size([2, 3]), torch.per_tensor_affine, torch.Tensor, torch.nn.ReLU]
    assert rebuild(flatten_result(values).pattern, []) == values
    assert same(flat(values), flat([*values]))
    assert same(flat(torch.device("cuda", 1)), flat(torch.device("cuda:1")))
    assert not same(flat(torch.Size([2, 3])), flat(torch.Size([2, 4])))
    assert not same(flat(torch.float32), flat(torch.float64))


def test_a_module_is_a_constant_by_identity(torch: Any) -> None:
    one, other = torch.nn.ReLU(), torch.nn.ReLU()
    assert same(flat(one), flat(one))
    assert not same(flat(one), flat(other))


def test_named_results_are_made_anew(torch: Any, arrays: None) -> None:
    kind = type(torch.max(torch.ones(2, 3), 0))
    found = flatten_result(kind((Array(3), Array(3))))
    assert [leaf.path for leaf in found.leaves] == ["result.values", "result.indices"]
    new = [Array(3), Array(3)]
    made = rebuild(found.pattern, new)
    assert type(made) is kind
    assert [made.values, made.indices] == new
    assert same(flat(made), flat(kind((Array(3), Array(3)))))


def test_classes_that_torch_knows_are_followed(torch: Any, arrays: None) -> None:
    class Layers:
        def __init__(self, keys: Any, window: int) -> None:
            self.keys, self.window = keys, window

    def layers(window: int = 2) -> Any:
        return {"past": Layers({"a": Array(3)}, window), "last": collections.deque([Array(1)], 4)}

    torch.utils._pytree.register_pytree_node(
        Layers,
        lambda each: ([each.keys], each.window),
        lambda parts, window: Layers(*parts, window),
    )
    found, new = flatten_result(layers()), [Array(3), Array(1)]
    assert [leaf.path for leaf in found.leaves] == ["result['past'][0]['a']", "result['last'][0]"]
    made = rebuild(found.pattern, new)
    assert (made["past"].keys, made["past"].window) == ({"a": new[0]}, 2)
    assert made["last"] == collections.deque(new[1:])
    assert made["last"].maxlen == 4
    assert same(flat(made), flat(layers()))
    assert not same(flat(made), flat(layers(3)))


def test_facts_by_attributes_are_those_of_dlpack(torch: Any) -> None:
    names = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32"]
    names += ["float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "uint16"]
    for name in names:
        tensor = torch.zeros(2, 3).to(getattr(torch, name)).t()
        address, _, _, dtype, shape, strides = facts_by_attributes(tensor)
        assert (address, dtype, shape, strides) == _by_dlpack(tensor), name


def _by_dlpack(tensor: Any) -> tuple[Any, ...]:
    facts = _core._array_facts(tensor)
    assert facts is not None
    return (facts[0], *facts[3:])


@pytest.fixture
def meta_for_the_gpu(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take constants from the host to the meta device."""
    module = "gpuprof._frameworks.torch_constants"
    monkeypatch.setattr(f"{module}._GPU", "meta")
    monkeypatch.setattr(f"{module}.relaxed", contextlib.nullcontext)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda *_: False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())


@pytest.mark.usefixtures("meta_for_the_gpu")
def test_a_second_capture_takes_no_more_modes_than_the_first_one_needed(torch: Any) -> None:
    for body, modes in (
        (lambda: torch.empty(2, device="meta") * 2, (0, 0)),
        (lambda: torch.ones(2).to("meta"), (1, 0)),
        (lambda: torch.tensor([1], device="meta"), (1, 1)),
    ):
        first = HostConstants()
        with first.of_block():
            body()
        again = HostConstants(first)
        with again.of_block():
            assert torch._C._len_torch_dispatch_stack() == modes[0]
            assert torch._C._len_torch_function_stack() == modes[1]
            body()
        assert len(again.kept) == len(first.kept) == modes[0]


@pytest.mark.usefixtures("meta_for_the_gpu")
def test_compiled_code_runs_compiled_where_only_copies_are_staged(torch: Any) -> None:
    runs: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        def run(*args: Any) -> Any:
            runs.append(1)
            return graph.forward(*args)

        return run

    fast, x = torch.compile(lambda x: x.sin() + 1, backend=backend), torch.ones(3)
    fast(x)
    first = HostConstants()
    with first.of_block():
        fast(x)
        x.to("meta")
    assert runs == [1]
    with HostConstants(first).of_block():
        fast(x)
    assert runs == [1, 1]
    fast(x)
    assert runs == [1, 1, 1]


@pytest.mark.usefixtures("meta_for_the_gpu")
@pytest.mark.parametrize("inference", [False, True])
def test_an_observation_sees_the_source_and_nothing_of_its_staging(
    torch: Any, inference: bool
) -> None:
    seen, scale = Observation(), torch.tensor([2.0])
    with torch.inference_mode(inference), HostConstants().of_block(), seen.of_block():
        torch.tensor([1, 2], device="meta")
        torch.empty(1, device="meta").new_tensor([1])
        (scale * 2).to("meta")
        scale.to("meta")
        torch.empty(4, device="meta")[[0, 2]]
    assert [each.tensor for each in seen.externals] == [scale]
