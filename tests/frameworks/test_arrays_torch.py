"""What is done with torch's tensors, on torch for the CPU: made, filled, compared."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpuprof._frameworks import compare
from gpuprof._frameworks.arrays import arrays_of, is_dense
from gpuprof._frameworks.compare import Difference, differences

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
    return arrays_of(type(torch.zeros(1)))


def laid_out(*of: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
    return pytest.mark.parametrize(("shape", "strides"), of, ids=str)


def test_tensors_and_parameters_are_torchs(arrays: Any) -> None:
    assert arrays.name == "torch"
    assert not arrays.in_place
    assert arrays_of(type(torch.nn.Parameter(torch.zeros(1)))) is arrays
    assert arrays_of(type(torch.nn.Buffer(torch.zeros(1)))) is arrays
    assert set(arrays.types) >= {torch.Tensor, torch.nn.Parameter}


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


# How they are compared: tolerances, NaN, layouts, masks


FLOATS = {
    "float64": 1e-9,
    "float32": 1e-3,
    "float16": 2e-2,
    "bfloat16": 5e-2,
    "complex64": 1e-3,
    "complex128": 1e-9,
}
INTEGERS = ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
EIGHT_BITS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def values(dtype: str, *shape: int) -> Any:
    torch.manual_seed(0)
    return torch.randn(shape, dtype=getattr(torch, dtype))


def the_difference(expected: Any, found: Any, **options: Any) -> Difference:
    (only,) = differences([("result", expected, found)], **options)
    return only


def same(expected: Any, found: Any, **options: Any) -> bool:
    return not differences([("result", expected, found)], **options)


@pytest.mark.parametrize("dtype", FLOATS)
def test_noise_of_the_dtype_is_close_and_another_operand_is_not(dtype: str) -> None:
    expected = values(dtype, 64, 32)
    noise = values("float64", 64, 32).sign() * FLOATS[dtype] * 0.3
    assert same(expected, (expected * (1 + noise)).to(expected.dtype))
    found = expected.clone()
    found[3, 5] += 4 * FLOATS[dtype] * max(1, abs(expected[3, 5]))
    told = the_difference(expected, found)
    assert (told.index, told.count, told.size) == ((3, 5), 1, 2048)
    assert told.max_error == pytest.approx(abs(found[3, 5] - expected[3, 5]).item(), rel=0.1)
    assert told.expected == expected[3, 5].item()
    assert told.found == found[3, 5].item()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sum_in_another_order_is_close(dtype: str) -> None:
    terms = values("float32", 64, 4096).to(getattr(torch, dtype))
    expected, found = terms.sum(1), terms.flip(1).view(64, 64, 64).sum(2).sum(1)
    assert not torch.equal(expected, found)
    assert same(expected, found)
    assert not same(expected, terms[:, 64:].sum(1))  # a part left out


@pytest.mark.parametrize("dtype", EIGHT_BITS)
def test_eight_bits_may_be_a_step_apart(dtype: str) -> None:
    expected = values("float32", 256).to(getattr(torch, dtype))
    found = expected.clone()
    found.view(torch.uint8)[:100] ^= 1  # the last bit of the mantissa
    assert same(expected, found)
    found[7] = expected.float()[7] + 4
    assert the_difference(expected, found).index == (7,)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_must_be_equal(dtype: str) -> None:
    kind = getattr(torch, dtype)
    expected = torch.arange(100).to(kind).reshape(10, 10)
    found = torch.arange(100).index_fill(0, torch.tensor([57]), 58).to(kind).reshape(10, 10)
    assert same(expected, expected.clone())
    assert the_difference(expected, found) == Difference("result", (5, 7), 57, 58, 1, 100, 1.0)


def test_booleans_must_be_equal_and_have_no_error() -> None:
    expected = torch.tensor([True, False, True])
    told = the_difference(expected, ~expected)
    assert told == Difference("result", (0,), True, False, 3, 3, None)
    assert str(told).endswith("first at (0,): False replayed, True by the function")


def test_nan_and_infinity_equal_themselves_alone() -> None:
    inf, nan = math.inf, math.nan
    expected = torch.tensor([nan, inf, -inf, 1.0, nan, 0.0])
    assert same(expected, torch.tensor([-nan, inf, -inf, 1.0001, nan, -0.0]))
    for at, wrong in ((0, 1.0), (1, -inf), (1, nan), (2, 3.4e38), (3, inf), (3, nan)):
        found = expected.clone()
        found[at] = wrong
        told = the_difference(expected, found)
        assert (told.index, told.count, told.max_error) == ((at,), 1, inf)
    both = torch.tensor([complex(1, nan), complex(inf, 0)])
    assert same(both, torch.tensor([complex(1.0001, nan), complex(inf, 0)]))
    assert not same(both, torch.tensor([complex(2, nan), complex(inf, 0)]))
    assert not same(both, torch.tensor([complex(1, nan), complex(-inf, 0)]))


def test_noise_beside_large_elements_is_close() -> None:
    expected = torch.eye(100) + 1e-8 * values("float32", 100, 100)
    assert same(expected, expected + 1e-7)
    assert same(torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([1e-5, 1.0, 2.0, 3.0]))


@pytest.mark.parametrize("fill", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_the_fill_value_of_a_mask_hides_nothing(fill: float) -> None:
    expected = values("float32", 32, 32).masked_fill(torch.ones(32, 32).triu(1) > 0, fill)
    found = expected.clone()
    found[20, 3] += 0.5
    assert the_difference(expected, found).index == (20, 3)
    assert not same(expected, expected.flip(0))


def test_the_largest_values_of_float64_hide_nothing() -> None:
    expected = torch.tensor([1e300, 1.0, 1e300], dtype=torch.float64)
    told = the_difference(expected, torch.tensor([1e300, 2.0, 1e300], dtype=torch.float64))
    assert told.index == (1,)


def test_coarser_dtypes_that_a_function_computes_in_give_room_up_to_bfloat16() -> None:
    expected = values("float32", 100)
    found = expected.bfloat16().float()
    assert not same(expected, found)
    assert same(expected, found, computed_in=("bfloat16", "float32"))
    assert not same(expected, expected * 1.2, computed_in=["float8_e5m2"])
    assert not same(expected.double(), expected.double() * 1.01, computed_in=["int64", "float32"])


def test_views_are_compared_by_their_values() -> None:
    whole = values("complex64", 6, 4)
    for view in (whole.conj(), whole.conj().imag, whole.t(), whole[::2], whole[0, 0], whole[:0]):
        written = view.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        assert same(view, written)
        assert same(written, view)
    assert not same(whole.conj(), whole)
    found = whole.clone()
    found[4, 1] = 9
    assert the_difference(whole.t(), found.t()).index == (1, 4)
    assert the_difference(whole[0, 0], whole[0, 0] + 1).index == ()


def test_tensors_that_ask_for_gradients_or_are_of_inference_mode() -> None:
    expected = torch.nn.Parameter(values("float32", 4))
    with torch.inference_mode():
        found = expected.detach() + 1
    assert same(expected, expected.detach().clone())
    assert the_difference(expected, found).count == 4


def test_shapes_and_dtypes_must_be_equal() -> None:
    expected = values("float32", 2, 3)
    said = str(the_difference(expected, expected.double()))
    assert said == (
        "result: a float64 torch.Tensor of shape (2, 3) replayed, "
        "a float32 torch.Tensor of shape (2, 3) by the function"
    )
    assert the_difference(expected, expected.t()).index is None
    assert the_difference(expected, None).found == "None"


def test_each_difference_is_told_in_the_order_of_the_pairs() -> None:
    a, b = values("float32", 3), torch.arange(3)
    pairs = [("x", a, a + 1), ("n", 1, 2), ("y", a, a.clone()), ("z", b, b + 1), ("w", a, None)]
    assert [each.path for each in differences(pairs)] == ["x", "n", "z", "w"]
    assert differences([]) == []


def test_what_is_longer_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_CHUNK", 7)
    for dtype in ("float32", "int64", "complex64", "bool"):
        expected = (10 * values("float32", 5, 6)).to(getattr(torch, dtype))
        found = expected.clone()
        for at in ((2, 1), (4, 5)):
            found[at] = not found[at] if dtype == "bool" else found[at] + 3
        told = the_difference(expected, found)
        assert (told.index, told.count, told.size) == ((2, 1), 2, 30)
        assert told.max_error == (None if dtype == "bool" else pytest.approx(3, rel=1e-5))


def test_a_dtype_without_numbers_is_compared_by_its_bits() -> None:
    number = torch.arange(4, dtype=torch.uint8)
    expected = number.view(torch.float4_e2m1fn_x2)  # which torch 2.8 cannot clone
    found = torch.tensor([0, 1, 5, 3], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    assert same(expected, number.clone().view(torch.float4_e2m1fn_x2))
    told = the_difference(expected, found)
    assert (told.index, told.count, told.max_error) == ((2,), 1, None)


def test_powers_of_two_may_be_a_step_apart() -> None:
    expected = torch.tensor([1.0, 2.0, 4.0, 8.0]).to(torch.float8_e8m0fnu)
    assert same(expected, torch.tensor([2.0, 1.0, 8.0, 4.0]).to(torch.float8_e8m0fnu))
    found = torch.tensor([1.0, 2.0, 16.0, 8.0]).to(torch.float8_e8m0fnu)
    assert the_difference(expected, found).index == (2,)


def test_half_precision_complex_numbers() -> None:
    expected = torch.view_as_complex(values("float16", 16, 2))
    assert expected.dtype is torch.complex32
    noisy = torch.view_as_complex((torch.view_as_real(expected).float() * 1.002).half())
    assert same(expected, noisy)
    torch.view_as_real(noisy)[9, 1] += 1
    assert the_difference(expected, noisy).index == (9,)
