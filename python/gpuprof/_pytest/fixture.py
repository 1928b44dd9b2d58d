"""The fixture ``gpu_benchmark``: measures a function and judges the time at once.

The verdict is reached inside the call, because a second measurement, which precedes a failure,
needs the test's context managers and arguments. The test fails only after its body has passed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._pytest import device_lock
from gpuprof._pytest.launches import LaunchChecks
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    import pytest

    from gpuprof._pytest.settings import Settings
    from gpuprof._results.decision import Decision
    from gpuprof._results.result import BenchResult

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

DEFAULT_ROUNDS = 30  # as many samples as a verdict needs
_ANY_PRECISION = 1e9  # for `pedantic`, where the number of rounds is given
_GPU_FACTS = ("gpu", "gpu_uuid", "sms", "cc", "gpu_memory", "driver", "cuda")
_FOR_JUDGING = ("threshold", "memory_threshold", "max_ms", "group")


class GpuBenchmark(LaunchChecks):
    """The fixture ``gpu_benchmark`` of one test; pytest makes it.

    Attributes
    ----------
    result : gpuprof.BenchResult or None
        What was measured; None before, and where benchmarks are switched off.
    decision : gpuprof.Decision or None
        What the comparison with the baseline says; None without one.
    """

    __module__ = "gpuprof"

    def __init__(
        self,
        *,
        key: str,
        settings: Settings,
        arguments: Mapping[str, Any],
        comparisons: int,
        warn: Callable[[Warning], None],
        say: Callable[[str], None],
        refused: str | None = None,
    ) -> None:
        self.result: BenchResult | None = None
        self.decision: Decision | None = None
        self._extra_info: dict[str, Any] = {}
        self._group: str | None = arguments["group"]
        self.failure = refused
        self.used = False
        self._first: BenchResult | None = None
        self._key = key
        self._settings = settings
        self._arguments = arguments
        self._comparisons = comparisons
        self._warn = warn
        self._say = say
        self._refused = refused

    def __reduce__(self) -> str | tuple[Any, ...]:
        message = (
            "gpu_benchmark belongs to one test and cannot be pickled or copied; its .result can"
        )
        raise TypeError(message)

    def __repr__(self) -> str:
        measured = "nothing measured yet" if self.result is None else f"{self.result.median_ms} ms"
        return f"<gpuprof.GpuBenchmark of {self._key!r}, {measured}>"

    @property
    def extra_info(self) -> dict[str, Any]:
        """What the test adds; it is stored with the result."""
        return self._extra_info

    @extra_info.setter
    def extra_info(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            message = f"extra_info is {type(value).__name__}; expected a dict"
            raise TypeError(message)
        self._extra_info = dict(value)

    @property
    def group(self) -> str | None:
        """The table that the test is in: the marker's `group`, or what the test sets."""
        return self._group

    @group.setter
    def group(self, value: Any) -> None:
        if value is not None and not isinstance(value, str):
            message = f"group is {value!r}; expected text or None"
            raise TypeError(message)
        self._group = value

    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Measure ``fn(*args, **kwargs)`` and return what its first call returned.

        Parameters
        ----------
        fn : callable
            The function; it is called many times.
        *args, **kwargs
            Its arguments.

        Returns
        -------
        object
            The value of the first call, which is not measured.

        Raises
        ------
        TypeError
            If `fn` is no function.
        InvalidStateError
            On a second use in one test.
        """
        return self._measure(fn, args, kwargs)

    def pedantic(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        *,
        rounds: int = DEFAULT_ROUNDS,
        warmup_rounds: int = 0,
    ) -> Any:
        """Measure with a given number of rounds, and a set-up step before each of them.

        Parameters
        ----------
        fn : callable
            The function.
        args, kwargs
            Its arguments.
        setup : callable, optional
            Called before each round, untimed. It may return ``(args, kwargs)`` for that round.
        rounds : int
            The number of samples; a verdict needs 30.
        warmup_rounds : int
            The number of calls before them, besides the first, whose value is returned.

        Returns
        -------
        object
            The value of the first call.

        Raises
        ------
        TypeError
            If `fn` is no function.
        ValueError
            If a number of rounds is too small.
        InvalidStateError
            On a second use in one test.
        """
        checks.whole("rounds", rounds)
        checks.whole("warmup_rounds", warmup_rounds, least=0)
        call = fn, tuple(args), dict(kwargs or {}), setup
        return self._measure(*call, warmup_rounds=warmup_rounds, rounds=rounds)

    def _measure(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        setup: Callable[[], Any] | None = None,
        *,
        warmup_rounds: int = 0,
        rounds: int | None = None,
    ) -> Any:
        from gpuprof._benchmark.work import Work

        self._begin(fn)

        def call() -> Any:
            work = Work(fn, args, kwargs, setup)  # a new one each time: no arguments are kept
            work.set_up()
            return work.call()

        def measure() -> BenchResult:
            return self._benchmark(fn, args, kwargs, setup, rounds)

        if self._settings.disabled:
            return call()
        with device_lock.measuring(self._warn_of, self._say) as place_may_have_changed:
            value = call()
            place_may_have_changed()
            for _ in range(warmup_rounds):
                call() if self._arguments["scopes"] else _core._paused(call)
            self.result = measure()
            self._judge(self.result, measure)
        return value

    def _benchmark(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        setup: Callable[[], Any] | None,
        rounds: int | None,
    ) -> BenchResult:
        """Measure once: until the result is precise enough, or for a number of rounds."""
        from gpuprof._benchmark import api

        options: dict[str, Any] = {"name": self._key, "setup": setup}
        for name, value in self._arguments.items():
            if value is not None and name not in _FOR_JUDGING:
                options[name] = value
        if self._settings.save or self._settings.compare:
            options.setdefault("launches", True)  # also where counting them takes more calls
        if rounds is None:
            return _without_idle_gpu(api.benchmark(fn, args, kwargs, **options))
        options["rel_precision"] = _ANY_PRECISION
        begun = perf_counter()
        with api.prepare(fn, args, kwargs, **options) as measurer:
            result = measurer.result([measurer.sample() for _ in range(rounds)])
        return _without_idle_gpu(replace(result, duration_s=perf_counter() - begun))

    def _begin(self, fn: object) -> None:
        if self._refused is not None:
            import pytest

            self.used = True
            pytest.fail(self._refused, pytrace=False)
        if not callable(fn):
            message = (
                f"gpu_benchmark got {type(fn).__name__}, which cannot be called: pass a function "
                "and its arguments, gpu_benchmark(f, x), not gpu_benchmark(f(x))"
            )
            raise TypeError(message)
        if inspect.iscoroutinefunction(fn):
            message = (
                "gpu_benchmark got a coroutine function, whose call does no work: pass a function "
                "that runs it, such as lambda: asyncio.run(f())"
            )
            raise TypeError(message)
        if self.used:
            message = (
                "gpu_benchmark was used twice in one test, but a test is one benchmark with one "
                "baseline: make a test of each, or parametrise; gpuprof.benchmark() measures any "
                "number of functions, without a verdict"
            )
            raise InvalidStateError(message)
        self.used = True

    def _judge(self, result: BenchResult, measure: Callable[[], BenchResult]) -> None:
        """Judge the result; measure a second time before the test fails."""
        from gpuprof._pytest.judge import Judge

        memory_threshold = self._arguments["memory_threshold"]
        if memory_threshold is None:
            memory_threshold = self._settings.memory_threshold
        judge = Judge(
            self._key,
            self._settings,
            threshold=self._arguments["threshold"],
            memory_threshold=memory_threshold,
            max_ms=self._arguments["max_ms"],
            comparisons=self._comparisons,
        )
        judgement = judge.decide(result)
        if judgement.again:
            self._first, self.result = result, measure()
            judgement = judge.decide_again(result, self.result)
        self.decision, self.failure = judgement.decision, judgement.failure

    def _warn_of(self, text: str) -> None:
        import pytest  # the class itself needs no pytest

        self._warn(pytest.PytestWarning(f"gpu_benchmark: {text}"))

    def record(self, item: pytest.Item) -> dict[str, Any]:
        """Return everything as plain data for the test's report."""
        assert self.result is not None
        call = getattr(item, "callspec", None)
        results = [self.result] if self._first is None else [self._first, self.result]
        extra = _plain(self.extra_info)
        return {
            "key": self._key,
            "name": item.name,
            "group": self._group,
            "params": _plain(call.params) if call else None,
            "param": call.id if call else None,
            "options": _plain(self._arguments),
            "failure": self.failure,
            "decision": self.decision and _plain(self.decision.to_dict()),
            "results": [replace(result, extra_info=extra).to_dict() for result in results],
        }


def _plain(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a mapping as plain data; tests may be parametrised by any object."""
    from gpuprof._common.text import plain_data

    plain: dict[str, Any] = {}
    for name, value in values.items():
        try:
            plain[str(name)] = plain_data(value)
        except Exception:  # the object's own repr failed: keep the rest
            plain[str(name)] = object.__repr__(value)
    return plain


def _without_idle_gpu(result: BenchResult) -> BenchResult:
    """Remove the GPU from the machine of a result on the CPU clock.

    Whether the description has one depends on what else ran in the process.
    """
    if result.clock != "cpu" or result.machine.get("gpu") is None:
        return result
    return replace(result, machine={**result.machine, **dict.fromkeys(_GPU_FACTS)})
