"""The state of the random generators, put back after a block."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put back the generators of Python, and of NumPy and torch where they are imported.

    Torch's are the CPU's and the current device's. CuPy's live on the GPU and are left alone.
    """
    put_back = [each() for each in (_of_python, _of_numpy, _of_torch)]
    try:
        yield
    finally:
        for undo in put_back:
            undo()


def _of_python() -> Callable[[], object]:
    state = random.getstate()
    return lambda: random.setstate(state)


def _of_numpy() -> Callable[[], object]:
    numpy: Any = sys.modules.get("numpy")
    if getattr(numpy, "random", None) is None:
        return _nothing
    state = numpy.random.get_state(legacy=False)
    return lambda: numpy.random.set_state(state)


def _of_torch() -> Callable[[], object]:
    torch: Any = sys.modules.get("torch")
    if getattr(torch, "get_rng_state", None) is None:
        return _nothing
    on_cpu = torch.get_rng_state()
    cuda: Any = getattr(torch, "cuda", None)
    in_use = getattr(cuda, "is_initialized", bool)
    device = cuda.current_device() if in_use() else None
    on_gpu = None if device is None else cuda.get_rng_state(device)

    def put_back() -> None:
        torch.set_rng_state(on_cpu)
        if on_gpu is not None:
            cuda.set_rng_state(on_gpu, device)
        elif in_use():  # since then: back to where its seed begins
            cuda.manual_seed(cuda.initial_seed())

    return put_back


def _nothing() -> None:
    pass
