"""Tensors among the arguments and results of graphed callables, as torch itself makes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from gpuprof import _core
from gpuprof._callable.leaves import is_plain
from gpuprof._callable.pytree import flatten_result, rebuild
from gpuprof._frameworks.array_facts import facts_by_attributes
from tests.support import stand_in_arrays
from tests.support.stand_in_arrays import Array
from tests.support.structures import flat, same

pytestmark = pytest.mark.torch


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_arrays.install(monkeypatch)


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
    assert all(map(is_plain, values))
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
    pattern, leaves = flatten_result(kind((Array(3), Array(3))))
    assert [leaf.path for leaf in leaves] == ["result.values", "result.indices"]
    new = [Array(3), Array(3)]
    made = rebuild(pattern, new)
    assert type(made) is kind
    assert [made.values, made.indices] == new
    assert same(flat(made), flat(kind((Array(3), Array(3)))))


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
