"""Compares arrays: those that a replayed graph wrote with those of the function itself.

Equal bits are equal. Other integers and booleans differ. Other tensors of torch are close, where
the caller can tell how sensitive each is, if no element is further off than 16 times the largest
change that inputs moved by their last bits make, or 4 ulp of the largest element. Left out of both
is the fill value of a mask: elements of the greatest magnitude that are the same in both arrays.

Elsewhere, as for padded calls and other libraries' arrays, floating-point and complex numbers are
close if ``|found - expected| <= tolerance * max(|expected|, scale)``, real and imaginary parts
each for itself. The scale is the root mean square of the expected array, so that noise beside large
elements does not count. Elements of the greatest magnitude that are the same in both arrays are
left out of it: the fill value of a mask, such as -1e9, would hide everything else. NaN equals NaN,
and an infinity equals that of the same sign.

The tolerance has room for sums in another order (atomics, another algorithm of cuBLAS), and none
for a wrong operand. A float32 result of a function that computes in bfloat16 has the noise of
bfloat16: `computed_in` of `differences` names such dtypes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuprof._common.text import shown_value
from gpuprof._frameworks import loaded
from gpuprof._frameworks.array_facts import is_array, type_text
from gpuprof._frameworks.arrays import Arrays, arrays_of

if TYPE_CHECKING:
    from gpuprof._frameworks.streams import CallStream

_TOLERANCES = {
    "float64": 1e-9,  # reordered sums differ by 1e-16 times the root of their length
    "float32": 1e-3,  # the same with 6e-8; a TF32 product rounds its operands to 5e-4
    "float16": 2e-2,  # one rounding is 5e-4, and sums by atomics round at each addition
    "bfloat16": 5e-2,  # one rounding is 4e-3
    "float8_e4m3fn": 0.25,  # neighbours are up to 0.125 apart: two steps
    "float8_e4m3fnuz": 0.25,
    "float8_e5m2": 0.5,  # neighbours are up to 0.25 apart: two steps
    "float8_e5m2fnuz": 0.5,
    "float8_e8m0fnu": 1.0,  # neighbours are a factor of 2 apart
}
_PARTS = {"complex128": "float64", "complex64": "float32", "complex32": "float16"}
_UNITS, _ULPS = 16, 4  # that are numerics
_CHUNK = 1 << 22  # elements that are compared at a time: they are widened to 8 or 16 bytes each


@dataclass(frozen=True)
class Difference:
    """How the array, or the value, at one path differs.

    Where arrays have other shapes or dtypes, or one is none, `expected` and `found` describe them,
    and there is no index.
    """

    path: str
    index: tuple[int, ...] | None
    expected: object
    found: object
    count: int = 1  # of the elements that differ
    size: int = 1  # of all elements
    max_error: float | None = None  # inf where only one of two is finite; None without numbers
    unit: float | None = None  # how much a tensor changes with inputs that are moved a little

    def __str__(self) -> str:
        said = f"{_written(self.found)} replayed, {_written(self.expected)} by the function"
        if not self.index:
            return f"{self.path}: {said}"
        text = f"{self.path}: {self.count:,} of {self.size:,} elements differ, first at "
        text += f"{self.index}: {said}"
        if self.max_error is None:
            return text
        text += f" (largest error {self.max_error:.6g}"
        if self.unit is None:
            return f"{text})"
        moved = f"inputs and state that are moved by their last bits change it by {self.unit:.3g}"
        return f"{text}; {moved}, of which {_UNITS} times as much would be numerics)"


def differences(
    pairs: Iterable[tuple[str, Any, Any]],
    *,
    on: CallStream | None = None,
    computed_in: Iterable[str] = (),
    units: Callable[[Sequence[int]], Mapping[int, float]] | None = None,
) -> list[Difference]:
    """Wait, and return in which of (path, expected, found) the second differs from the first.

    `on` is the stream of arrays whose library has no current one. `computed_in` has the names of
    the dtypes that the function computes in where they are coarser than those of its results; none
    counts for more than bfloat16. Where floating-point tensors differ, `units` is asked for the
    unit of each by the number of its pair, which takes the place of tolerances. Arrays that a graph
    uses in place are compared by shape alone, and a pair without arrays is one of which the caller
    has found that it differs.
    """
    coarsest = max((_tolerance(name) or 0.0 for name in computed_in), default=0.0)
    least = min(coarsest, _TOLERANCES["bfloat16"])
    results: list[Difference | None] = []
    entries: list[tuple[int, Arrays, str, Any, Any]] = []
    for path, expected, found in pairs:
        results.append(_other_kind(path, expected, found))
        if results[-1] is None and is_array(expected):
            arrays = arrays_of(type(expected), on)
            if not arrays.in_place:
                entries.append((len(results) - 1, arrays, path, expected, found))
    # All are enqueued before the first is waited for.
    same = [arrays.same_bytes(*pair) for _, arrays, _, *pair in entries]
    other = [entry for entry, equal in zip(entries, same, strict=True) if not equal]
    tensors = ((at, expected) for at, _, _, expected, _ in other if loaded.is_tensor(expected))
    floating = [at for at, expected in tensors if _tolerance(expected.dtype) is not None]
    measured = units(floating) if units and floating and not any(results) else {}
    for at, arrays, path, expected, found in other:
        results[at] = _compared(arrays, path, expected, found, least=least, unit=measured.get(at))
    return [result for result in results if result is not None]


def _other_kind(path: str, expected: Any, found: Any) -> Difference | None:
    """Return how two leaves differ before their elements are looked at."""
    if not (is_array(expected) or is_array(found)):
        return Difference(path, None, expected, found)
    told = _described(expected), _described(found)
    return None if told[0] == told[1] else Difference(path, None, *told)


def _described(value: Any) -> str:
    if not is_array(value):
        return shown_value(value)
    if hasattr(value, "dtype"):
        dtype, shape = str(value.dtype).removeprefix("torch."), value.shape
    else:
        interface = value.__cuda_array_interface__
        dtype, shape = interface["typestr"], interface["shape"]
    return f"a {dtype} {type_text(type(value))} of shape {tuple(map(int, shape))}"


def _compared(
    arrays: Arrays, path: str, expected: Any, found: Any, *, least: float, unit: float | None
) -> Difference | None:
    """Return how two arrays of one shape and dtype differ, whose bits are not the same."""
    b, a = arrays.elements(expected), arrays.elements(found)
    name = str(b.dtype).removeprefix("torch.")
    tolerance = _tolerance(name)
    xp = loaded.torch() if loaded.is_tensor(b) else loaded.numpy()
    first, count, largest = None, 0, 0.0
    with contextlib.nullcontext() if loaded.is_tensor(b) else xp.errstate(all="ignore"):
        if tolerance is not None:
            judged = _judged_floats(xp, a, b, max(tolerance, least), unit)
        else:
            judged = _judged_bits(arrays, a, b, as_numbers=name.startswith(("int", "uint")))
        for start, bad, error in judged:
            number = int(bad.sum())
            if not number:
                continue
            if first is None:
                first = start + int(xp.argmax(bad * 1))  # torch has no argmax of booleans
            count += number
            largest = max(largest, float(xp.where(bad, error, 0.0).max()))
    if first is None:
        return None
    shape = tuple(map(int, expected.shape))
    value, other = (_element(each[first : first + 1], name) for each in (b, a))
    numbers = isinstance(value, (int, float, complex)) and name != "bool"
    error = largest if numbers else None
    size = math.prod(shape)
    index = tuple(map(int, xp.unravel_index(xp.asarray(first), shape)))
    return Difference(path, index, value, other, count, size, error, unit)


def _judged_bits(
    arrays: Arrays, a: Any, b: Any, *, as_numbers: bool
) -> Iterator[tuple[int, Any, Any]]:
    """Yield of each chunk where it begins, which elements have other bits, and their errors."""
    for start, x, y in _chunks(a, b):
        bad = arrays.bits(x) != arrays.bits(y)
        yield start, bad, abs(_wide(x) - _wide(y)) if as_numbers else bad * 0.0


def _judged_floats(
    xp: Any, a: Any, b: Any, tolerance: float, unit: float | None
) -> Iterator[tuple[int, Any, Any]]:
    """Yield of each chunk where it begins, which elements are too far off, and their errors."""
    scale, largest = _magnitudes(xp, a, b)
    if unit is not None:
        limit = max(_UNITS * unit, _ULPS * float(xp.finfo(b.dtype).eps) * largest)
    for start, *chunks in _chunks(a, b):
        x, y = map(_wide, chunks)
        same = (x == y) | (xp.isnan(x) & xp.isnan(y))
        error = xp.where(same, 0.0, abs(x - y))
        error = xp.where(xp.isnan(error), math.inf, error)
        allowed = tolerance * abs(y).clip(scale) if unit is None else limit
        bad = (error > allowed) | xp.isinf(error)
        if bad.ndim > 1:  # real and imaginary parts
            bad, error = bad.any(1), xp.amax(error, 1)
        yield start, bad, error


def _magnitudes(xp: Any, a: Any, b: Any) -> tuple[float, float]:
    """Return the root mean square of `b`, and the greatest, without what the module leaves out."""
    top, total, count, largest = _top(xp, b), 0.0, 0, 0.0
    for _, *chunks in _chunks(a, b):
        x, y = map(_wide, chunks)
        counts = xp.isfinite(y) & ((abs(y) < top) | (x != y))
        magnitude = xp.where(counts, abs(y), 0.0)
        largest = max(largest, float(magnitude.max()))
        # As a fraction of the greatest, so that no square overflows.
        total += float(((magnitude / (top or 1.0)) ** 2).sum())
        count += int(counts.sum())
    return top * math.sqrt(total / max(count, 1)), largest


def _top(xp: Any, elements: Any) -> float:
    """Return the greatest finite magnitude."""
    top = 0.0
    for _, y in _chunks(elements):
        magnitude = abs(_wide(y))
        top = max(top, float(xp.where(xp.isfinite(magnitude), magnitude, 0.0).max()))
    return top


def largest_change(
    expected: Any, moved: Any, found: Any, begun: Any = None, moved_before: Any = None
) -> float:
    """Return the largest finite change of a tensor's elements from one run to a moved one.

    Where it was changed in place, `begun` and `moved_before` are what it was before each run. Fill
    values of masks are left out: the greatest of all, where they are the same in `found`.
    """
    if (expected.shape, expected.dtype) != (moved.shape, moved.dtype):
        return 0.0
    flat = arrays_of(type(expected)).elements
    given = (expected, moved, found, begun, moved_before)
    elements = [flat(each) for each in given if each is not None]
    torch, largest = loaded.torch(), 0.0
    top = _top(torch, elements[0])
    for _, *chunks in _chunks(*elements):
        y, m, x, *before = map(_wide, chunks)
        change = m - y
        if before:
            change = change - (before[1] - before[0])
        counts = change.isfinite() & ((abs(y) < top) | (x != y))
        largest = max(largest, float(torch.where(counts, abs(change), 0.0).max()))
    return largest


def move(tensors: Iterable[Any], seed: int, computed_in: Iterable[str]) -> None:
    """Move floating-point tensors in place by random multiples of their last bits.

    That is a relative 2^-22 of float32. It is that of the coarsest dtype that a function computes
    in, up to bfloat16, where the tensor's own is finer.
    """
    torch = loaded.torch()
    dtypes = [getattr(torch, name) for name in computed_in if _tolerance(name) is not None]
    coarsest = max(map(_last_bits, dtypes), default=0.0)
    coarsest = min(coarsest, _last_bits(torch.bfloat16))
    with torch.inference_mode():
        for number, tensor in enumerate(tensors):
            generator = torch.Generator(tensor.device).manual_seed(1000 * number + seed)
            options = {"dtype": torch.float32, "device": tensor.device}
            noise = torch.randn(tensor.shape, generator=generator, **options)
            wide = tensor.float() if tensor.element_size() < 4 else tensor
            step = max(coarsest, _last_bits(tensor.dtype))
            moved = (wide + wide * (step * noise)).to(tensor.dtype)
            # Infinities stay, and so does what would become one.
            tensor.copy_(torch.where(moved.to(wide.dtype).isfinite(), moved, tensor))


def _last_bits(dtype: Any) -> float:
    eps = float(loaded.torch().finfo(dtype).eps)
    return 2 * eps if eps < 1e-6 else eps / 2


def _chunks(*elements: Any) -> Iterator[tuple[Any, ...]]:
    """Yield where each chunk begins, and that of each array."""
    for start in range(0, len(elements[0]), _CHUNK):
        yield start, *(each[start : start + _CHUNK] for each in elements)


def _wide(chunk: Any) -> Any:
    """Return elements as float64, complex ones as rows of two."""
    if loaded.is_tensor(chunk):
        torch = loaded.torch()
        if chunk.is_complex():
            return torch.view_as_real(chunk.to(torch.complex128))
        return chunk.to(torch.float64)
    if chunk.dtype.kind == "c":
        return chunk.astype("c16").view("f8").reshape(-1, 2)
    return chunk.astype("f8")


def _element(one: Any, dtype: str) -> object:
    """Return an array of one element as a number, or as text where its dtype has none."""
    if dtype == "bool" or dtype.startswith(("int", "uint")):
        return one.tolist()[0]
    if _tolerance(dtype) is None:
        return str(one)
    values = _wide(one).reshape(-1).tolist()
    return complex(*values) if len(values) > 1 else values[0]


def _tolerance(dtype: object) -> float | None:
    name = str(dtype).removeprefix("torch.")
    return _TOLERANCES.get(_PARTS.get(name, name))


def _written(value: object) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.9g}" if isinstance(value, (float, complex)) else shown_value(value)
