"""CuPy itself, of whatever version is installed, as far as it goes without a GPU.

From 13 on it loads there and has its names. For a current stream, a pool's memory or a launch it
asks CUDA's runtime, for which the driver of the tests is not enough. It is loaded in a process of
its own: where it is loaded, gpuprof asks it.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_python
from tests.support.stand_in_cupy import installed

pytestmark = pytest.mark.skipif(find_spec("cupy") is None, reason="CuPy is not installed")

CONTROLS = {"fake", "launch", "world", "cuda.MemoryPool.is_over"}  # of the stand-in alone
# Names that gpuprof uses and the stand-in has not.
USED = [
    *("get_default_memory_pool", "ones", "cuda.get_allocator", "cuda.MemoryHook"),
    *("cuda.MemoryHook.malloc_postprocess", "cuda.MemoryHook.free_postprocess"),
    *("cuda.MemoryPool.used_bytes", "cuda.MemoryPool.total_bytes", "cuda.Stream.null"),
]


def public_names(holder: Any, before: str = "") -> Iterator[str]:
    for name, value in vars(holder).items():
        if name.startswith("_"):
            continue
        yield before + name
        if isinstance(value, (type, types.SimpleNamespace)):
            yield from public_names(value, f"{before}{name}.")


def test_cupy_has_each_name_of_the_stand_in_and_those_that_gpuprof_uses(fake: FakeCuda) -> None:
    with installed(fake) as stand_in:
        names = [each for each in public_names(stand_in) if each not in CONTROLS]
    code = f"""
    import functools, json
    import cupy
    absent = []
    for name in {[*names, *USED]!r}:
        try:
            functools.reduce(getattr, name.split("."), cupy)
        except AttributeError:
            absent.append(name)
    print(json.dumps([int(cupy.__version__.split(".")[0]), absent]))
    """
    version, absent = json.loads(check_python(code))
    # From 14 on; gpuprof takes `ExternalStream` before.
    assert absent == ([] if version >= 14 else ["cuda.Stream.from_external"])


def test_streams_and_memory_are_made_as_gpuprof_makes_them() -> None:
    code = """
    import cupy
    from tests.support.stand_in_cupy import frameworks_cupy
    cuda = cupy.cuda
    assert frameworks_cupy.stream_of(cuda, 4096, 0).ptr == 4096
    pointer = frameworks_cupy._pointer(cuda, 4096, 64, object(), 0)
    assert (pointer.ptr, pointer.mem.device_id) == (4096, 0)
    with cuda.using_allocator(print):
        assert cuda.get_allocator() is print
    """
    check_python(code)
