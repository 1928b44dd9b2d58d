"""Torch's tensors in a graphed callable. Torch is never imported from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuprof._callable.layout import grown, is_dense


class TorchArrays:
    """Tensors and parameters; see `gpuprof._callable.arrays.Arrays`.

    What it makes asks for no gradients. Static tensors are ordinary ones even in inference mode,
    so that later calls may write to them outside of it.

    Parameters
    ----------
    torch : module
    """

    name = "torch"
    in_place = False

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        buffer = getattr(torch.nn, "Buffer", torch.Tensor)
        self.types: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter, buffer)
        # Integers of each size: as such, a NaN equals itself.
        self._bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

    def static_like(self, array: Any) -> Any:
        # Memory that was expanded or sliced comes out dense here, with its dimensions in order.
        with self._torch.inference_mode(False):
            return self._torch.empty_like(array.detach())

    def fill(self, static: Any, array: Any) -> None:
        with self._torch.no_grad():  # the copy writes out what is conjugate or negative in name
            static.copy_(array)

    def fresh_maker(self, static: Any) -> tuple[Callable[[Any], Any], Any]:
        return self._torch.empty_like, static

    def stage(self, static: Any, array: Any) -> Any:
        result = self._torch.empty_like(static)
        self.fill(result, array)
        return result

    def dense(self, array: Any) -> Any:
        if not (array.is_conj() or array.is_neg()) and is_dense(array.shape, array.stride()):
            return array
        return self.stage(array.detach(), array)

    def same_bytes(self, a: Any, b: Any) -> bool:
        return bool(self._torch.equal(self._as_bits(a), self._as_bits(b)))

    def slice(self, array: Any, dim: int, size: int) -> Any:
        return array.narrow(dim, 0, size)

    def padded(self, array: Any, dim: int, size: int) -> Any:
        shape, back = grown(array.shape, array.stride(), dim, size)
        result = self._torch.empty(shape, dtype=array.dtype, device=array.device).permute(back)
        given = array.shape[dim]
        self.fill(result.narrow(dim, 0, given), array)
        result.narrow(dim, given, size - given).zero_()
        return result

    def nbytes(self, array: Any) -> int:
        return int(array.numel()) * int(array.element_size())

    def _as_bits(self, array: Any) -> Any:
        flat = array.detach().resolve_conj().resolve_neg().reshape(-1).contiguous()
        return flat.view(self._bits.get(flat.element_size(), self._torch.int64))
