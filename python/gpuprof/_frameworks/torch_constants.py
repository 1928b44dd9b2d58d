"""Values that a capture takes from the host, copied through pinned memory that its graph keeps.

Torch refuses to copy from unpinned memory in a capture. A dispatch mode gives such copies a pinned
source, which no one writes to again: the values are those of the capture. Some operators move host
tensors to the GPU below the dispatcher, where no mode sees the copy: indices, and scalars of
`where`. The mode moves them before. Tensors that are built of numbers on the GPU, as by
`torch.tensor(..., device="cuda")`, and lists as indices reach the dispatcher neither: a function
mode builds them on the host.

Modes hold on one thread and in the backward passes that it runs. Torch is not imported here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator
from typing import Any

from gpuprof._frameworks import loaded
from gpuprof._frameworks.cupy import relaxed
from gpuprof._frameworks.torch_dispatch import eager_compiled_code
from gpuprof._frameworks.torch_hooks import backward_in

_GPU = "cuda"  # the type of the devices that are captured


class HostConstants:
    """Lets a block that is captured copy from the host.

    Given what an earlier capture of the same code had, with no more modes than that one needed:
    compiled code then runs as it is compiled, unless tensors were built of numbers.

    Attributes
    ----------
    kept : list of Tensor
        The pinned memory that the graph of the block reads.
    """

    def __init__(self, earlier: HostConstants | None = None) -> None:
        self.kept: list[Any] = []
        self.has_built = False  # tensors of numbers
        self._copies = earlier is None or bool(earlier.kept)
        self._builds = earlier is None or earlier.has_built

    @contextlib.contextmanager
    def of_block(self) -> Iterator[None]:
        if not self._copies or loaded.whole_torch() is None:
            yield
            return
        with contextlib.ExitStack() as modes:
            if self._builds:  # for such a mode compiled code would be compiled anew
                modes.enter_context(eager_compiled_code())
                modes.enter_context(_function_mode()(self))
            modes.enter_context(_dispatch_mode()(self.kept))
            yield


@functools.lru_cache(maxsize=1)
def _dispatch_mode() -> Any:
    base: Any = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    torch = loaded.torch()
    aten = torch.ops.aten
    to_copy, copy_, where = aten._to_copy.default, aten.copy_.default, aten.where.self
    dense = {None, torch.preserve_format, torch.contiguous_format}
    composite = {aten.to, aten.type_as}
    indexing = {
        *(aten.index, aten._unsafe_index, aten.index_put, aten.index_put_),
        *(aten._unsafe_index_put, aten._index_put_impl_),
    }

    class Stage(base):  # type: ignore[misc]
        supports_higher_order_operators = True

        def __init__(self, kept: list[Any]) -> None:
            super().__init__()
            self._kept = kept

        @classmethod
        def is_infra_mode(cls) -> bool:
            return True  # so that compiled code runs as it is compiled

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            packet = getattr(func, "_overloadpacket", None)
            if packet in composite:  # in inference mode they come whole
                with self:
                    return func.decompose(*args, **kwargs)
            if func is to_copy and _is_on_host(args[0]) and _is_gpu(kwargs.get("device")):
                return self._moved(args[0], **kwargs)
            if func is copy_ and _is_on_gpu(args[0]) and _is_on_host(args[1]):
                return self._filled(*args, **kwargs)
            if packet in indexing and _is_on_gpu(args[0]):
                args = (args[0], self._indices(*args[:2]), *args[2:])
                if len(args) > 2:  # a value to put there
                    args = (*args[:2], *self._scalars(args[2:3], args[0].device), *args[3:])
            elif func is where and any(map(_is_on_gpu, args)):
                args = self._scalars(args, next(filter(_is_on_gpu, args)).device)
            return func(*args, **kwargs)

        def _moved(
            self, tensor: Any, *, device: Any, non_blocking: bool = False, **how: Any
        ) -> Any:
            """Do `_to_copy`; it converts on the host, to memory that nobody keeps."""
            is_pinned = tensor.is_pinned()
            if is_pinned and not non_blocking:  # it would wait, and so is refused
                return to_copy(tensor, device=device, **how)
            if is_pinned and tensor.is_contiguous():
                self._kept.append(tensor)  # each replay reads what it holds by then
                moved = to_copy(tensor, device=device, non_blocking=True)
                is_alike = how.get("dtype") in {None, tensor.dtype}
                is_alike = is_alike and how.get("memory_format") in dense
                return moved if is_alike else to_copy(moved, **how)
            tensor = self._pinned(to_copy(tensor, **how))
            return to_copy(tensor, device=device, non_blocking=True)

        def _filled(self, into: Any, tensor: Any, non_blocking: bool = False) -> Any:
            if tensor.is_pinned():
                is_alike = tensor.dtype == into.dtype and tensor.shape == into.shape
                if non_blocking and is_alike and tensor.is_contiguous():
                    self._kept.append(tensor)
                elif non_blocking:
                    tensor = self._moved(tensor, device=into.device, non_blocking=True)
                return copy_(into, tensor, non_blocking)
            tensor = tensor.to(into.dtype).expand(into.shape).contiguous()
            return copy_(into, self._pinned(tensor), True)

        def _pinned(self, tensor: Any) -> Any:
            if tensor.numel():
                with relaxed():  # it may ask for the state of events
                    tensor = tensor.pin_memory()
                self._kept.append(tensor)
            return tensor

        def _scalars(self, tensors: Any, device: Any) -> Any:
            return tuple(
                self._moved(each, device=device) if _is_on_host(each) and not each.dim() else each
                for each in tensors
            )

        def _indices(self, tensor: Any, indices: Any) -> list[Any]:
            found: list[Any] = []
            first = 0  # of the dimensions of an index
            for each in indices:
                is_mask = each is not None and each.dtype in {torch.bool, torch.uint8}
                last = first + (each.dim() if is_mask else 1)
                if each is None or not _is_on_host(each):
                    found.append(each)
                elif not is_mask:
                    found.append(self._moved(each, device=tensor.device))
                elif each.shape != tensor.shape[first:last]:
                    found.append(each)  # torch says what is wrong
                else:
                    places = each.nonzero().unbind(1)
                    found += [self._moved(place, device=tensor.device) for place in places]
                first = last
            return found

    return Stage


@functools.lru_cache(maxsize=1)
def _function_mode() -> Any:
    base: Any = importlib.import_module("torch.overrides").TorchFunctionMode
    torch = loaded.torch()
    new = torch.Tensor.new_tensor
    makers = {torch.tensor, torch.as_tensor, torch.asarray, new}
    subscripts = {torch.Tensor.__getitem__, torch.Tensor.__setitem__}
    passes = {torch.autograd.backward, torch.autograd.grad, torch.Tensor.backward}

    class Build(base):  # type: ignore[misc]
        def __init__(self, constants: HostConstants) -> None:
            super().__init__()
            self._constants = constants

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func in makers:
                return self._made(func, args, kwargs)
            if func in subscripts and _is_on_gpu(args[0]):
                args = (args[0], self._index(args[1]), *args[2:])
            with backward_in(self) if func in passes else contextlib.nullcontext():
                return func(*args, **kwargs)

        def _made(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            given = args[1:] if func == new else args
            data = given[0] if given else kwargs.get("data", kwargs.get("obj"))
            device = kwargs.get("device")
            if device is None:
                device = args[0].device if func == new else torch.get_default_device()
            is_there = loaded.is_tensor(data) or hasattr(data, "__cuda_array_interface__")
            if is_there or not _is_gpu(device):
                return func(*args, **kwargs)
            self._constants.has_built = True
            how = {**kwargs, "device": "cpu"}
            needs_gradient = how.pop("requires_grad", False)
            made = func(*args, **how).to(device)
            return made.requires_grad_() if needs_gradient else made

        def _index(self, index: Any) -> Any:
            if type(index) is tuple:
                return tuple(map(self._index, index))
            is_list = type(index) is list and {*map(type, index)} in ({int}, {bool})
            if not is_list and not loaded.is_numpy_array(index):
                return index
            self._constants.has_built = True
            return torch.as_tensor(index, device="cpu")

    return Build


def _is_gpu(device: Any) -> bool:
    return device is not None and bool(loaded.torch().device(device).type == _GPU)


def _is_on_gpu(value: Any) -> bool:
    return loaded.is_tensor(value) and bool(value.device.type == _GPU)


def _is_on_host(value: Any) -> bool:
    torch = loaded.torch()
    kinds = (torch.Tensor, torch.nn.Parameter)  # others stand for tensors that are elsewhere
    return type(value) in kinds and value.device.type == "cpu" and value.layout is torch.strided
