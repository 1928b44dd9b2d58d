"""Which array libraries the process has imported: the one place that looks for them.

gpuprof imports none of them. A value can be theirs only where theirs is imported already, so each
function looks again when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any


def torch() -> Any:
    """Return torch, or None. It may be half imported."""
    return sys.modules.get("torch")


def whole_torch() -> Any:
    """Return torch, or None while it is not imported to its end."""
    found: Any = torch()
    return found if hasattr(found, "get_default_dtype") and hasattr(found, "nn") else None


def torch_part(name: str) -> Any:
    """Return a module inside of torch, such as ``"utils._python_dispatch"``, or None."""
    return sys.modules.get(f"torch.{name}")


def torch_cuda() -> Any:
    """Return `torch.cuda` where torch has initialised CUDA, else None."""
    cuda = getattr(torch(), "cuda", None)
    return cuda if getattr(cuda, "is_initialized", bool)() else None


def cupy() -> Any:
    """Return CuPy, or None while it is not imported to its end."""
    found = sys.modules.get("cupy")
    return found if hasattr(found, "cuda") else None


def numpy() -> Any:
    return sys.modules.get("numpy")


def numba_cuda() -> Any:
    return sys.modules.get("numba.cuda")


def tensor_type() -> Any:
    """Return torch's type of tensors; () where there is none, which `isinstance` takes as well."""
    return _type(torch(), "Tensor")


def cupy_array_type() -> Any:
    return _type(sys.modules.get("cupy"), "ndarray")


def numba_array_type() -> Any:
    return _type(sys.modules.get("numba.cuda.cudadrv.devicearray"), "DeviceNDArray")


def is_tensor(value: object) -> bool:
    """Return whether `value` is a tensor of torch's, or of a subclass."""
    return isinstance(value, tensor_type())


def tensors_in(value: Any, most: int = 10_000) -> Iterator[Any]:
    """Yield the tensors in a result, however they lie in it, among its first `most` parts."""
    left = [value]
    for _ in range(most):
        if not left:
            return
        value = left.pop()
        if is_tensor(value):
            yield value
            continue
        if isinstance(value, Mapping):
            value = value.values()
        elif is_dataclass(value) and not isinstance(value, type):
            value = [getattr(value, each.name, None) for each in reversed(fields(value))]
        elif not isinstance(value, (tuple, list, set, frozenset)):
            continue
        left += reversed([*islice(value, most)])


def is_module(value: object) -> bool:
    return isinstance(value, _type(torch(), "nn", "Module"))


def is_numpy_array(value: object) -> bool:
    return isinstance(value, _type(numpy(), "ndarray"))


def is_numpy_scalar(value: object) -> bool:
    return isinstance(value, _type(numpy(), "generic"))


def _type(library: Any, *names: str) -> Any:
    for name in names:
        library = getattr(library, name, None)
    return library if isinstance(library, type) else ()
