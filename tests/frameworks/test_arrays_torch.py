"""What is done with torch's tensors, on torch for the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprof._frameworks.arrays import arrays_of, is_dense

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch

DTYPES = [
    "bool",
    "uint8",
    "int16",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
]


@pytest.fixture
def arrays() -> Any:
    return arrays_of(torch.zeros(1))


def laid_out(*of: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
    return pytest.mark.parametrize(("shape", "strides"), of, ids=str)


def test_tensors_and_parameters_are_torchs(arrays: Any) -> None:
    assert arrays.name == "torch"
    assert not arrays.in_place
    assert arrays_of(torch.nn.Parameter(torch.zeros(1))) is arrays
    assert arrays_of(torch.nn.Buffer(torch.zeros(1))) is arrays
    assert set(arrays.types) >= {torch.Tensor, torch.nn.Parameter}


def test_a_subclass_is_refused_by_its_name() -> None:
    class Wrapped(torch.Tensor):  # type: ignore[misc, name-defined]
        pass

    with pytest.raises(TypeError, match=r"subclass .*Wrapped"):
        arrays_of(torch.zeros(2).as_subclass(Wrapped))


@laid_out(
    ((2, 3, 4), (12, 4, 1)),
    ((2, 3, 4, 5), (60, 1, 15, 3)),
    ((2, 3, 4), (1, 8, 2)),
    ((4, 1, 3), (3, 77, 1)),
    ((1, 1), (5, 9)),
    ((2, 0, 3), (50, 9, 1)),
    ((), ()),
)
def test_a_dense_layout_is_kept(
    arrays: Any, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    array = torch.randn(200).as_strided(shape, strides)
    static = arrays.static_like(array)
    assert static.stride() == strides
    make, of = arrays.empty_like, static
    assert make(of).stride() == strides
    assert make(of).data_ptr() != static.data_ptr() or not static.numel()


@laid_out(
    ((4, 3), (0, 1)),
    ((4, 3), (6, 2)),
    ((2, 3, 4), (1, 16, 4)),
    ((3, 3), (1, 1)),
    ((1, 3), (0, 2)),
)
def test_another_layout_becomes_dense_and_stays_so(
    arrays: Any, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    array = torch.randn(200).as_strided(shape, strides)
    static = arrays.static_like(array)
    assert is_dense(static.shape, static.stride())
    make, of = arrays.empty_like, static
    assert make(of).stride() == static.stride()
    arrays.fill(static, array)
    assert torch.equal(static, array)
    assert arrays.stage(static, array).stride() == static.stride()


def test_a_static_tensor_is_an_ordinary_one_that_asks_for_no_gradient(arrays: Any) -> None:
    parameter = torch.nn.Parameter(torch.randn(3))
    with torch.inference_mode():
        sample = torch.randn(3)
        statics = [arrays.static_like(sample), arrays.static_like(parameter)]
        arrays.fill(statics[0], sample)
    assert torch.equal(statics[0], sample)
    for static in statics:
        assert type(static) is torch.Tensor
        assert not static.is_inference()
        arrays.fill(static, parameter)
        assert not static.requires_grad
        assert torch.equal(static, parameter)
    assert not arrays.stage(statics[0], parameter).requires_grad


def test_what_is_conjugate_or_negative_in_name_is_written_out(arrays: Any) -> None:
    values = torch.randn(4, dtype=torch.complex64)
    for view in (values.conj(), values.conj().imag):
        static = arrays.static_like(view)
        arrays.fill(static, view)
        for copy in (static, arrays.stage(static, view), arrays.dense(view)):
            assert not copy.is_conj()
            assert not copy.is_neg()
            assert torch.equal(copy, view)


def test_a_dense_result_is_itself_and_another_is_packed(arrays: Any) -> None:
    result = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert arrays.dense(result) is result
    packed = arrays.dense(result[:, :, ::2])
    assert torch.equal(packed, result[:, :, ::2])
    assert packed.is_contiguous(memory_format=torch.channels_last)
    expanded = torch.randn(1, 3).expand(4, 3)
    assert arrays.dense(expanded).is_contiguous()


@pytest.mark.parametrize("name", DTYPES)
def test_bytes_are_compared_for_every_dtype(arrays: Any, name: str) -> None:
    dtype = getattr(torch, name)
    raw = torch.arange(4 * dtype.itemsize, dtype=torch.uint8) % 2
    a = raw.view(dtype)
    b = a.clone()
    assert arrays.same_bytes(a, b)
    b.view(torch.uint8)[-1] ^= 1
    assert not arrays.same_bytes(a, b)
    assert arrays.same_bytes(b[:-1], a[:-1])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_a_nan_has_the_bytes_of_a_nan_and_minus_zero_not_those_of_zero(
    arrays: Any, name: str
) -> None:
    dtype = getattr(torch, name)
    a = torch.tensor([float("nan"), 0.0], dtype=dtype)
    assert arrays.same_bytes(a, a.clone())
    b = a.clone()
    b[1] = -0.0
    assert not arrays.same_bytes(a, b)


def test_bytes_are_compared_whatever_the_layout(arrays: Any) -> None:
    a = torch.randn(3, 4)
    assert arrays.same_bytes(a, a.t().contiguous().t())
    assert arrays.same_bytes(a[:, ::2], a[:, ::2].clone())
    assert arrays.same_bytes(torch.tensor(2.0), torch.tensor(2.0, requires_grad=True))
    assert arrays.same_bytes(a[:0], a[:0].clone())
    c = torch.randn(3, dtype=torch.complex64)
    assert arrays.same_bytes(c.conj(), c.conj().resolve_conj())


@pytest.mark.parametrize("name", DTYPES)
def test_padding_is_zeros_of_every_dtype(arrays: Any, name: str) -> None:
    given = torch.ones(2, 3).to(getattr(torch, name))
    padded = arrays.padded(given, 0, 4)
    assert padded.dtype is given.dtype
    as_numbers = padded.to(torch.complex64).real
    assert as_numbers.tolist() == [[1, 1, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0]]
    assert arrays.same_bytes(arrays.slice(padded, 0, 2), given)
    assert arrays.nbytes(padded) == 12 * given.element_size()


def test_padding_keeps_the_order_of_the_dimensions(arrays: Any) -> None:
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for dim in range(4):
        padded = arrays.padded(images, dim, 7)
        assert padded.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(arrays.slice(padded, dim, images.shape[dim]), images)
        assert padded.sum().item() == pytest.approx(images.sum().item(), abs=1e-4)


def test_gradients_flow_back_through_padding_where_they_are_recorded(arrays: Any) -> None:
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    padded = arrays.padded(images, 0, 3)
    assert padded.is_contiguous(memory_format=torch.channels_last)
    weights = torch.randn(3, 3, 4, 5)
    (padded * weights).sum().backward()
    assert torch.equal(images.grad, weights[:2])
    with torch.no_grad():
        assert not arrays.padded(images, 0, 3).requires_grad
    assert not arrays.padded(images.detach(), 0, 3).requires_grad


def test_padding_writes_out_what_is_conjugate_expanded_or_cut_from_more(arrays: Any) -> None:
    whole = torch.randn(4, 6, dtype=torch.complex64)
    for given in (whole.conj(), whole[:1].expand(4, 6), whole[:, ::2], whole.t()[1:4]):
        padded = arrays.padded(given, 0, 7)
        assert not padded.is_conj()
        assert torch.equal(padded[: given.shape[0]], given)
        assert not padded[given.shape[0] :].any()


def test_a_tensor_that_is_as_long_already_is_copied(arrays: Any) -> None:
    given = torch.randn(2, 3)
    padded = arrays.padded(given, 0, 2)
    assert torch.equal(padded, given)
    assert padded.data_ptr() != given.data_ptr()


def test_a_view_of_the_first_ones_shares_their_memory(arrays: Any) -> None:
    given = torch.randn(4, 3)
    cut = arrays.slice(given, 0, 2)
    assert cut.data_ptr() == given.data_ptr()
    assert cut.shape == (2, 3)
