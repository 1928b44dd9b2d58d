"""A torch without a GPU, as far as captures are concerned: what it keeps, and when it forgets.

Its graph behaves as torch's of three times: up to 2.11 a failed end leaves everything as it was in
the capture; 2.12 ends the routing of allocations; later ones let the pool go as well. Every call
can be made to fail once, before its effect. Under it there are numbers (`Numbers`) or the fake
driver (`install_on`).
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
import types
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from gpuprof import _core

if TYPE_CHECKING:
    import pytest

    from tests.fake_driver.control import FakeCuda

NONE, ACTIVE, INVALIDATED = 0, 1, 2

MESSAGES = {
    401: "CUDA error: the operation cannot be performed in the present state",
    900: "CUDA error: operation not permitted when stream is capturing",
    901: "CUDA error: operation failed due to a previous error during capture",
    904: "CUDA error: capturing stream has unjoined work",
}


class InjectedError(RuntimeError):
    """What a call raises that was told to fail."""


class GeneratorState:
    """Shared by a generator and the graphs that were captured with it."""

    def __init__(self) -> None:
        self.capturing = False
        self.offset = 0


class Generator:
    """A random generator of torch's."""

    def __init__(self, state: GeneratorState | None = None) -> None:
        self.state = state or GeneratorState()

    def clone_state(self) -> Generator:
        return Generator()

    def graphsafe_get_state(self) -> Generator:
        return Generator(self.state)

    def graphsafe_set_state(self, other: Generator) -> None:
        self.state = other.state

    def get_offset(self) -> int:
        return self.state.offset

    def draw(self, increment: int = 4) -> None:
        if self.state.capturing:
            message = "Offset increment outside graph capture encountered unexpectedly."
            raise RuntimeError(message)
        self.state.offset += increment


class Numbers:
    """A driver that is no more than the capture status of its streams."""

    def __init__(self) -> None:
        self.captures: Counter[int] = Counter()
        self.unjoined: set[int] = set()
        self._handles = iter(range(0x1000, 0x10000, 0x10))

    def new_stream(self) -> int:
        return next(self._handles)

    def status(self, stream: int) -> int:
        return self.captures[stream]

    def capturing(self) -> set[int]:
        return {stream for stream, status in self.captures.items() if status}

    def begin(self, stream: int) -> int:
        if self.captures[stream]:
            return 401
        self.captures[stream] = ACTIVE
        return 0

    def end(self, stream: int) -> tuple[int, int]:
        """Return the code and the graph."""
        status, self.captures[stream] = self.captures[stream], NONE
        if status == NONE:
            return 401, 0
        if status == INVALIDATED:
            return 901, 0
        if stream in self.unjoined:
            self.unjoined.discard(stream)
            return 904, 0
        return 0, 0xA0

    def is_empty(self, _graph: int) -> bool:
        return False

    def instantiate(self, _graph: int) -> int:
        return 0xE0

    def launch(self, graph_exec: int, stream: int) -> None: ...

    def destroy(self, graph: int, graph_exec: int) -> None: ...


class FakeDriver:
    """The fake driver, as torch would use it."""

    def __init__(self, fake: FakeCuda) -> None:
        self._fake = fake
        self._streams: list[int] = []

    def new_stream(self) -> int:
        self._streams.append(self._fake.stream_create())
        return self._streams[-1]

    def status(self, stream: int) -> int:
        return self._fake.capture_status(stream)

    def capturing(self) -> set[int]:
        return {stream for stream in self._streams if self.status(stream)}

    def begin(self, stream: int) -> int:
        return self._fake.call("cuStreamBeginCapture_v2", stream, 1, expect=None)

    def end(self, stream: int) -> tuple[int, int]:
        graph = ctypes.c_uint64(0)
        code = self._fake.call("cuStreamEndCapture", stream, ctypes.byref(graph), expect=None)
        return code, graph.value

    def is_empty(self, graph: int) -> bool:
        return not self._fake.nodes(graph)

    def instantiate(self, graph: int) -> int:
        return self._fake.instantiate(graph, 1)

    def launch(self, graph_exec: int, stream: int) -> None:
        self._fake.graph_launch(graph_exec, stream)

    def destroy(self, graph: int, graph_exec: int) -> None:
        if graph:
            self._fake.graph_destroy(graph)
        if graph_exec:
            self._fake.exec_destroy(graph_exec)


class World:
    """What there is: a driver, torch's current stream, its pools and its generators."""

    def __init__(self, version: str, driver: Numbers | FakeDriver) -> None:
        self.version = version
        self.generation = tuple(int(part) for part in version.split(".")[:2])
        self.driver: Any = driver
        self.routed: list[object] = []
        self.held: Counter[object] = Counter()
        self.generator = Generator()
        self.waits: list[tuple[int, int]] = []
        self.pools = itertools.count(1)
        self.failing: dict[str, Exception] = {}
        self.blas_threads: set[int] = set()  # that have cuBLAS' handle
        self.blas_streams: set[int] = set()  # that have a workspace of cuBLAS
        self.replayed_on: list[int] = []
        self.draws = False
        self.increment = 4  # of the generator, by a replay of a graph that is captured from now on
        self.empty = False
        self.torch: Any = None
        self.current: Any = None

    def fail(self, call: str, error: Exception | None = None) -> None:
        """Let the next `call` raise."""
        self.failing[call] = error or InjectedError(call)

    def step(self, call: str) -> None:
        if call in self.failing:
            raise self.failing.pop(call)  # no local name, which would be a cycle with the traceback

    def state(self) -> dict[str, object]:
        """Return all that a capture must leave as it found it."""
        return {
            "current stream": self.current,
            "capturing": self.driver.capturing(),
            "allocations go to": list(self.routed),
            "pools held": dict(+self.held),
            "the generator believes in a capture": self.generator.state.capturing,
        }

    def break_capture(self) -> None:
        """Let the driver refuse something in the open capture."""
        for stream in self.driver.capturing():
            self.driver.captures[stream] = INVALIDATED

    def current_blas_handle(self) -> int:
        self.step("current_blas_handle")
        if threading.get_ident() not in self.blas_threads:
            if self.driver.capturing():
                message = "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate"
                raise RuntimeError(message)
            self.blas_threads.add(threading.get_ident())
        self.blas_streams.add(self.current.cuda_stream)
        return 0xB1A5

    def begin(self, handle: int) -> None:
        self.step("driver begin")
        code = self.driver.begin(handle)
        if code:
            raise RuntimeError(MESSAGES[code])

    def drop(self, handle: int) -> int:
        self.step("_drop_capture")
        return int(self.driver.end(handle)[0])

    def begin_empty(self, handle: int) -> None:
        self.step("_begin_empty_capture")
        self.begin(handle)
        self.empty = True


def _streams(world: World) -> dict[str, Any]:
    class Stream:
        def __init__(self, handle: int | None = None) -> None:
            world.step("Stream")
            self.cuda_stream = world.driver.new_stream() if handle is None else handle

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

        def __hash__(self) -> int:
            return self.cuda_stream

        def wait_stream(self, other: Stream) -> None:
            world.step("wait_stream")
            world.waits.append((self.cuda_stream, other.cuda_stream))
            assert not other.cuda_stream or not world.driver.status(other.cuda_stream), (
                "a stream was drawn into a capture"
            )

    default = Stream(0)
    world.current = default

    class StreamContext:
        def __init__(self, wanted: Stream) -> None:
            self.wanted = wanted

        def __enter__(self) -> None:
            self.before = world.current
            set_stream(self.wanted)

        def __exit__(self, *_error: object) -> None:
            world.current = self.before

    def set_stream(wanted: Stream) -> None:
        world.step("set_stream")
        world.current = wanted

    return {
        "Stream": Stream,
        "ExternalStream": type("ExternalStream", (Stream,), {}),
        "stream": StreamContext,
        "set_stream": set_stream,
        "current_stream": lambda _device=None: world.current,
        "default_stream": lambda: default,
    }


def _graph_class(world: World) -> type:
    class CUDAGraph:
        # Of the class, for the sake of an object that fails to be made.
        pool_id: object = None
        holds = False
        ended = False
        kept = False
        raw = 0
        exec = 0

        def __init__(self) -> None:
            world.step("CUDAGraph")
            self.stream = world.current
            self.registered: list[GeneratorState] = []

        def register_generator_state(self, generator: Generator) -> None:
            self.registered.append(generator.state)

        def capture_begin(self, pool: object, capture_error_mode: str) -> None:
            world.step("capture_begin")
            self.mode = capture_error_mode
            self.increment = world.increment
            self.stream = world.current
            self.states = [world.generator.state, *self.registered]
            if world.generation < (2, 12):
                for state in self.states:
                    state.capturing = True
            world.step("after the generator")
            self.pool_id = pool
            assert pool not in world.routed, "two captures of one pool at once"
            if pool in world.held and not world.held[pool]:
                message = "it->second->use_count > 0 INTERNAL ASSERT FAILED"
                raise RuntimeError(message)
            world.routed.append(pool)
            world.held[pool] += 1
            self.holds = True
            world.begin(self.stream.cuda_stream)
            world.empty = False

        def capture_end(self) -> None:
            if world.current != self.stream:
                message = "Capture must end on the same stream it began on."
                raise RuntimeError(message)
            world.step("capture_end")
            code, graph = world.driver.end(self.stream.cuda_stream)
            if code and world.generation >= (2, 12):
                world.routed.remove(self.pool_id)
            if code:
                raise RuntimeError(MESSAGES[code])
            if self.pool_id not in world.routed:
                message = "endAllocatePool: not currently recording to mempool_id"
                raise RuntimeError(message)
            world.routed.remove(self.pool_id)
            for state in self.states:
                state.capturing = False
            self.ended = True
            self.raw = graph
            if not self.kept:
                self.instantiate()
            if world.empty or world.driver.is_empty(graph):
                warnings.warn("The CUDA Graph is empty. This usually means ...", stacklevel=2)

        def reset(self) -> None:
            world.step("reset")
            if self.holds and (self.ended or world.generation >= (2, 14)):
                world.held[self.pool_id] -= 1
                self.holds = False
            self.ended = False
            world.driver.destroy(self.raw, self.exec)
            self.raw = self.exec = 0

        def __del__(self) -> None:
            world.failing.pop("reset", None)
            self.reset()

        def pool(self) -> object:
            if not self.ended:
                message = "Called CUDAGraph::pool() without a preceding successful capture."
                raise RuntimeError(message)
            return self.pool_id

        def instantiate(self) -> None:
            self.exec = world.driver.instantiate(self.raw)

        def replay(self) -> None:
            world.replayed_on.append(world.current.cuda_stream)
            for state in self.registered:
                Generator(state).draw()
            if world.draws:
                world.generator.draw(self.increment)
            if not self.exec:
                self.instantiate()
            world.driver.launch(self.exec, world.current.cuda_stream)

    def make(cls: type, keep_graph: bool = False) -> Any:
        self = object.__new__(cls)
        CUDAGraph.__init__(self)
        self.kept = keep_graph
        return self

    def raw_cuda_graph(self: Any) -> int:
        if not (self.kept and self.ended):
            message = "No cudaGraph_t is available"
            raise RuntimeError(message)
        return int(self.raw)

    def raw_cuda_graph_exec(self: Any) -> int:
        if not self.exec:
            message = "You cannot access the raw cudaGraphExec_t instance until instantiate()"
            raise RuntimeError(message)
        return int(self.exec)

    methods: dict[str, Any] = {}
    if world.generation >= (2, 8):
        methods |= {"__new__": make, "__init__": lambda *_arguments, **_options: None}
        methods["raw_cuda_graph"] = raw_cuda_graph
    if world.generation >= (2, 9):
        methods["raw_cuda_graph_exec"] = raw_cuda_graph_exec
    return type("CUDAGraph", (CUDAGraph,), methods)


def _private_functions(world: World) -> dict[str, Any]:
    def begin(device: int, pool: object) -> None:
        world.step("_cuda_beginAllocateCurrentThreadToPool")
        world.routed.append(pool)
        world.held[pool] += 1

    def end(device: int, pool: object) -> None:
        world.step("_cuda_endAllocateToPool")
        if pool not in world.routed:
            message = "endAllocatePool: not currently recording to mempool_id"
            raise RuntimeError(message)
        world.routed.remove(pool)

    def release(device: int, pool: object) -> None:
        assert world.held[pool] > 0, "a pool was let go too often"
        world.held[pool] -= 1

    return {
        "_cuda_beginAllocateCurrentThreadToPool": begin,
        "_cuda_endAllocateToPool": end,
        "_cuda_releasePool": release,
    }


def install(monkeypatch: pytest.MonkeyPatch, version: str = "2.11.0") -> World:
    """Put a torch of `version` into `sys.modules`, and numbers for a driver under `_core`."""
    driver = Numbers()
    world = World(version, driver)
    monkeypatch.setitem(sys.modules, "torch", _module(world))
    monkeypatch.setattr(_core, "_capture_status", driver.status)
    monkeypatch.setattr(_core, "_drop_capture", world.drop)
    monkeypatch.setattr(_core, "_begin_empty_capture", world.begin_empty)
    return world


def install_on(fake: FakeCuda, version: str = "2.11.0") -> World:
    """Put a torch of `version` over the fake driver into `sys.modules`, for the whole process."""
    world = World(version, FakeDriver(fake))
    sys.modules["torch"] = _module(world)
    return world


def _module(world: World) -> Any:
    torch: Any = types.ModuleType("torch")
    torch.__version__ = world.version
    torch.cuda = types.ModuleType("torch.cuda")
    torch._C = types.SimpleNamespace(
        _cuda_getDevice=lambda: 0,
        _cuda_getCurrentRawStream=lambda _device: world.current.cuda_stream,
        **_private_functions(world),
    )

    def graph_pool_handle() -> tuple[int, int]:
        world.step("graph_pool_handle")
        return (0, next(world.pools))

    def empty_cache() -> None:
        world.held = +world.held  # pools that nothing holds, and that have no memory in use

    vars(torch.cuda).update(
        _streams(world),
        CUDAGraph=_graph_class(world),
        graph_pool_handle=graph_pool_handle,
        empty_cache=empty_cache,
        is_initialized=lambda: True,
        current_blas_handle=world.current_blas_handle,
        current_device=lambda: 0,
        device_count=lambda: 1,
        default_generators=(world.generator,),
    )
    world.torch = torch
    return torch
