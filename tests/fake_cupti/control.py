"""Steer the fake CUPTI from a test: say what the GPU ran, what is refused, who else collects."""

from __future__ import annotations

import ctypes
from pathlib import Path

MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL, PEER_COPY = 1, 2, 4, 5, 10, 22
DRIVER_CALLS, RUNTIME_CALLS = 1, 2

# CUPTI's numbers of functions that the fake knows.
CU_LAUNCH_KERNEL, CU_GRAPH_LAUNCH, CU_LAUNCH_HOST_FUNC, CU_DEVICE_GET = 307, 514, 527, 3
CUDA_LAUNCH_KERNEL, CUDA_LAUNCH_KERNEL_PTSZ, CUDA_MEMCPY_ASYNC, CUDA_MALLOC = 211, 214, 41, 20
CUDA_GRAPH_LAUNCH, CUDA_SET_PARAMS = 311, 288

HTOD, DTOH, DTOD = 1, 2, 8
PAGEABLE, PINNED, DEVICE = 1, 2, 3

_U32, _U64 = ctypes.c_uint32, ctypes.c_uint64


class FakeCupti:
    """The controls of the fake CUPTI at `path`, which gpuprof loads too."""

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self.shared_object = lib = ctypes.CDLL(self.path)
        lib.fakecupti_calls.restype = lib.fakecupti_now.restype = _U64
        lib.fakecupti_get.restype = _U64
        lib.fakecupti_calls.argtypes = lib.fakecupti_get.argtypes = [ctypes.c_char_p]
        lib.fakecupti_set.argtypes = [ctypes.c_char_p, ctypes.c_double]
        lib.fakecupti_fail.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
        lib.fakecupti_raw.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t]
        lib.fakecupti_call.argtypes = [ctypes.c_int, _U32, _U64, _U64, _U32, _U32]
        lib.fakecupti_work.argtypes = [
            *(ctypes.c_int, ctypes.c_void_p, _U64, _U64, _U32, _U32, _U32, _U64, _U64, _U32, _U64)
        ]
        # CUPTI owns the names of kernels for as long as the process lives.
        self._symbols: dict[str, ctypes.Array[ctypes.c_char]] = {}

    def reset(self) -> None:
        """Forget everything, the callbacks too."""
        self.shared_object.fakecupti_reset()

    def now(self) -> int:
        """Return the time on CUPTI's clock."""
        return int(self.shared_object.fakecupti_now())

    def set(self, what: str, value: float) -> None:
        self.shared_object.fakecupti_set(what.encode(), value)

    def get(self, what: str) -> int:
        return int(self.shared_object.fakecupti_get(what.encode()))

    def calls(self, name: str) -> int:
        return int(self.shared_object.fakecupti_calls(name.encode()))

    def fail(self, call: str, code: int, *, after: int = 0) -> None:
        """Let a call answer `code` from now on, after `after` more that succeed."""
        self.shared_object.fakecupti_fail(call.encode(), code, after)

    def kernel(
        self,
        name: str | None,
        begin: int | None = None,
        end: int | None = None,
        *,
        stream: int = 7,
        correlation: int = 0,
        graph: int = 0,
        node: int = 0,
        times: int = 1,
    ) -> None:
        """Let a kernel have run; without times, it ran just now for 1,000 units."""
        if name is not None and name not in self._symbols:
            self._symbols[name] = ctypes.create_string_buffer(name.encode())
        symbol = None if name is None else ctypes.addressof(self._symbols[name])
        begin = self.now() if begin is None else begin
        end = begin + 1000 if end is None else end
        self.shared_object.fakecupti_work(
            KERNEL, symbol, begin, end, stream, correlation, graph, node, 0, 0, times
        )

    def copy(
        self,
        kind: int = HTOD,
        source: int = PAGEABLE,
        destination: int = DEVICE,
        *,
        nbytes: int = 0,
        what: int = MEMCPY,
        correlation: int = 0,
    ) -> None:
        """Let a copy, or with ``what=MEMSET`` a memset, have run just now for 1,000 units."""
        begin = self.now()
        memory = destination if what == MEMSET else kind << 16 | source << 8 | destination
        self.shared_object.fakecupti_work(
            what, None, begin, begin + 1000, 7, correlation, 0, 0, nbytes, memory, 1
        )

    def call(
        self,
        domain: int,
        function: int,
        *,
        thread: int = 0,
        correlation: int = 0,
        begin: int | None = None,
        end: int | None = None,
    ) -> None:
        """Let the program have called a function of CUDA, just now for 500 units."""
        begin = self.now() if begin is None else begin
        end = begin + 500 if end is None else end
        self.shared_object.fakecupti_call(domain, function, begin, end, thread, correlation)

    def raw(self, record: bytes, step: int | None = None) -> None:
        """Put a record into the buffer as it is; the next one lies `step` bytes behind it."""
        self.shared_object.fakecupti_raw(record, len(record), len(record) if step is None else step)

    def enable(self, kind: int) -> None:
        """Enable a kind of records as another tool would, without callbacks of its own."""
        self.shared_object.cuptiActivityEnable(kind)

    def flush(self) -> None:
        """Give all buffers back."""
        self.shared_object.fakecupti_flush()

    def other_tool(self, on: bool) -> None:
        """Let another tool take the callbacks and collect kernels, or stop doing so."""
        self.shared_object.fakecupti_other_tool(int(on))
