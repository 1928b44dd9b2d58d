"""Which numbers a device scalar takes, and the bits that it writes for them."""

from __future__ import annotations

import math
import struct
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpuprof import DeviceScalar
from tests.fake_driver.control import FakeCuda

pytestmark = pytest.mark.usefixtures("fake")

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]
# Exponent and fraction bits of each floating-point format.
LAYOUTS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}

# The fake driver is made anew for a test, not for each example in it.
on_one_fake = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200
)


@contextmanager
def made(dtype: object, value: object = 0) -> Iterator[DeviceScalar]:
    scalar = DeviceScalar(value, dtype)
    try:
        yield scalar
    finally:
        scalar.close()


def written(fake: FakeCuda, scalar: DeviceScalar, value: object) -> bytes:
    """Return the bytes that `value` becomes in device memory."""
    scalar.update(value)
    assert fake.complete(0) == 0
    return fake.read(scalar.ptr, scalar.nbytes)


def bits_of(data: bytes) -> int:
    return int.from_bytes(data, "little")


def nearest(value: float, exponent_bits: int, fraction_bits: int) -> int:
    """Return the bits of the nearest number of a format, ties to even, by exact arithmetic."""
    bias = 2 ** (exponent_bits - 1) - 1
    infinity = (2**exponent_bits - 1) << fraction_bits
    sign = int(math.copysign(1, value) < 0) << (exponent_bits + fraction_bits)
    if math.isinf(value):
        return sign | infinity
    magnitude = abs(Fraction(value))
    exponent = max(math.frexp(abs(value))[1] - 1, 1 - bias) if value else 1 - bias
    steps = round(magnitude / Fraction(2) ** (exponent - fraction_bits))  # half to even
    return sign | min(((exponent + bias - 1) << fraction_bits) + steps, infinity)


@pytest.mark.parametrize("dtype", INTEGERS)
@given(data=st.data())
@on_one_fake
def test_integers_are_written_as_numpy_writes_them_and_others_refused_with_the_range(
    fake: FakeCuda, dtype: str, data: st.DataObject
) -> None:
    info = np.iinfo(dtype)
    least, most = int(info.min), int(info.max)
    value = data.draw(st.integers(least, most))
    other = data.draw(st.integers(max_value=least - 1) | st.integers(min_value=most + 1))
    with made(dtype) as scalar:
        expected = np.array(value, dtype).tobytes()
        assert written(fake, scalar, value) == expected
        assert written(fake, scalar, np.dtype(dtype).type(value)) == expected
        assert scalar.get() == value
        with pytest.raises(ValueError, match=f"value: .*{dtype}.*{least} to {most}"):
            scalar.update(other)
        assert scalar.get() == value


@pytest.mark.parametrize("dtype", LAYOUTS)
@given(value=st.floats(allow_nan=False))
@example(value=65519.999)
@example(value=65520.0)
@example(value=-(2.0**-25 + 2.0**-60))
@example(value=1 + 2.0**-11)
@example(value=1 + 2.0**-24 + 2.0**-50)
@example(value=5e-324)
@example(value=-0.0)
@example(value=3.3895313892515355e38)  # the largest bfloat16
@example(value=3.3961775292304601e38)  # half a step more
@example(value=9.183549615799121e-41)  # the smallest bfloat16
@example(value=4.591774807899561e-41)  # half of it
@example(value=1 + 2.0**-8 + 2.0**-40)  # up, but a tie once it is a float32
@on_one_fake
def test_floats_become_the_nearest_number_ties_to_even(
    fake: FakeCuda, dtype: str, value: float
) -> None:
    with made(dtype) as scalar:
        expected = nearest(value, *LAYOUTS[dtype])
        assert bits_of(written(fake, scalar, value)) == expected
        assert nearest(scalar.get(), *LAYOUTS[dtype]) == expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_two_byte_float_is_read_and_written_unchanged(fake: FakeCuda, dtype: str) -> None:
    exponent_bits, fraction_bits = LAYOUTS[dtype]
    with made(dtype) as scalar:
        for bits in range(0, 1 << 16, 7):
            fake.write(scalar.ptr, bits.to_bytes(2, "little"))
            value = scalar.get()
            if math.isnan(value):
                assert (bits >> fraction_bits) & (2**exponent_bits - 1) == 2**exponent_bits - 1
                assert bits & (2**fraction_bits - 1) != 0
                continue
            if dtype == "float16":
                assert value == struct.unpack("<e", bits.to_bytes(2, "little"))[0]
            else:
                assert value == struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0]
            assert bits_of(written(fake, scalar, value)) == bits


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("float16", 0x7E00),
        ("bfloat16", 0x7FC0),
        ("float32", 0x7FC00000),
        ("float64", 0x7FF8000000000000),
    ],
)
def test_nan_stays_nan(fake: FakeCuda, dtype: str, bits: int) -> None:
    with made(dtype) as scalar:
        for nan in (math.nan, -math.nan):
            found = bits_of(written(fake, scalar, nan))
            assert found & bits == bits
            assert math.isnan(scalar.get())


def test_a_bool_takes_truth_values_only(fake: FakeCuda) -> None:
    with made("bool", True) as scalar:
        assert scalar.get() is True
        for value in (False, 0, 0.0, np.bool_(False)):
            scalar.update(True)
            assert written(fake, scalar, value) == b"\0"
            assert scalar.get() is False
        assert written(fake, scalar, np.bool_(True)) == b"\1"
        for wrong in (2, -1, 0.5):
            with pytest.raises(ValueError, match=r"value: .*bool"):
                scalar.update(wrong)


@pytest.mark.parametrize(
    "value", [3, 3.0, np.int8(3), np.float32(3), np.array(3), np.array(3.0), Fraction(3)]
)
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_a_dtype_takes_integral_numbers_of_any_kind(fake: FakeCuda, dtype: str, value: Any) -> None:
    with made(dtype) as scalar:
        assert written(fake, scalar, value) == np.array(3, dtype).tobytes()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3.5, "3.5 is no integer, and int32 holds the integers -2147483648 to 2147483647"),
        (math.nan, "nan is no integer"),
        (math.inf, "inf does not fit in int32, which holds -2147483648 to 2147483647"),
        (-math.inf, "-inf does not fit"),
        (1e300, "1e[+]300 does not fit"),
        pytest.param(10**5000, "this int does not fit", id="huge"),
        (Decimal("0.5"), r"Decimal\('0.5'\) is no integer"),
    ],
)
def test_what_is_no_integer_in_range_is_refused_by_name(value: object, words: str) -> None:
    with made("int32") as scalar, pytest.raises(ValueError, match=f"^value: {words}"):
        scalar.update(value)


def test_an_integer_known_as_a_float_only_is_refused_where_it_may_have_lost_digits(
    fake: FakeCuda,
) -> None:
    with made("int64") as scalar:
        assert bits_of(written(fake, scalar, 2.0**62)) == 2**62
        with pytest.raises(ValueError, match="may have lost digits; pass an int"):
            scalar.update(Decimal(2**62 + 1))


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
@pytest.mark.parametrize("value", [None, "1", b"1", [1], 1j, np.complex64(1), object()])
def test_what_is_no_number_is_refused(dtype: str, value: object) -> None:
    with made(dtype) as scalar:
        kind = type(value).__name__
        with pytest.raises(TypeError, match=f"value: expected a number for {dtype}, got .*{kind}"):
            scalar.update(value)


class Tensor(Fraction):
    """A number in an array of one dimension, whose conversion fails."""

    ndim = 1

    def __float__(self) -> float:
        raise RuntimeError


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("value", [np.array([5.0, 6.0]), np.array([5, 6]), np.array([]), Tensor(5)])
def test_what_has_more_than_one_number_is_refused(dtype: str, value: object) -> None:
    with made(dtype) as scalar:
        kind = type(value).__name__
        words = f"^value: expected a single number for {dtype}, got .*{kind} with dimensions"
        with pytest.raises(TypeError, match=words):
            scalar.update(value)


def test_an_int_that_no_float_can_hold_is_refused() -> None:
    with made("float64") as scalar:
        with pytest.raises(ValueError, match=r"value: this int is too large .* float64"):
            scalar.update(10**400)
        scalar.update(2**1000)
        assert scalar.get() == 2.0**1000


class Hostile:
    """A number whose conversion raises what it was given."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error

    def __repr__(self) -> str:
        raise self.error


@pytest.mark.parametrize("dtype", ["int16", "float16"])
@pytest.mark.parametrize("error", [KeyError("mine"), TypeError("mine"), KeyboardInterrupt()])
def test_what_a_conversion_raises_comes_out_unchanged(dtype: str, error: BaseException) -> None:
    with made(dtype, 1) as scalar:
        with pytest.raises(type(error)) as caught:
            scalar.update(Hostile(error))
        assert caught.value is error
        assert scalar.get() == 1


class Dtype:
    """As torch's: known by its text alone."""

    def __str__(self) -> str:
        return "torch.bfloat16"


def test_a_number_that_cannot_be_shown_is_named_by_its_type() -> None:
    class Shy(int):
        def __repr__(self) -> str:
            raise ZeroDivisionError

    with made("uint8") as scalar, pytest.raises(ValueError, match="value: this Shy does not fit"):
        scalar.update(Shy(300))


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        *((name, name) for name in [*INTEGERS, *FLOATS, "bool", "bfloat16"]),
        *((np.dtype(name), name) for name in [*INTEGERS, *FLOATS, "bool"]),
        *((np.dtype(name).type, name) for name in [*INTEGERS, *FLOATS, "bool"]),
        *((short, short.replace("f", "float")) for short in ("f16", "f32", "f64")),
        *((short, short.replace("i", "int")) for short in ("i16", "i32", "i64")),
        *((short, short.replace("u", "uint")) for short in ("u16", "u32", "u64")),
        ("bf16", "bfloat16"),
        (np.longlong, "int64"),
        (np.uintc, "uint32"),
        (np.half, "float16"),
        (np.double, "float64"),
        (bool, "bool"),
        (int, "int64"),
        (float, "float64"),
        (types.SimpleNamespace(name="bfloat16"), "bfloat16"),
        (Dtype(), "bfloat16"),
    ],
)
def test_a_dtype_is_taken_in_each_of_its_forms(dtype: object, name: str) -> None:
    with made(dtype, 1) as scalar:
        assert scalar.dtype == name
        assert scalar.nbytes == (2 if name == "bfloat16" else np.dtype(name).itemsize)
        assert scalar.get() == 1


# What NumPy reads as a number of these types, with and without a byte order.
_CODES = [*"?bBhHiIlLqQpPefd", "b1", "i1", "i2", "i4", "u1", "u2", "u4", "f2", "f4", "f8"]
_NAMES = [
    *("byte", "ubyte", "short", "ushort", "intc", "uintc", "int", "int_", "uint", "intp", "uintp"),
    *("longlong", "ulonglong", "half", "single", "double", "float", "bool_"),
]


@pytest.mark.parametrize(
    "name",
    [
        *(order + code for order in ("", *"<=|") for code in _CODES),
        *(*_NAMES, ">?", ">i1", ">B"),  # a single byte has no order
    ],
)
def test_numpys_names_mean_what_they_mean_to_numpy(name: str) -> None:
    with made(name, 1) as scalar:
        assert (scalar.dtype, scalar.get()) == (np.dtype(name).name, 1)


@pytest.mark.parametrize("dtype", ["i8", "u8", "<i8", "=u8", ">i8"])
def test_a_dtype_that_means_two_things_is_refused(dtype: str) -> None:
    short = dtype.lstrip("<=>").replace("i", "int").replace("u", "uint")
    with pytest.raises(ValueError, match=f"NumPy reads it as 64 bits; write '{short}' or"):
        DeviceScalar(0, dtype)


@pytest.mark.parametrize(
    "dtype", ["float8", "complex64", "", "FLOAT32", "f1", "<f16", np.complex128, np.longdouble, str]
)
def test_an_unknown_dtype_is_refused_with_the_known_ones(dtype: object) -> None:
    with pytest.raises(ValueError, match=r"dtype: expected one of bool, int8, .*float64, got"):
        DeviceScalar(0, dtype)


@pytest.mark.parametrize("dtype", [None, 4, 1.5, object()])
def test_what_is_no_dtype_is_refused(dtype: object) -> None:
    with pytest.raises(TypeError, match="dtype: expected a name like 'float32'"):
        DeviceScalar(0, dtype)


def test_a_dtype_in_the_other_byte_order_is_refused() -> None:
    other = np.dtype("float32").newbyteorder(">" if sys.byteorder == "little" else "<")
    for dtype in (other, ">f4", ">h"):
        with pytest.raises(ValueError, match="the machine's byte order"):
            DeviceScalar(0, dtype)


def test_the_default_is_float32() -> None:
    scalar = DeviceScalar(0.1)
    assert scalar.dtype == "float32"
    assert scalar.get() == struct.unpack("<f", struct.pack("<f", 0.1))[0]
