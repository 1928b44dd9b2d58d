"""The graphs of a callable, and what it does with a call that none of them fits.

The first calls, another shape, a parameter that moved, a capture that failed: whether such a call
captures another graph, runs the function, or is refused. Calls that a graph fits never come here.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._callable.buckets import Padding, learned
from gpuprof._callable.capture import Recording
from gpuprof._callable.entry import CapturedCall, Kind, draws
from gpuprof._callable.guards import MadeStateError
from gpuprof._callable.mismatch import describe_call
from gpuprof._callable.pytree import Flat, flatten_arguments, rebuild
from gpuprof._callable.state import modes_of, transform_of_torch
from gpuprof._callable.stats import GraphedCallableStats
from gpuprof._callable.verify import as_in_capture, check_padding, compared, mismatch, twins_of
from gpuprof._common.checks import warn_outside
from gpuprof._frameworks.streams import CallStream
from gpuprof._frameworks.torch import compiled
from gpuprof._frameworks.torch_modules import find_modules
from gpuprof.errors import CudaUnavailableError, InvalidStateError

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpuprof._callable.settings import Samples, Settings

_MANY_RECAPTURES = 4
_MANY_EVICTIONS = 4  # times max_graphs
_TRIES = 3  # of a call that finds its graph stale
_NOT_IN_MODULES = "a tensor on the CPU, a .grad or a requires_grad"  # of which no name is known
_NO_LAYOUT = 5  # parts of the key of a kind that has graphs for any
_MAX_KINDS = 1024  # of calls without a graph that are remembered

# One capture at a time: they share allocators, generators and current streams. Taken again by a
# callable that is called in the warm-up of another one, and never with the lock of a callable.
capturing = threading.RLock()


class CapturingCalls(_core.CallBase):
    """The calls of one function, and the graphs that were captured for them."""

    @classmethod
    def _make(cls, fn: Callable[..., Any], settings: Settings, samples: Samples | None) -> Self:
        self: Self = cls.__new__(cls)
        self._begin(fn, settings, samples)
        return self

    def _begin(self, fn: Callable[..., Any], settings: Settings, samples: Samples | None) -> None:
        functools.update_wrapper(self, fn, updated=())
        self._settings = settings
        self._has_samples = samples is not None
        self._kinds: dict[Any, Kind] = {}  # by their keys; not looked into with the lock
        # Of all other things here. Nobody runs code of the user's, which hashing, comparing and
        # warning may be, or captures, with it.
        self._lock = threading.RLock()
        # Of `GraphedCallableStats`, without what C++ and the graphs that are there count.
        self._counts: dict[str, Any] = {
            each.name: each.default for each in fields(GraphedCallableStats) if each.default == 0
        }
        self._launches_gone = 0
        self._warned: set[str] = set()
        self._always_eager = _core._is_set("GPUPROF_DISABLE")
        if not self._always_eager:
            try:
                _core.require_cuda()
            except CudaUnavailableError as error:
                self._fall_back(error, "no CUDA", f"{error}; every call runs the function itself")
                self._always_eager = True
        self._body = compiled(fn) if settings.compile and not self._always_eager else fn
        self._fn = fn
        if samples is not None and not self._always_eager:
            self._capture_samples(*samples)

    def _capture_samples(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kwargs = self._settings.buckets.with_mask(args, kwargs)
        flat = self._flat(args, kwargs)
        padding, given = self._settings.buckets.plan(flat), flat
        if padding is not None:
            arrays = padding.arrays(flat, self._stream_of(flat))
            given = self._flat(*rebuild(flat.pattern, arrays))
        captured = self._find(flat, given)
        self._counts["misses"] = 0  # the samples are no call
        if captured is not None and padding is None and self._is_to_be_verified(captured):
            twins = twins_of(flat, self._stream_of(flat))
            self._compare(captured, self._flat(*rebuild(flat.pattern, twins)), undo=True)
            captured.checks = captured.graph.num_replays

    @property
    def name(self) -> str:
        """What it is called in errors, statistics and traces."""
        return self._settings.name

    def reset(self) -> None:
        """Drop all graphs; the next call captures anew. What runs still is not disturbed."""
        with self._lock:
            gone = self._kinds, self._entries  # until the lock is free: they may be the user's
            for captured in gone[1]:
                self._drop(captured)
            self._kinds = {}

    # Called from C++.

    def _miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call that no entry fits."""
        if self._always_eager:
            return self._eagerly(args, kwargs)
        transform = transform_of_torch()
        if transform is not None:
            message = (
                f"{self.name}: this call is inside of {transform}, whose tensors stand for others "
                "that a graph does not see; transform the function itself (.eager), or call it "
                "outside"
            )
            text = f"calls inside of {transform} run eagerly"
            self._fall_back(InvalidStateError(message), "transform", text)
            return self._eagerly(args, kwargs)
        _core.require_cuda()  # a forked child learns it here, and not from a lock that it inherited
        kwargs = self._settings.buckets.with_mask(args, kwargs)
        flat = self._flat(args, kwargs)
        on = self._stream_of(flat)
        if on.is_captured():
            return self._eagerly(args, kwargs)
        padding, given = self._settings.buckets.plan(flat), flat
        if padding is not None:
            arrays = padding.arrays(flat, on)
            result = self._by_known_graph(flat, padding, arrays)
            if result is not _core._no_fit:
                return result
            given = self._flat(*rebuild(flat.pattern, arrays))
        for _ in range(_TRIES):
            captured = self._find(flat, given)
            if captured is None or captured.overlaps(flat):
                break
            if padding is not None and captured.slices.covers(padding):
                result = self._run_padded(captured, flat, padding, arrays)
            elif padding is not None:
                result = self._learn(captured, given, padding, (args, kwargs))
            elif self._is_to_be_verified(captured):
                result = self._compare(captured, flat)
            else:
                result = self._run(captured, args, kwargs)
            if result is not _core._no_fit:
                return result
            # Without a fit something has changed that is no part of the key.
            self._drop_stale(captured)
        given, arrays = flat, []  # no memory for padding while the function runs
        return self._eagerly(args, kwargs)

    def _stale(self, args: tuple[Any, ...], kwargs: dict[str, Any], captured: CapturedCall) -> Any:
        """Answer a call that an entry fits, where what the function reads besides has changed."""
        if captured in self._entries:
            self._drop_stale(captured)
        return self._miss(args, kwargs)

    def _verified(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], captured: CapturedCall
    ) -> Any:
        """Answer a call that an entry fits, and compare it with the function's own result."""
        result = _core._no_fit
        if captured in self._entries:
            result = self._compare(captured, self._flat(args, kwargs))
        return self._miss(args, kwargs) if result is _core._no_fit else result

    # Comparing with the function.

    def _is_to_be_verified(self, captured: CapturedCall) -> bool:
        leaves = captured.flat.leaves
        runs_once = self._settings.warmup == 0 and not leaves
        cannot = (
            runs_once or captured.hides_writes or any(leaf.framework.in_place for leaf in leaves)
        )
        return self._settings.verify is not None and captured.runs == 0 and not cannot

    def _compare(self, captured: CapturedCall, flat: Flat, *, undo: bool = False) -> Any:
        """Run a call both ways; the function's own writes to arguments and state stay.

        With `undo`, nothing stays. GraphMismatchError if they differ; later calls run eagerly then.
        """
        with capturing:
            result, differences, is_numerics = compared(
                self._body,
                captured,
                flat,
                functools.partial(self._run, captured),
                self._stream_of(flat),
                undo=undo,
            )
        if differences:
            self._always_eager = True
            self.reset()
            raise mismatch(self.name, differences, draws=draws(captured.graph))
        with self._lock:
            self._counts["numerics"] += is_numerics
        return result

    def _flat(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flat:
        if len(kwargs) > 1 and not self._settings.keywords_in_order:
            kwargs = dict(sorted(kwargs.items()))
        return flatten_arguments(args, kwargs)

    def _stream_of(self, flat: Flat) -> CallStream:
        return CallStream(flat.libraries, flat.device, self._settings.stream)

    # Captures.

    def _kind_of(self, flat: Flat, modules: Sequence[Any]) -> Kind:
        """Return the kind of a call, which is remembered."""
        own = tuple(guard() for guard in self._settings.guards)
        key = (flat.key, *modes_of(flat.leaves, modules), own)
        if len(self._kinds) >= _MAX_KINDS + self._settings.max_graphs:
            kept = [each.kind.key for each in self._entries]
            kept += [key[:_NO_LAYOUT] for key in kept]
            gone = next((each for each in [*self._kinds] if each not in kept), None)
            self._kinds.pop(gone, None)
        return self._of_layout(self._kinds.setdefault(key, Kind(key)), flat)

    def _of_layout(self, kind: Kind, flat: Flat) -> Kind:
        if not kind.strides_matter:
            return kind
        key = (*kind.key, flat.layout)
        return self._kinds.setdefault(key, Kind(key))

    def _find(self, flat: Flat, given: Flat) -> CapturedCall | None:
        """Return the graph for a call, captured now if it is to be; None if it runs eagerly.

        `given` is what the graph gets: the arguments, padded if they are to be.
        """
        modules = find_modules(self._fn, given.constants)
        kind = self._kind_of(given, modules)
        with self._lock:
            captured = self._of_kind(kind)
            self._counts["misses" if captured is None else "hits"] += 1
            if captured is not None:
                return captured
            others = self._entries
            warmup = self._warmup_before_capture(kind)
        if others and self._settings.on_new_shape == "raise" and not kind.is_eager:
            captured_for = [(each.kind.key, each.flat) for each in others]
            told = describe_call(flat, kind.key, captured_for)
            reason = f"{self.name}: no graph was captured for such a call"
            message = "\n  ".join([f"{reason} (on_new_shape='raise')", *told])
            raise InvalidStateError(message)
        if warmup is None:
            return None
        with capturing:
            # Another thread may have captured it meanwhile.
            kind = self._of_layout(kind, given)
            return self._of_kind(kind) or self._try_capture(given, modules, kind, warmup)

    def _warmup_before_capture(self, kind: Kind) -> int | None:
        """Return how often the function is to run before such a call is captured; None: eagerly."""
        settings = self._settings
        if kind.is_eager or (self._entries and settings.on_new_shape != "capture"):
            return None
        if self._has_samples:
            return settings.warmup
        if kind.runs < settings.warmup:  # real calls warm it up
            kind.runs += 1
            self._counts["eager_calls"] -= 1  # which are not counted
            return None
        return 0

    def _try_capture(
        self, flat: Flat, modules: Sequence[Any], kind: Kind, warmup: int
    ) -> CapturedCall | None:
        recording = Recording(self._body, flat, kind.key[1], self._settings, modules)
        try:
            return self._note(recording.record(warmup), kind)
        except Exception as error:
            if recording.is_running:  # an error that the function has without a graph, too
                raise
            may_run = not self._has_samples and kind.runs <= self._settings.warmup
            if may_run and isinstance(error, MadeStateError):
                kind.runs = self._settings.warmup + 1
                return None  # this call makes the state, and the next one is captured
            self._counts["failures"] += 1
            told = "\n".join([str(error), *getattr(error, "__notes__", ())])
            text = f"the capture failed, and such calls run eagerly: {told}"
            kind.is_eager = self._settings.on_capture_error == "eager"
            self._fall_back(error, "capture", text)
            return None

    def _note(self, captured: CapturedCall, kind: Kind) -> CapturedCall:
        """Keep a graph for later calls of its kind."""
        limit = self._settings.max_graphs
        if captured.strides_matter and len(kind.key) == _NO_LAYOUT:
            kind.strides_matter = True
            kind = self._of_layout(kind, captured.flat)
        captured.kind = kind
        gone = []  # until the lock is free
        with self._lock:
            self._counts["captures"] += 1
            self._counts["capture_s"] += captured.seconds
            self._add(captured)
            while len(self._entries) > limit:
                gone.append(self._entries[-1])
                self._drop(gone[-1])
                self._counts["evictions"] += 1
        if self._counts["evictions"] >= _MANY_EVICTIONS * limit:
            self._warn(
                "evictions",
                f"{self._counts['evictions']} graphs were captured and dropped again: there are "
                f"more kinds of calls than max_graphs={limit}. Keep more, or pad them to a few "
                "sizes with buckets=",
            )
        return captured

    def _of_kind(self, kind: Kind) -> CapturedCall | None:
        return next((each for each in self._entries if each.kind is kind), None)

    # Graphs that go.

    def _drop(self, captured: CapturedCall) -> None:
        """Forget a graph, with the lock: the caller keeps it until that is free."""
        # Not closed: another thread may be in a call of it.
        self._remove(captured)
        self._counts["replays"] += captured.replays
        if captured.pool is not self._settings.pool:
            self._launches_gone += captured.pool._launch_order().launches

    def _drop_stale(self, found: CapturedCall) -> None:
        """Drop a graph that is stale, with all others that are, or refuse the call.

        With ``on_new_shape="raise"`` it raises InvalidStateError, again in the next calls, until
        `reset`.
        """
        policy, known = self._settings.on_new_shape, [*self._entries, found]
        moved = {id(each): each.guards.moved() for each in known}
        if policy == "raise":
            for each in known:
                if moved[id(each)]:
                    each.guards.core.flag()  # so that the next calls raise, too
            message = (
                f"{self.name}: what the function reads is not what it was captured with: "
                f"{'; '.join(moved[id(found)]) or _NOT_IN_MODULES}. Call reset(), or make it with "
                "on_new_shape='capture'"
            )
            raise InvalidStateError(message)
        with self._lock:
            stale = [each for each in self._entries if each is found or moved.get(id(each))]
            for each in stale:
                self._drop(each)
                each.kind.is_eager |= policy == "eager"
                each.kind.runs = self._settings.warmup
            if policy != "eager":
                self._counts["recaptures"] += len(stale)
        for each in stale:
            what = "; ".join(moved[id(each)][:3]) or _NOT_IN_MODULES
            if policy == "eager":
                self._warn("stale", f"such calls run eagerly now, because of {what}")
            elif self._counts["recaptures"] >= _MANY_RECAPTURES:
                self._warn(
                    "recaptures",
                    f"captured {_MANY_RECAPTURES} times again, because what the function reads "
                    f"changes from call to call: {what}. Pass it as an argument, or keep it in a "
                    "tensor that is changed in place",
                )

    # Padding.

    def _by_known_graph(self, flat: Flat, padding: Padding, arrays: Sequence[Any]) -> Any:
        """Answer a padded call by a graph that has served such ones; `_no_fit` if none fits."""
        # The call's key, which takes longer than the replay, is not made: C++ compares the same.
        for captured in self._entries:
            if captured.slices.covers(padding) and not captured.overlaps(flat):
                result = self._run_padded(captured, flat, padding, arrays)
                if result is not _core._no_fit:
                    with self._lock:
                        self._counts["hits"] += 1
                    return result
        return _core._no_fit

    def _run_padded(
        self, captured: CapturedCall, flat: Flat, padding: Padding, arrays: Sequence[Any]
    ) -> Any:
        result = self._run(captured, *rebuild(flat.pattern, arrays))
        if result is _core._no_fit:
            return result
        padding.give_back(flat, arrays, captured.writes, self._stream_of(flat))
        with self._lock:
            self._counts["padded_calls"] += 1
        return captured.slices.cut(result, padding, captured.flat.constants)

    def _learn(self, captured: CapturedCall, given: Flat, padding: Padding, real: Any) -> Any:
        """Answer a padded call by the function itself, which shows how results are cut."""
        with as_in_capture(captured):
            result = self._eagerly(*real)
        more = learned(padding, captured.returned, result, given.constants)
        captured.slices = captured.slices.with_(more)
        # A replay writes a second time, and draws other random numbers.
        repeats = not (captured.writes or captured.externals_written or captured.hides_writes)
        if self._settings.verify is not None and repeats and not draws(captured.graph):
            found = self._run(captured, *rebuild(given.pattern, given.arrays))
            if found is not _core._no_fit:
                captured.checks += 1
                found = captured.slices.cut(found, padding, captured.flat.constants)
                check_padding(captured, result, found, given.constants, self._stream_of(given))
        return result

    # Small things.

    def _eagerly(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        with self._lock:
            self._counts["eager_calls"] += 1
        return self._body(*args, **kwargs)

    def _fall_back(self, error: Exception, about: str, text: str) -> None:
        """Raise the error, or warn where calls are to run eagerly then."""
        if self._settings.on_capture_error == "raise":
            try:
                raise error
            finally:
                del error  # it has this frame
        self._warn(about, text)

    def _warn(self, about: str, text: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            warn_outside(f"{self.name}: {text}")
