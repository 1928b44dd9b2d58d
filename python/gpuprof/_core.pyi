# Made by `python src/bindings/stubs.py` from the built module: do not edit, run it again.
# fmt: off
# ruff: noqa
"""The compiled part of gpuprof. Private: use the names in gpuprof."""
from __future__ import annotations
import typing
from gpuprof._backends import SyncBackend
_Function = typing.TypeVar("_Function", bound=typing.Callable[..., typing.Any])
__all__: list[str] = ['Annotation', 'DeviceBuffer', 'Sample', 'Scope', 'Timer', 'annotate',
    'build_info', 'calibrate', 'cuda_device', 'cuda_in_use', 'devices', 'driver_info', 'flush',
    'is_enabled', 'mark', 'nvtx_is_enabled', 'nvtx_last_push_result', 'nvtx_set_enabled',
    'nvtx_tool_listens', 'nvtx_valid_label', 'nvtx_warn_no_tool', 'range_end', 'range_start',
    'require_cuda', 'reset_stats', 'set_enabled', 'stats_snapshot', 'stream_handle', 'timer']

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
    def host_ms(self) -> float:
        """Milliseconds that the host spent inside the scope."""
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

class Scope:
    """A named span of code, timed each time it is entered."""
    def __call__(self, function: _Function) -> _Function:
        """Call self as a function."""
    def __enter__(self) -> Sample:
        """Start the clock and return this entry's sample."""
    def __exit__(self, type: typing.Any, value: typing.Any, traceback: typing.Any) -> None:
        """Stop the clock; never waits for the GPU."""
    def __init__(self, name: str | None, *, stream: typing.Any, backend: typing.Any, enabled:
        bool | None, verify_stream: bool, record_in_capture: bool) -> None: ...
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
    def __repr__(self) -> str: ...
    def close(self) -> None:
        """Give the events back. Idempotent; never raises."""
    def elapsed_ms(self) -> float:
        """Milliseconds between the marks; waits for the GPU. 0.0 while a mark is missing."""
    def record_end(self, stream: typing.Any=None) -> None:
        """Set the second mark on the stream of the first."""
    def record_start(self, stream: typing.Any=None) -> None:
        """Set the first mark, on `stream` or the timer's own, and forget the second."""
    @property
    def clock(self) -> str:
        """What measures: 'cuda', 'cpu', ..."""
    @property
    def ready(self) -> bool:
        """Whether elapsed_ms() would return a measurement at once."""

class _PlacedSpan:
    def __init__(self, stream: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def elapsed_ms(self) -> float: ...
    def place(self, end: bool=False) -> typing.Any: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...

class DeviceBuffer:
    """Device memory that can be filled, as work for demonstrations."""
    def __init__(self, nbytes: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def fill(self, repeats: typing.SupportsInt | typing.SupportsIndex) -> None:
        """Write the whole buffer `repeats` times on the legacy default stream, without waiting."""

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

class _TraceSummary:
    def __init__(self, by: str) -> None: ...
    def feed(self, piece: typing.Any) -> None: ...
    def finish(self) -> None: ...
    def result(self, most: int, most_gaps: int) -> dict[str, typing.Any]: ...

class _TraceValidation:
    def __init__(self) -> None: ...
    def feed(self, piece: typing.Any) -> None: ...
    def finish(self) -> None: ...
    def result(self) -> dict[str, typing.Any]: ...

class _TraceRepair:
    def __init__(self) -> None: ...
    def feed(self, piece: typing.Any) -> bytes: ...
    def finish(self) -> bytes: ...
    def result(self) -> dict[str, typing.Any]: ...

class _MergeInput:
    def result(self) -> dict[str, typing.Any]: ...

class _MergeScan:
    def __init__(self, name: str) -> None: ...
    def feed(self, piece: typing.Any) -> None: ...
    def finish(self) -> _MergeInput: ...

class _Merge:
    def __init__(self, inputs: list[_MergeInput], align: bool) -> None: ...
    def begin(self) -> bytes: ...
    def begin_file(self) -> None: ...
    def end_file(self) -> None: ...
    def feed(self, piece: typing.Any) -> bytes: ...
    def finish(self) -> bytes: ...
    def result(self) -> dict[str, typing.Any]: ...

def _forget_warnings() -> None: ...

def _fork_generation() -> int: ...

def _host_now() -> int:
    """The host's clock, in nanoseconds."""

def _look_for_torch() -> None: ...

def _release_idle() -> int:
    """Destroy pooled events and let go of idle contexts; the number of event pairs in use."""

def _restore_sample(path: str, clock: str, status: typing.SupportsInt | typing.SupportsIndex,
    body_raised: bool, device_ms: typing.SupportsFloat | typing.SupportsIndex, host_span:
    typing.SupportsInt | typing.SupportsIndex) -> typing.Any: ...

def _samples_in_memory() -> int: ...

def _set_switches(disabled_for_good: bool, release_gil: bool) -> None: ...

def _timeline_refresh() -> None: ...

def _timeline_want(on: bool) -> None: ...

def _trace_close(number: typing.SupportsInt | typing.SupportsIndex) -> dict[str, typing.Any]: ...

def _trace_counter(number: typing.SupportsInt | typing.SupportsIndex, name: typing.Any, at:
    typing.SupportsInt | typing.SupportsIndex, series: typing.Any) -> None: ...

def _trace_flow(number: typing.SupportsInt | typing.SupportsIndex, phase: str, id:
    typing.SupportsInt | typing.SupportsIndex, name: typing.Any, category: typing.Any, at:
    typing.SupportsInt | typing.SupportsIndex, tid: typing.SupportsInt |
    typing.SupportsIndex) -> None: ...

def _trace_flush(number: typing.SupportsInt | typing.SupportsIndex) -> dict[str, typing.Any]: ...

def _trace_instant(number: typing.SupportsInt | typing.SupportsIndex, name: typing.Any,
    category: typing.Any, at: typing.SupportsInt | typing.SupportsIndex, tid: typing.SupportsInt
    | typing.SupportsIndex, args: typing.Any) -> None: ...

def _trace_is_recording() -> bool: ...

def _trace_name_device(device: typing.SupportsInt | typing.SupportsIndex, name:
    typing.Any) -> None: ...

def _trace_name_stream(device: typing.SupportsInt | typing.SupportsIndex, stream:
    typing.SupportsInt | typing.SupportsIndex, name: typing.Any) -> None: ...

def _trace_name_thread(tid: typing.SupportsInt | typing.SupportsIndex, name:
    typing.Any) -> None: ...

def _trace_open(descriptor: typing.SupportsInt | typing.SupportsIndex, where: typing.Any,
    collects: bool, from_start: bool, process: typing.Any, rank: typing.SupportsInt |
    typing.SupportsIndex, world_size: typing.SupportsInt | typing.SupportsIndex, args:
    typing.Any) -> int:
    """Start a trace in an empty file, which is taken over, and return its number."""

def _trace_records() -> bool: ...

def _trace_slice(number: typing.SupportsInt | typing.SupportsIndex, name: typing.Any, category:
    typing.Any, begin: typing.SupportsInt | typing.SupportsIndex, end: typing.SupportsInt |
    typing.SupportsIndex, tid: typing.SupportsInt | typing.SupportsIndex, args:
    typing.Any) -> None: ...

def _trace_state(number: typing.SupportsInt | typing.SupportsIndex) -> dict[str, typing.Any]: ...

def _trace_wanted(on: bool) -> None: ...

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
    payload : int or float, optional
        A number beside the name.
    domain : str, optional
        The NVTX domain; None is ``'gpuprof'``.
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
    """Whether something in this process has initialised CUDA. Initialises nothing."""

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
    payload : int or float, optional
        A number beside the name.
    domain : str, optional
        The NVTX domain; None is ``'gpuprof'``.
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

def nvtx_set_enabled(on: bool) -> None: ...

def nvtx_tool_listens() -> bool:
    """Whether a tool listens to the domain 'gpuprof', asked of NVTX."""

def nvtx_valid_label(label: bytes) -> bool: ...

def nvtx_warn_no_tool(message: str) -> None: ...

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
    payload : int or float, optional
        A number beside the name.
    domain : str, optional
        The NVTX domain; None is ``'gpuprof'``.
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

def stats_snapshot(wait: bool) -> dict[str, typing.Any]:
    """All rows as plain data. wait: first wait for what is pending now."""

def stream_handle(stream: typing.Any=None) -> int:
    """The CUDA handle, as an int, of what a `stream=` argument means."""

@typing.overload
def timer(name: str | None = None, *, stream: object = None, backend: str | SyncBackend =
    'auto', enabled: bool | None = None, verify_stream: bool = False, in_capture:
    typing.Literal['auto', 'record', 'skip'] = 'auto') -> Scope:
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
    'record', 'skip'] = 'auto') -> _Function: ...
_annotations: dict[str, Annotation]
_scopes: dict[str, Scope]
