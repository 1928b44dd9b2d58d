# Made by `python .ci/stubs.py` from the built module: do not edit, run it again.
# fmt: off
# ruff: noqa
"""The compiled part of gpuprof. Private: use the names in gpuprof."""
from __future__ import annotations
import collections.abc
import typing
from gpuprof._timing.backends import SyncBackend
from gpuprof._timing.memory import MemoryUse
_Function = typing.TypeVar("_Function", bound=typing.Callable[..., typing.Any])
__all__: list[str] = ['Annotation', 'ArrayDesc', 'CallBase', 'DeviceBuffer', 'GraphBase',
    'GraphNode', 'Sample', 'Scope', 'Timer', 'annotate', 'build_info', 'calibrate',
    'cuda_device', 'cuda_in_use', 'devices', 'driver_info', 'flush', 'is_enabled', 'mark',
    'nvtx_is_enabled', 'nvtx_last_push_result', 'nvtx_name_stream', 'nvtx_name_thread',
    'nvtx_set_enabled', 'nvtx_tool_listens', 'nvtx_valid_label', 'nvtx_warn_no_tool', 'push',
    'range_end', 'range_start', 'require_cuda', 'reset_stats', 'set_enabled', 'stats_snapshot',
    'stream_handle', 'timer']

class Sample:
    """One measured span: what entering a scope gives."""
    def __eq__(self, value: object) -> bool:
        """Return self==value."""
    def __hash__(self) -> int:
        """Return hash(self)."""
    def __ne__(self, value: object) -> bool:
        """Return self!=value."""
    def __reduce__(self) -> tuple[typing.Any, ...]: ...
    def __repr__(self) -> str:
        """Return repr(self)."""
    def _repr_html_(self) -> str: ...
    def to_dict(self) -> dict[str, typing.Any]:
        """Plain data; does not wait, and `ms` is None while it is not known."""
    def try_ms(self) -> float | None:
        """Like `ms`, but None instead of waiting or raising."""
    @property
    def clock(self) -> str:
        """What measured: 'cuda', 'cpu', 'metal' or a SyncBackend's name."""
    @property
    def cuda_started_inside(self) -> bool:
        """Whether CUDA came into use inside this CPU-clock scope, so that GPU work may be missing."""
    @property
    def dropped(self) -> bool:
        """Whether nothing was measured because too many samples were pending."""
    @property
    def failed(self) -> bool:
        """Whether the body raised or the driver refused."""
    @property
    def flops(self) -> float | None:
        """Floating-point operations of this entry, or None. Set it inside the scope."""
    @flops.setter
    def flops(self, value: float | None) -> None: ...
    @property
    def host_begin_ns(self) -> int:
        """When the host entered the scope, on the clock of time.monotonic_ns(); 0 if timing was off."""
    @property
    def host_end_ns(self) -> int:
        """When the host left the scope, on the clock of time.monotonic_ns(); 0 before that."""
    @property
    def host_ms(self) -> float:
        """Milliseconds that the host spent inside the scope."""
    @property
    def memory(self) -> MemoryUse | None:
        """What the allocators did, a `MemoryUse`. None without `memory=True`, inside the scope, and on other clocks than 'cuda'."""
    @property
    def ms(self) -> float:
        """Milliseconds between enter and exit, on the GPU where the clock is 'cuda'.

        Waits for the GPU, letting other threads run. nan if timing was off.

        Raises
        ------
        InvalidStateError
            The scope is still open, or the sample was dropped or skipped.
        NotReplayedError
            It was recorded into a graph that has not run yet.
        CudaError
            The driver refused to measure it.
        """
    @property
    def names(self) -> tuple[str, ...]:
        """The names that `path` joins, as a tuple: ('step', 'fwd'). A '/' in a name is part of it."""
    @property
    def nbytes(self) -> float | None:
        """Bytes that this entry reads and writes, or None. Set it inside the scope."""
    @nbytes.setter
    def nbytes(self, value: float | None) -> None: ...
    @property
    def path(self) -> str:
        """The names of the open scopes, outermost first: 'step/fwd'."""
    @property
    def ready(self) -> bool:
        """Whether `ms` would return at once with a measurement."""
    @property
    def state(self) -> str:
        """'open', 'pending', 'done', 'disabled', 'dropped', 'skipped', 'captured' or 'failed'."""
    @property
    def stream(self) -> int:
        """The CUDA stream's handle, 0 for the legacy default one."""
    @property
    def thread_id(self) -> int:
        """The system's number of the thread that left the scope, as threading.get_native_id(); 0 where neither a listener nor a trace asked for it."""

class Scope:
    """A named span of code, timed each time it is entered."""
    def __aenter__(self) -> typing.Any:
        """Start the clock; what is awaited is this entry's sample."""
    def __aexit__(self, type: typing.Any, value: typing.Any, traceback:
        typing.Any) -> typing.Any:
        """Stop the clock; never waits for the GPU."""
    def __call__(self, function: _Function) -> _Function:
        """Call self as a function."""
    def __enter__(self) -> Sample:
        """Start the clock and return this entry's sample."""
    def __exit__(self, type: typing.Any, value: typing.Any, traceback: typing.Any) -> None:
        """Stop the clock; never waits for the GPU."""
    def __init__(self, name: str | None, *, stream: typing.Any, backend: typing.Any, enabled:
        bool | None, verify_stream: bool, record_in_capture: bool, memory: bool=False, flops:
        typing.Any=None, nbytes: typing.Any=None) -> None: ...
    def __reduce__(self) -> tuple[typing.Any, ...]: ...
    def __repr__(self) -> str: ...
    @property
    def _options(self) -> dict[str, typing.Any]: ...
    @property
    def last(self) -> Sample | None:
        """The sample of the last exit, or None."""
    @property
    def ms(self) -> float:
        """`last.ms`: waits. Raises InvalidStateError before the first exit."""
    @property
    def name(self) -> str | None:
        """The name, or None."""

class Timer:
    def __init__(self, backend: typing.Any, stream: typing.Any) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def __repr__(self) -> str: ...
    def close(self) -> None:
        """Give the events back. Idempotent; never raises."""
    def elapsed_ms(self) -> float:
        """Milliseconds between the marks; waits for the GPU. 0.0 while a mark is missing."""
    def record_end(self, stream: typing.Any=None) -> None:
        """Set the second mark, on `stream` or that of the first."""
    def record_start(self, stream: typing.Any=None) -> None:
        """Set the first mark, on `stream` or the timer's own, and forget the second."""
    @property
    def clock(self) -> str:
        """What measures: 'cuda', 'cpu', ..."""
    @property
    def ready(self) -> bool:
        """Whether elapsed_ms() would return a measurement at once."""
    @property
    def streams(self) -> tuple[int, ...]:
        """The handles of the streams of the marks that are set."""

class _Event:
    """One event, recorded and read by hand."""
    def __init__(self) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def elapsed_ms(self, end: _Event) -> float:
        """Milliseconds from this event to another; both must be reached."""
    def query(self) -> bool:
        """Whether it is reached, or was never recorded."""
    def record(self, stream: typing.Any=None) -> None:
        """Record it on a stream; None is the framework's current one."""
    def synchronize(self) -> None:
        """Wait until it is reached."""
    def wait(self, stream: typing.Any=None) -> None:
        """Let later work of a stream wait for it."""
    @property
    def clock(self) -> str:
        """What was recorded: 'cuda', 'cpu' or nothing yet."""
    @property
    def handle(self) -> int:
        """The CUDA event; 0 where there is none."""

class _PlacedSpan:
    def __init__(self, stream: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def elapsed_ms(self) -> float: ...
    def place(self, end: bool=False) -> typing.Any: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...

class DeviceBuffer:
    """Device memory that can be filled and copied."""
    def __init__(self, nbytes: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def copy(self, repeats: typing.SupportsInt | typing.SupportsIndex, stream:
        typing.SupportsInt | typing.SupportsIndex=0) -> None:
        """Copy its first half onto the second, as `fill` writes."""
    def fill(self, repeats: typing.SupportsInt | typing.SupportsIndex, stream:
        typing.SupportsInt | typing.SupportsIndex=0) -> None:
        """Write the whole buffer `repeats` times on a stream, by its handle, without waiting."""

class _Gate:
    """Holds back what is queued on a stream, until it is opened or a limit is over."""
    def __init__(self, stream: typing.SupportsInt | typing.SupportsIndex, device:
        typing.SupportsInt | typing.SupportsIndex=0) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def close(self, limit_s: typing.SupportsFloat | typing.SupportsIndex) -> None:
        """Close it for at most `limit_s` seconds."""
    def open(self) -> bool:
        """Open it. False if the limit was over before, or it was not closed."""
    @property
    def closed(self) -> bool:
        """Whether nobody has opened it yet."""

class _InstructionCounter:
    """The instructions of this thread, and of those that it starts, in user space."""
    def __init__(self, *, task_clock: bool=False) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def close(self) -> None: ...
    def read(self) -> tuple[int, int, int]:
        """(instructions, nanoseconds since it was opened, those in which it counted)."""
    @property
    def error(self) -> int:
        """0, or the number of the error that kept it from being opened."""

class _SampleQueue:
    """Finished samples that wait for one listener."""
    def __init__(self, name: str, paths: collections.abc.Sequence[str], capacity:
        typing.SupportsInt | typing.SupportsIndex=16384) -> None: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def close(self) -> None:
        """Get no more samples. Idempotent."""
    def hand_on(self, function: typing.Any) -> bool:
        """Call `function` with all that waits, a list, unless it is empty; False where nothing is handed on: inside of a listener, or beside another such call."""
    @property
    def dropped(self) -> int: ...

class Annotation:
    """A named range, shown each time it is entered."""
    @staticmethod
    def _end(number: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __aenter__(self) -> typing.Awaitable[Annotation]:
        """Start a range of this task."""
    def __aexit__(self, type: typing.Any, value: typing.Any, traceback:
        typing.Any) -> typing.Awaitable[None]:
        """End this task's range."""
    def __call__(self, function: _Function) -> _Function:
        """Call self as a function."""
    def __enter__(self) -> Annotation:
        """Open the range on this thread and return the annotation."""
    def __exit__(self, type: typing.Any, value: typing.Any, traceback: typing.Any) -> None:
        """Close the range that this enter opened."""
    def __reduce__(self) -> tuple[typing.Any, ...]: ...
    def __repr__(self) -> str: ...
    def _register(self) -> None: ...
    def _start(self) -> int: ...
    @property
    def _options(self) -> dict[str, typing.Any]: ...
    @property
    def is_active(self) -> bool:
        """Whether a tool shows this annotation now: NVTX is on, a tool listens, and the range was pushed on this thread and will be popped there."""
    @property
    def name(self) -> str | None:
        """The name, or None."""

class _TraceEvents:
    def __init__(self) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def _set_number(self, number: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def complete(self, name: str, begin_ns: int, dur_ns: int, *, cat: str | None = None, tid:
        int | None = None, args: typing.Mapping[str, object] | None = None) -> None:
        """Write a slice with given times.

        Slices of one track nest if they come in the order of their ends or of their beginnings;
        one that crosses others of its track is shown on a track of its own. What lies before
        gpuprof was imported is cut off.

        Parameters
        ----------
        name : str
            What to show.
        begin_ns, dur_ns : int
            When it began, by ``time.monotonic_ns()``, and how long it took.
        cat : str, optional
            Its category.
        tid : int, optional
            As for `push`.
        args : Mapping, optional
            Plain data to show with it.
        """
    def push(self, name: str, cat: str, dur_ms: float, tid: int | None = None) -> None:
        """Write a slice that ends now.

        Parameters
        ----------
        name, cat : str
            What to show, and its category.
        dur_ms : float
            How long it took, in milliseconds.
        tid : int, optional
            The track: a thread's native id, or any other number below 2**28. None and 0 are the
            calling thread.
        """

class _CaptureBlock:
    """The block of a capture."""
    def __enter__(self) -> typing.Any:
        """Begin the capture."""
    def __exit__(self, type: typing.Any, value: typing.Any, traceback: typing.Any) -> None:
        """End the capture, or discard it after an exception."""

class _EndedCapture:
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    @property
    def graph(self) -> int: ...

class _Capture:
    def __init__(self) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def abort(self) -> None: ...
    def attach(self, stream: typing.SupportsInt | typing.SupportsIndex, mode: typing.SupportsInt
        | typing.SupportsIndex, timers: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def begin(self, stream: typing.SupportsInt | typing.SupportsIndex, ordinal:
        typing.SupportsInt | typing.SupportsIndex, mode: typing.SupportsInt |
        typing.SupportsIndex, timers: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def close(self) -> None: ...
    def end(self) -> _EndedCapture: ...
    def facts(self) -> dict[str, typing.Any]: ...
    def log(self) -> list[tuple[bool, str]]: ...
    def look(self) -> None: ...
    def prepare(self) -> None: ...
    def status(self) -> int: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def num_nodes(self) -> int | None: ...

class _CaptureFacts:
    def __init__(self, name: str | None, mode: str | None, num_nodes: typing.SupportsInt |
        typing.SupportsIndex | None, last_kernel: str | None, log:
        collections.abc.Sequence[tuple[bool, str]] | None, op: str | None, where: str | None,
        stream: typing.SupportsInt | typing.SupportsIndex | None) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...

class _LaunchOrder:
    def __init__(self) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    @property
    def launches(self) -> int: ...

class GraphBase:
    """What `CapturedGraph` has of the driver."""
    _by_torch: typing.Any
    _direct: bool
    _notice: bool
    def __init__(self, ended: _EndedCapture | None, handle: typing.SupportsInt |
        typing.SupportsIndex, stream: typing.SupportsInt | typing.SupportsIndex, ordinal:
        typing.SupportsInt | typing.SupportsIndex, timers: typing.SupportsInt |
        typing.SupportsIndex, name: str) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def _add_copies(self, before: collections.abc.Sequence[tuple[typing.SupportsInt |
        typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt |
        typing.SupportsIndex]], after: collections.abc.Sequence[tuple[typing.SupportsInt |
        typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt |
        typing.SupportsIndex]]) -> None: ...
    def _instantiate(self) -> None: ...
    def _labelled_ids(self) -> list[tuple[int, str]]: ...
    def _lend_exec(self, exec: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def _memory(self) -> tuple[int, int]: ...
    def _note_use(self, stream: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def _read_scalars(self, objects: tuple[typing.Any, ...]) -> None: ...
    def _read_scalars_of(self, stream: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def _retain(self, objects: tuple[typing.Any, ...]) -> None: ...
    def _set_launch_order(self, order: _LaunchOrder) -> None: ...
    def _times(self, wait: bool) -> list[tuple[tuple[str, ...], float | None]]: ...
    def _update(self, other: GraphBase, objects: tuple[typing.Any, ...]) -> tuple[int, int,
        int]: ...
    def _walk(self) -> tuple[typing.Any, ...]: ...
    def close(self) -> None:
        """Destroy the graph. Idempotent; a replay that runs is not disturbed, and what the graph
        keeps alive is let go when the last one is over.
        """
    def launch(self, stream: object = None) -> None:
        """Replay the graph once on `stream`, without waiting for it.

        Parameters
        ----------
        stream : int or object, optional
            None is the framework's current stream; without a framework the one it was captured on.

        Raises
        ------
        InvalidStateError
            The graph is closed, or the stream is being captured.
        CudaError
            The driver refused the launch.
        """
    def upload(self, stream: object = None) -> None:
        """Copy the graph to the device, so that the first launch is as cheap as the others.

        Idempotent; a launch does it too. Does not wait.
        """
    @property
    def _collects(self) -> bool: ...
    @property
    def _has_labels(self) -> bool: ...
    @property
    def _span_count(self) -> int: ...
    @property
    def device(self) -> int:
        """The index of the device that the graph is on."""
    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
    @property
    def is_uploaded(self) -> bool:
        """Whether the graph is on the device, by `upload` or by a launch."""
    @property
    def num_nodes(self) -> int:
        """How many nodes the graph has; those of child graphs are not counted."""
    @property
    def num_replays(self) -> int:
        """How often the graph was launched."""
    @property
    def raw_exec(self) -> int:
        """The CUgraphExec, as an int. It belongs to this object."""
    @property
    def raw_graph(self) -> int:
        """The CUgraph, as an int. It belongs to this object."""

class GraphNode:
    """One node of a CUDA graph, as plain data.

    A field that does not apply to the node's type is None, as are all of them where the driver does
    not tell what a node does. Nodes are named by their index in their own graph.
    """
    def __eq__(self, arg0: typing.Any) -> bool: ...
    def __hash__(self) -> int: ...
    def __init__(self, index: typing.SupportsInt | typing.SupportsIndex, type: str, name:
        str='', symbol: str='', grid:
        typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        'FixedSize(3)'] | None=None, block:
        typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        'FixedSize(3)'] | None=None, shared_memory: typing.SupportsInt | typing.SupportsIndex |
        None=None, nbytes: typing.SupportsInt | typing.SupportsIndex | None=None, value:
        typing.SupportsInt | typing.SupportsIndex | None=None, element_size: typing.SupportsInt
        | typing.SupportsIndex | None=None, dependencies:
        collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]=(), programmatic:
        collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]=(), dependents:
        collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]=(), children:
        tuple[GraphNode, ...]=(), scope: str='', scope_names:
        collections.abc.Sequence[str]=()) -> None: ...
    def __reduce__(self) -> tuple[typing.Any, typing.Any]: ...
    def __repr__(self) -> str: ...
    def to_dict(self) -> dict[str, typing.Any]:
        """Plain data, ready for JSON."""
    @property
    def block(self) -> tuple[int, int, int] | None:
        """Threads of one block: (x, y, z)."""
    @property
    def children(self) -> tuple[GraphNode, ...]:
        """The nodes of a child graph."""
    @property
    def dependencies(self) -> tuple[int, ...]:
        """The nodes that this one waits for."""
    @property
    def dependents(self) -> tuple[int, ...]:
        """The nodes that wait for this one."""
    @property
    def element_size(self) -> int | None:
        """Bytes of one element of a memset: 1, 2 or 4."""
    @property
    def grid(self) -> tuple[int, int, int] | None:
        """Blocks of the kernel's grid: (x, y, z)."""
    @property
    def index(self) -> int:
        """The node's place in the driver's list."""
    @property
    def name(self) -> str:
        """The kernel's name as written in C++; empty for other nodes."""
    @property
    def nbytes(self) -> int | None:
        """Bytes that are copied, set or allocated."""
    @property
    def programmatic(self) -> tuple[int, ...]:
        """Those of `dependencies` that need not be over when this node starts."""
    @property
    def scope(self) -> str:
        """The path of the innermost scope that was open when the node was captured, such as 'step/forward'; empty outside of all scopes."""
    @property
    def scope_names(self) -> tuple[str, ...]:
        """The names in that path, outermost first."""
    @property
    def shared_memory(self) -> int | None:
        """Bytes of dynamic shared memory of one block."""
    @property
    def symbol(self) -> str:
        """The kernel's name as the driver has it."""
    @property
    def type(self) -> str:
        """What the node does.

        'kernel', 'memcpy', 'memset', 'host', 'graph', 'empty', 'event_wait', 'event_record',
        'semaphore_signal', 'semaphore_wait', 'mem_alloc', 'mem_free', 'batch_mem_op', 'conditional', or
        'type_N' for one that this gpuprof does not know.
        """
    @property
    def value(self) -> int | None:
        """What a memset sets each element to."""

class _DeviceScalar:
    """One number in device memory."""
    def __dlpack__(self, *, stream: typing.Any=None, max_version: typing.Any=None, dl_device:
        typing.Any=None, copy: typing.Any=None) -> typing.Any:
        """The number as a DLPack capsule; `stream` is made to wait for the last update."""
    def __dlpack_device__(self) -> tuple[int, int]:
        """(2, device): CUDA memory, in DLPack's numbers."""
    def __init__(self, value: typing.SupportsFloat | typing.SupportsIndex, dtype: str, stream:
        object) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def __repr__(self) -> str: ...
    def close(self) -> None:
        """Let go of the memory, once arrays made from it have too. Idempotent; never waits."""
    def get(self, stream: object = None) -> bool | int | float:
        """Return the value, after what is queued on a stream now.

        Waits for the GPU.

        Parameters
        ----------
        stream : int or object, optional
            None is the stream of the last `update`. Pass the stream of a replay to see what it wrote.

        Returns
        -------
        bool, int or float

        Raises
        ------
        InvalidStateError
            The stream is being captured or belongs to another context, or the scalar is closed.
        CudaError
            The driver refused the read, or work on the stream failed.
        """
    def update(self, value: typing.SupportsFloat | typing.SupportsIndex, stream: object = None,
        *, record: bool = False) -> None:
        """Write a value in a stream's order, without waiting.

        Work that is queued on the stream from now on sees the new value. The value travels in the call,
        so nothing has to be kept for it.

        Parameters
        ----------
        value : number
            What has ``__index__`` or ``__float__``. An integer dtype takes integers in its range; a
            floating-point one rounds to nearest, ties to even.
        stream : int or object, optional
            None is the stream that the scalar was made with, and if that was None the framework's
            current one.
        record : bool
            On a stream that is being captured: make the write a node of the graph, which writes this
            value at each replay.

        Raises
        ------
        InvalidStateError
            The stream is being captured and `record` is False, or belongs to another context; or the
            scalar is closed.
        CudaError
            The driver refused the write.
        TypeError, ValueError
            `value` is no number, or does not fit in the dtype.
        """
    @property
    def __cuda_array_interface__(self) -> dict[str, typing.Any]:
        """The number as an array of no dimensions, for CuPy, Numba and torch."""
    @property
    def device(self) -> int:
        """The index of the device that it lies on."""
    @property
    def dtype(self) -> str:
        """NumPy's name of the type, or 'bfloat16'."""
    @property
    def nbytes(self) -> int:
        """How many bytes the number has."""
    @property
    def ptr(self) -> int:
        """The device address, which never changes."""

class ArrayDesc(typing.NamedTuple):
    """Where an array is, and how it is laid out."""
    address: int
    device_type: int
    device: int
    dtype: tuple[int, int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

class _Guards:
    """What a graph takes for granted of containers and of tensors."""
    ABSENT: typing.ClassVar[object]
    def __init__(self, containers: tuple[typing.Any, ...], tensors: tuple[typing.Any, ...],
        at_once: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def flag(self) -> None: ...
    def hold(self) -> bool: ...

class _EntryArray:
    """One array of the arguments, as a graph wants it."""
    def __init__(self, *, types: tuple[typing.Any, ...], desc: tuple[typing.Any, ...], in_place:
        bool, call_strides: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]
        | None, requires_grad: bool | None, may_be_view: bool, copied_in: bool, copied_back:
        bool) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...

class _CacheEntry:
    def __init__(self, *, graph: typing.Any, args: tuple[typing.Any, ...], keywords:
        tuple[typing.Any, ...], keywords_in_order: bool, arrays:
        collections.abc.Sequence[_EntryArray], state_guards:
        collections.abc.Sequence[tuple[typing.Any, typing.Any]], guards: typing.Any, results:
        collections.abc.Sequence[tuple[typing.Any, typing.Any, bool]], result: typing.Any,
        stage: typing.Any, put_back: typing.Any, fetch: typing.Any, wrote: typing.Any, written:
        collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex,
        typing.SupportsInt | typing.SupportsIndex]], read:
        collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex,
        typing.SupportsInt | typing.SupportsIndex]], after: typing.Any, apply: typing.Any,
        verify_every: typing.SupportsInt | typing.SupportsIndex, device: int, stream_type:
        typing.Any, stream: typing.Any) -> None: ...
    def __reduce__(self) -> str | tuple[typing.Any, ...]: ...
    def replay(self, arrays: tuple[typing.Any, ...]) -> tuple[typing.Any, ...]: ...
    @property
    def graph(self) -> typing.Any: ...
    @property
    def runs(self) -> int: ...

class CallBase:
    """What a graphed callable has of its graphs."""
    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Call self as a function."""
    def _add(self, entry: _CacheEntry) -> None: ...
    def _remove(self, entry: _CacheEntry) -> bool: ...
    def _run(self, entry: _CacheEntry, args: tuple[typing.Any, ...], kwargs: dict[str,
        typing.Any]) -> typing.Any: ...
    @property
    def _entries(self) -> tuple[_CacheEntry, ...]:
        """The entries, most recently used first."""
    @property
    def _hits(self) -> int:
        """How many calls an entry has answered without Python."""

def _array_facts(object: object) -> ArrayDesc | None:
    """What an array is, in DLPack's terms; None for what is none."""

def _begin_empty_capture(stream: typing.SupportsInt | typing.SupportsIndex) -> None: ...

def _capture_of(arg0: typing.SupportsInt | typing.SupportsIndex, arg1: typing.SupportsInt |
    typing.SupportsIndex) -> tuple[int, int, int]: ...

def _capture_status(stream: typing.SupportsInt | typing.SupportsIndex, ordinal:
    typing.SupportsInt | typing.SupportsIndex=0) -> int: ...

def _captured_work(stream: typing.SupportsInt | typing.SupportsIndex, ordinal:
    typing.SupportsInt | typing.SupportsIndex, since: typing.SupportsInt |
    typing.SupportsIndex) -> tuple[int, bool]: ...

def _count_nodes(graph: typing.SupportsInt | typing.SupportsIndex) -> int:
    """How many nodes the graph has, child graphs' not counted."""

def _cupti_graph_node_id(node: int) -> int | None:
    """The number that CUPTI gives the node of a graph; None where CUPTI is not loaded."""

def _cupti_load(candidates: collections.abc.Sequence[str]) -> dict[str, typing.Any]:
    """Open CUPTI, from one of these paths or where the toolkit has it."""

def _cupti_start(max_records: int = 1000000, candidates: collections.abc.Sequence[str] =
    ()) -> None:
    """Collect kernels, copies, memsets and launches from now on."""

def _cupti_state() -> dict[str, typing.Any]:
    """What is loaded, and whether there is a collection."""

def _cupti_stop(release: bool = True, timeout_s: float = 60.0) -> dict[str, typing.Any]:
    """End the collection and return what came, as columns of bytes."""

def _current_stream() -> tuple[int, int, bool]:
    """(handle, device, whether a framework is there) of the stream that None stands for."""

def _diagnose(code: typing.SupportsInt | typing.SupportsIndex, call: str, detail: str, facts:
    _CaptureFacts) -> tuple[int, str | None, str | None, str]:
    """(code, first refused call, hint, text) of an error of a capture."""

def _diagnosis_note(facts: _CaptureFacts) -> str: ...

def _drain() -> None:
    """Count what is finished; does not wait."""

def _drain_kept() -> None: ...

def _drop_capture(stream: typing.SupportsInt | typing.SupportsIndex) -> int: ...

def _enter_unpaused(scope: Scope) -> typing.Any:
    """Enter a scope of gpuprof's own where the thread is paused."""

def _exchange_capture_mode(arg0: typing.SupportsInt | typing.SupportsIndex) -> int: ...

def _exit_by_interrupt() -> None: ...

def _forget_warnings() -> None: ...

def _fork_generation() -> int: ...

def _graph_edges(graph: typing.SupportsInt | typing.SupportsIndex) -> tuple[tuple[int, int],
    ...]:
    """The edges as pairs of indices: the first node comes before the second."""

def _graph_nodes(graph: typing.SupportsInt | typing.SupportsIndex) -> tuple[GraphNode, ...]:
    """The nodes of the CUgraph with this handle, which must stay alive and unchanged meanwhile."""

def _host_now() -> int:
    """The host's clock, in nanoseconds."""

def _is_set(variable: str) -> bool:
    """Whether a variable of the environment says yes: 1, true, on or yes."""

def _keep_exact_functions() -> None:
    """Have wrappers, made and to be made, be exactly functions for torch.compile."""

def _look_for_torch() -> None: ...

def _note_graph_launches(limit: typing.SupportsInt | typing.SupportsIndex) -> None:
    """Note when graphs are launched, at most `limit` times."""

def _noted_graph_launches() -> list[tuple[int, int, int, int]]:
    """End that, and return (begin_ns, end_ns, thread_id, raw_exec) of each launch."""

def _open_captures() -> list[dict[str, typing.Any]]: ...

def _open_scopes() -> list[tuple[tuple[str, ...], int, int]]:
    """The named scopes that are open on any thread: (names, host_begin_ns, thread_id)."""

def _paused(work: collections.abc.Callable[..., typing.Any], *args: typing.Any) -> typing.Any:
    """Call `work(*args)`; meanwhile this thread records no scope and shows no range."""

def _relaxed_collections() -> int: ...

def _release_idle() -> int:
    """Destroy pooled events and let go of idle contexts; the number of event pairs in use."""

def _restore_sample(names: collections.abc.Sequence[str], clock: str, status: typing.SupportsInt
    | typing.SupportsIndex, body_raised: bool, device_ms: typing.SupportsFloat |
    typing.SupportsIndex, host_span: typing.SupportsInt | typing.SupportsIndex, details:
    tuple[typing.Any, ...]=(), host_begin: typing.SupportsInt | typing.SupportsIndex=0,
    thread_id: typing.SupportsInt | typing.SupportsIndex=0) -> typing.Any: ...

def _samples_in_memory() -> int: ...

def _set_node_ids(of_node: typing.SupportsInt | typing.SupportsIndex, of_exec:
    typing.SupportsInt | typing.SupportsIndex) -> None:
    """The addresses of cuptiGetGraphNodeId and cuptiGetGraphExecId; 0 for none."""

def _shorten(wrapper: typing.Any) -> typing.Any:
    """Return a wrapper of gpuprof._timing.decorate, which from now on runs only where it must."""

def _synchronize(stream: typing.SupportsInt | typing.SupportsIndex, device: typing.SupportsInt |
    typing.SupportsIndex=0) -> None:
    """Wait for all work in the stream's context, unless the stream is being captured."""

def _timeline_refresh() -> None: ...

def _timeline_want(on: bool) -> None: ...

def _trace_can_watch_signal(number: typing.SupportsInt | typing.SupportsIndex) -> bool: ...

def _trace_close(number: typing.SupportsInt | typing.SupportsIndex) -> dict[str, typing.Any]: ...

def _trace_counter(number: typing.SupportsInt | typing.SupportsIndex, name: typing.Any, at:
    typing.SupportsInt | typing.SupportsIndex, series: typing.Any) -> None: ...

def _trace_dump(number: typing.SupportsInt | typing.SupportsIndex, reason: typing.Any,
    descriptor: typing.SupportsInt | typing.SupportsIndex, path: bytes) -> dict[str,
    typing.Any]:
    """Write what a recorder holds; wait for it."""

def _trace_end(number: typing.SupportsInt | typing.SupportsIndex) -> None:
    """Let what ends from now on not belong to a trace that is still open."""

def _trace_flow(number: typing.SupportsInt | typing.SupportsIndex, phase: str, id:
    typing.SupportsInt | typing.SupportsIndex, name: typing.Any, category: typing.Any, at:
    typing.SupportsInt | typing.SupportsIndex, tid: typing.SupportsInt |
    typing.SupportsIndex) -> None: ...

def _trace_flush(number: typing.SupportsInt | typing.SupportsIndex) -> dict[str, typing.Any]: ...

def _trace_instant(number: typing.SupportsInt | typing.SupportsIndex, name: typing.Any,
    category: typing.Any, at: typing.SupportsInt | typing.SupportsIndex, tid: typing.SupportsInt
    | typing.SupportsIndex, args: typing.Any) -> None: ...

def _trace_name_stream(device: typing.SupportsInt | typing.SupportsIndex, stream:
    typing.SupportsInt | typing.SupportsIndex, name: typing.Any) -> None: ...

def _trace_name_thread(tid: typing.SupportsInt | typing.SupportsIndex, name:
    typing.Any) -> None: ...

def _trace_open(descriptor: typing.SupportsInt | typing.SupportsIndex, where: typing.Any,
    collects: bool, from_start: bool, process: typing.Any, rank: typing.SupportsInt |
    typing.SupportsIndex, world_size: typing.SupportsInt | typing.SupportsIndex, args:
    typing.Any, buffer_mib: typing.SupportsInt | typing.SupportsIndex) -> int:
    """Start a trace in an empty file, which is lent until it is closed; return its number."""

def _trace_open_recorder(*, from_start: bool, process: typing.Any, rank: typing.SupportsInt |
    typing.SupportsIndex, world_size: typing.SupportsInt | typing.SupportsIndex, args:
    typing.Any, buffer_mib: typing.SupportsInt | typing.SupportsIndex, keep: typing.SupportsInt
    | typing.SupportsIndex, keep_bytes: typing.SupportsInt | typing.SupportsIndex, before:
    bytes, after: bytes, max_dumps: typing.SupportsInt | typing.SupportsIndex, signals:
    tuple[int, ...]) -> int:
    """Start a trace that is kept in memory; return its number."""

def _trace_records() -> bool: ...

def _trace_set_limits(number: typing.SupportsInt | typing.SupportsIndex, limits: dict[str,
    float]) -> None: ...

def _trace_slice(number: typing.SupportsInt | typing.SupportsIndex, name: typing.Any, category:
    typing.Any, begin: typing.SupportsInt | typing.SupportsIndex, end: typing.SupportsInt |
    typing.SupportsIndex, tid: typing.SupportsInt | typing.SupportsIndex, args:
    typing.Any) -> None: ...

def _trace_state(number: typing.SupportsInt | typing.SupportsIndex) -> dict[str, typing.Any]: ...

def _trace_wanted(on: bool) -> None: ...

def _wait_for_pending(seconds: typing.SupportsFloat | typing.SupportsIndex) -> None: ...

def _warn(text: typing.Any) -> None:
    """Warn, without an exception also where warnings are errors."""

@typing.overload
def annotate(name: str | None = None, *, color: str | int | None = None, category: str | None =
    None, payload: int | typing.SupportsFloat | None = None, domain: str | None = None, args:
    dict[str, typing.Any] | None = None) -> Annotation:
    """Name what runs in a ``with`` block, or in a function, for tools and traces.

    The range appears in NVTX where that is on (`gpuprof.nvtx.enable`, ``GPUPROF_NVTX=1``), in every
    trace that records, and in torch's profiler while that records; otherwise it costs less than
    ``contextlib.nullcontext()``. It measures nothing: `timer` does. ``annotate("load")`` is one object
    per name. An ``async with``, and a decorated async function, generator or async generator, is a
    range that may cross others; a generator's goes from its first item to its end.

    Parameters
    ----------
    name : str, optional
        What tools show; of more than 4 KiB the beginning. A name that is empty or has a NUL in it
        warns once and shows nothing. Without a name it is a decorator, and the name is the function's
        ``__qualname__``.
    color : str or int, optional
        A name (``'green'``), ``'#rrggbb'``, ``'#aarrggbb'``, or a number 0xAARRGGBB; for NVTX.
    category : str, optional
        A group of ranges; in traces ``'annotation'`` without one.
    payload : int, float or array, optional
        A number beside the name, or several: a list, tuple, range, bytes or an array in host memory
        (NumPy, `array.array`), copied now. Traces show up to 64 numbers.
    domain : str, optional
        The NVTX domain; None is ``'gpuprof'``, ``''`` the one of ranges that name none.
    args : dict, optional
        More values for traces, by names; what is not plain is written as its ``repr``.

    Returns
    -------
    Annotation

    Raises
    ------
    TypeError, ValueError
        An argument is not what is listed above.

    Examples
    --------
    >>> import gpuprof
    >>> with gpuprof.annotate("load", color="green", payload=3):
    ...     data = sorted(range(1000))
    """
@typing.overload
def annotate(name: _Function, *, color: str | int | None = None, category: str | None = None,
    payload: int | typing.SupportsFloat | None = None, domain: str | None = None, args:
    dict[str, typing.Any] | None = None) -> _Function: ...

def build_info() -> dict[str, str]:
    """How this module was built."""

def calibrate(device: typing.SupportsInt | typing.SupportsIndex) -> dict[str, typing.Any]:
    """What an empty interval reads on a device, as a dict. Waits."""

def cuda_device() -> int:
    """The index of the current context's device, -1 without one."""

def cuda_in_use() -> bool:
    """Whether something in this process has initialised CUDA, also if an error has poisoned it since. Initialises nothing."""

def devices() -> list[dict[str, typing.Any]]:
    """The devices that the driver shows, as dicts. Initialises CUDA."""

def driver_info() -> dict[str, typing.Any]:
    """What is known of the CUDA driver. Opens and initialises it if it is there."""

def flush() -> None:
    """Wait for what is pending now and count it."""

def is_enabled() -> bool: ...

def mark(name: str, *, color: str | int | None = None, category: str | None = None, payload: int
    | typing.SupportsFloat | None = None, domain: str | None = None, args: dict[str, typing.Any]
    | None = None) -> None:
    """Note a moment, for tools and traces.

    Parameters
    ----------
    name : str
        What tools show; of more than 4 KiB the beginning. One that is empty or has a NUL in it warns
        once and shows nothing.
    color : str or int, optional
        As for `annotate`, like the rest.
    category : str, optional
        A group of ranges.
    payload : int, float or array, optional
        A number beside the name, or several: a list, tuple, range, bytes or an array in host memory
        (NumPy, `array.array`), copied now. Traces show up to 64 numbers.
    domain : str, optional
        The NVTX domain; None is ``'gpuprof'``, ``''`` the one of ranges that name none.
    args : dict, optional
        More values for traces, by names.

    Returns
    -------
    None

    Raises
    ------
    TypeError, ValueError
        An argument is not what `annotate` takes.

    Examples
    --------
    >>> import gpuprof
    >>> gpuprof.mark("out of memory", color="red", args={"wanted": 1 << 30})
    """

def nvtx_is_enabled() -> bool: ...

def nvtx_last_push_result() -> int: ...

def nvtx_name_stream(stream: typing.SupportsInt | typing.SupportsIndex, name: str) -> None:
    """Name a CUDA stream in tools, where NVTX is on."""

def nvtx_name_thread(tid: typing.SupportsInt | typing.SupportsIndex, name: str) -> None:
    """Name a thread in tools, where NVTX is on."""

def nvtx_set_enabled(on: bool) -> None: ...

def nvtx_tool_listens() -> bool:
    """Whether a tool listens to the domain 'gpuprof', asked of NVTX."""

def nvtx_valid_label(label: bytes) -> bool: ...

def nvtx_warn_no_tool(message: str) -> None: ...

def push(name: str, cat: str, dur_ms: float, tid: int | None = None) -> None:
    """Write a slice that ends now to every trace that is open.

    Without one it does nothing. A `TraceWriter` that collects nothing takes its own `push` alone.

    Parameters
    ----------
    name : str
        What to show.
    cat : str
        Its category; None and an empty text are none.
    dur_ms : float
        How long it took, in milliseconds.
    tid : int, optional
        The track: a thread's native id, or any other number below 2**28. None and 0 are the calling
        thread.

    Returns
    -------
    None

    Raises
    ------
    TypeError, ValueError
        An argument is not what is listed above.

    Examples
    --------
    >>> import gpuprof
    >>> gpuprof.push("decode", "engine", 1.5)
    """

def range_end(id: int, /) -> None:
    """End a range of `range_start`, on any thread.

    Parameters
    ----------
    id : int
        What `range_start` returned. One that is not open (ended twice) warns once per process.

    Returns
    -------
    None

    Raises
    ------
    TypeError
        `id` is not an int.

    Examples
    --------
    >>> import gpuprof
    >>> gpuprof.range_end(gpuprof.range_start("prefetch"))
    """

def range_start(name: str, *, color: str | int | None = None, category: str | None = None,
    payload: int | typing.SupportsFloat | None = None, domain: str | None = None, args:
    dict[str, typing.Any] | None = None) -> int:
    """Start a range that may end on another thread and may cross others.

    Parameters
    ----------
    name : str
        What tools show; of more than 4 KiB the beginning. One that is empty or has a NUL in it warns
        once and shows nothing.
    color : str or int, optional
        As for `annotate`, like the rest.
    category : str, optional
        A group of ranges.
    payload : int, float or array, optional
        A number beside the name, or several: a list, tuple, range, bytes or an array in host memory
        (NumPy, `array.array`), copied now. Traces show up to 64 numbers.
    domain : str, optional
        The NVTX domain; None is ``'gpuprof'``, ``''`` the one of ranges that name none.
    args : dict, optional
        More values for traces, by names.

    Returns
    -------
    int
        What `range_end` takes; 0 if nobody listens.

    Raises
    ------
    TypeError, ValueError
        An argument is not what `annotate` takes.

    Examples
    --------
    >>> import gpuprof
    >>> prefetch = gpuprof.range_start("prefetch")
    >>> gpuprof.range_end(prefetch)
    """

def require_cuda() -> None:
    """Initialise CUDA. Raises CudaUnavailableError where there is none."""

def reset_stats() -> None:
    """Forget all samples, also those entered before now and not finished."""

def set_enabled(on: bool) -> None:
    """Switch scopes that follow the global switch on or off."""

def stats_snapshot(wait: bool, bins: bool = False) -> dict[str, typing.Any]:
    """All rows as plain data. wait: first wait for what is pending now. bins: each summary also has its bins."""

def stream_handle(stream: typing.Any=None) -> int:
    """The CUDA handle, as an int, of what a `stream=` argument means."""

@typing.overload
def timer(name: str | None = None, *, stream: object = None, backend: str | SyncBackend =
    'auto', enabled: bool | None = None, verify_stream: bool = False, in_capture:
    typing.Literal['auto', 'record', 'skip'] = 'auto', memory: bool = False, flops: float | None
    = None, nbytes: float | None = None) -> Scope:
    """Time what runs in a ``with`` block, or in a function.

    The result is a reusable scope: entering it records an event and gives this entry's `Sample`,
    leaving it records another. The GPU is never waited for; reading ``sample.ms`` is what waits.
    ``timer("fwd")`` is one object per name, and feeds one row of `stats`.

    Parameters
    ----------
    name : str, optional
        The row of the statistics. Nested scopes join their names: ``step/fwd``. Without a name the
        scope measures and stays out of the statistics; as a decorator its name is the function's
        ``__qualname__``.
    stream : int or object, optional
        A CUDA stream handle, or an object with ``__cuda_stream__``, ``.cuda_stream`` or ``.ptr``.
        None is the framework's current stream at each entry.
    backend : {'auto', 'cuda', 'cpu', 'metal'} or SyncBackend
        The clock. ``'auto'`` is CUDA where this process uses it already, else the CPU clock.
    enabled : bool, optional
        None follows `enable` and `disable`; True and False do not.
    verify_stream : bool
        Wait for the whole device before and after the block, and raise if the work ran on another
        stream than the timed one. For finding mistakes; it makes the GPU wait.
    in_capture : {'auto', 'record', 'skip'}
        What to do inside a stream capture that gpuprof did not open: ``'auto'`` and ``'skip'`` measure
        nothing, ``'record'`` makes the records nodes of the graph, so that ``ms`` is the last replay's.
    memory : bool
        Read torch's and CuPy's allocators at each entry and exit: ``sample.memory`` and ``row.memory``
        have the peak and the change in bytes. On the CUDA clock only.
    flops : float, optional
        Floating-point operations of each entry; the body may set ``sample.flops`` instead. The row then
        shows TFLOP/s.
    nbytes : float, optional
        Bytes that each entry reads and writes, or ``sample.nbytes``; the row then shows GB/s.

    Returns
    -------
    Scope

    Raises
    ------
    CudaUnavailableError
        ``backend='cuda'`` without a usable driver and device.
    TypeError, ValueError
        An argument is not what is listed above.

    Examples
    --------
    >>> import gpuprof
    >>> with gpuprof.timer("load", backend="cpu") as sample:
    ...     data = sorted(range(1000))
    >>> sample.ms > 0
    True
    """
@typing.overload
def timer(name: _Function, *, stream: object = None, backend: str | SyncBackend = 'auto',
    enabled: bool | None = None, verify_stream: bool = False, in_capture: typing.Literal['auto',
    'record', 'skip'] = 'auto', memory: bool = False, flops: float | None = None, nbytes: float
    | None = None) -> _Function: ...
_annotations: dict[str, Annotation]
_is_stale: object
_no_fit: object
_scopes: dict[str, Scope]
