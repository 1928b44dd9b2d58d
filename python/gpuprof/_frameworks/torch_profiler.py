"""torch's profiler, as the source of GPU records: started, stopped and read.

torch's CUPTI belongs to its profiler, so where torch is loaded nobody else may collect. One
collection at a time; torch allows no two profilers. Nothing here imports torch.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from gpuprof._frameworks import loaded, torch_hooks

# What is asked of the profiler where the installed torch knows it: threads that it did not start,
# and the ids of graph nodes.
_WISHES = {"profile_all_threads": True, "expose_kineto_event_metadata": True}
_WAIT = "cudaDeviceSynchronize"
_STOPPED_EARLY = (
    "torch's profiler stopped collecting before the block's end, as it does when its buffers are "
    "full (128 MiB): profile fewer steps"
)


class Event(NamedTuple):
    """One record of torch's; times are nanoseconds of the wall clock.

    `resource` is the stream of GPU work, and the thread's system id of a call on the host. An
    annotation, a range of torch's, has one correlation on the host and around its work on the GPU.
    `read_metadata` writes JSON members, which takes as long as all the rest.
    """

    is_gpu: bool
    is_annotation: bool
    name: str
    begin_ns: int
    duration_ns: int
    correlation: int
    device: int
    resource: int
    read_metadata: Callable[[], str]


def has_gpu_profiler() -> bool:
    """Return whether torch is loaded with a profiler that collects from CUDA devices."""
    profiler = loaded.torch_part("profiler")
    if loaded.whole_torch() is None or profiler is None:
        return False
    return "CUDA" in {each.name for each in profiler.supported_activities()}


def running() -> str | None:
    """Name the torch profiler that runs, or that is in the warm-up of its schedule, or None."""
    profiler, autograd = loaded.torch_part("profiler"), loaded.torch_part("autograd")
    if profiler is None or autograd is None:
        return None
    for each in gc.get_objects():
        if issubclass(type(each), profiler.profile):
            inner = getattr(each, "profiler", None)
            action = getattr(getattr(each, "current_action", None), "name", "NONE")
            if action != "NONE" and inner is not None and inner.kineto_results is None:
                return f"torch.profiler.{type(each).__name__}"
    enabled = getattr(autograd, "_profiler_enabled", None)
    if enabled is not None and enabled():
        return "torch.autograd.profiler"
    if getattr(loaded.torch_part("autograd.profiler"), "_is_profiler_enabled", False):
        return "torch.autograd.profiler, on another thread"
    return None


class Collection:
    """One use of torch's profiler.

    A profiler that the program starts meanwhile ends it first, so that it works as it would alone;
    `ended_by` then says so, and what came before is kept.
    """

    def __init__(self) -> None:
        torch = loaded.torch()
        activity = torch.profiler.ProfilerActivity
        self._profile: Any = torch.profiler.profile(
            activities=[activity.CPU, activity.CUDA], experimental_config=_config(torch)
        )
        self._module: Any = loaded.torch_part("autograd.profiler")
        self._put_back: Callable[[], None] = lambda: None
        self._results: Any = None
        self.stopped_ns = self._last_wait_ns = 0
        self.ended_by: str | None = None
        self.error: str | None = None

    def start(self) -> None:
        """Begin to collect; what torch raises passes."""
        self._profile.start()
        prepare = getattr(self._module, "_prepare_profiler", None)
        if prepare is None:
            return

        def prepare_profiler(*arguments: Any, **options: Any) -> Any:
            if self._results is None and self.error is None:
                self.ended_by = "a torch profiler that was started inside the block"
                self.stop()
            return prepare(*arguments, **options)

        self._put_back = torch_hooks.replace(self._module, "_prepare_profiler", prepare_profiler)

    def stop(self) -> None:
        """End the collection, once; waits for the GPU. A failure of torch's is in `error`."""
        self._put_back()
        if self._results is not None or self.error is not None:
            return
        profile = self._profile
        try:
            self.stopped_ns = time.time_ns()
            _synchronize()
            profile.stop()
            self._results = profile.profiler.kineto_results
        except Exception as error:
            self.error = f"torch's profiler could not be stopped: {error}"

    def events(self) -> Iterator[Event]:
        """Yield GPU work, calls of CUDA and annotations, in torch's order.

        Plain tuples, because to make one of a class takes longer than to read an event.
        """
        if self._results is None:
            return
        gpu = loaded.torch().autograd.DeviceType.CUDA
        is_call: dict[str, bool] = {}
        for each in self._results.events():
            is_gpu = each.device_type() == gpu
            name, is_annotation = each.name(), each.is_user_annotation()
            if not is_gpu and not is_annotation:
                call = is_call.get(name)
                if call is None:
                    call = is_call[name] = _is_call(name)
                if not call:
                    continue
            begin, duration = each.start_ns(), each.duration_ns()
            if name == _WAIT:
                self._last_wait_ns = max(self._last_wait_ns, begin + duration)
            event = (
                is_gpu,
                is_annotation,
                name,
                begin,
                duration,
                each.correlation_id(),
                each.device_index(),
                each.device_resource_id(),
                getattr(each, "metadata_json", str),
            )
            yield cast("Event", event)

    def stopped_early(self) -> str | None:
        """Say whether torch dropped what came last; to be asked after `events` has ended.

        It did if the wait for the device at the end is not among its records.
        """
        if self._results is None:
            return None
        return None if self._last_wait_ns >= self.stopped_ns else _STOPPED_EARLY


def _synchronize() -> None:
    """Wait for all devices on which the process has a context; make none on the others."""
    torch = loaded.torch()
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    current = torch.cuda.current_device()
    for device in range(torch.cuda.device_count()):
        if device == current or (has_context is not None and has_context(device)):
            torch.cuda.synchronize(device)


def _config(torch: Any) -> Any:
    """Return a profiler's configuration with those wishes that this torch knows."""
    make = torch._C._profiler._ExperimentalConfig
    known = make.__init__.__doc__ or ""
    return make(**{name: value for name, value in _WISHES.items() if name in known})


def _is_call(name: str) -> bool:
    """Return whether a name is one of CUDA's runtime or driver functions."""
    rest = name[4:] if name.startswith("cuda") else name[2:] if name.startswith("cu") else ""
    return rest[:1].isupper() and rest.isidentifier()
