"""The fixture ``gpu_benchmark``: measures a function and judges the time at once.

The verdict is reached inside the call, because a second measurement, which precedes a failure,
needs the test's context managers and arguments. The test fails only after its body has passed.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest

from gpuprof._benchmark import api, rounds
from gpuprof._benchmark.work import Call, Work
from gpuprof._common import checks
from gpuprof._common.interrupts import collector_off
from gpuprof._common.launches import Launches
from gpuprof._common.text import plain_data
from gpuprof._distributed import lockstep
from gpuprof._graphs.graph import CapturedGraph
from gpuprof._pytest import device_lock, fresh_process
from gpuprof._pytest.judge import Judge
from gpuprof._pytest.measurements import (
    ENOUGH_ROUNDS,
    Steps,
    checked_counts,
    count_launches,
    without_idle_gpu,
)
from gpuprof._pytest.settings import FIXTURE, RESULT_FILE, Settings
from gpuprof._results.decision import Decision
from gpuprof._results.export import figures
from gpuprof._results.result import BenchResult
from gpuprof.errors import InvalidStateError

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

# Arguments of the marker that `gpuprof.benchmark` does not take.
_LIMITS = ("threshold", "memory_threshold", "max_ms")
_OWN = (*_LIMITS, "group", "min_rounds", "disable_gc")


class GpuBenchmark:
    """The fixture ``gpu_benchmark`` of one test; pytest makes it.

    Attributes
    ----------
    result : gpuprof.BenchResult or None
        What was measured; None before, and where benchmarks are switched off.
    decision : gpuprof.results.Decision or None
        What the comparison with the baseline says; None without one.
    """

    __module__ = "gpuprof"

    def __init__(
        self,
        item: pytest.Item,
        key: str,
        settings: Settings,
        arguments: Mapping[str, Any],
        *,
        comparisons: int = 1,
        refused: str | None = None,
    ) -> None:
        self.result: BenchResult | None = None
        self.decision: Decision | None = None
        self.failure = refused
        self.used = False
        self._item = item
        self._key = key
        self._settings = settings
        given = {name: value for name, value in arguments.items() if value is not None}
        self._arguments = {**arguments, **settings.measuring, **given}
        self._comparisons = comparisons
        self._refused = refused
        self._extra_info: dict[str, Any] = {}
        self._group: str | None = arguments["group"]
        self._results: list[BenchResult] = []

    __reduce__ = checks.not_pickled(
        "gpu_benchmark belongs to one test and cannot be pickled or copied; its .result can"
    )

    def __repr__(self) -> str:
        measured = "nothing measured yet" if self.result is None else f"{self.result.median_ms} ms"
        return f"<gpuprof.GpuBenchmark of {self.fullname!r}, {measured}>"

    @property
    def name(self) -> str:
        """The test's name, with its parameters in brackets."""
        return self._item.name

    @property
    def fullname(self) -> str:
        """The test's identity in baselines: its file, its class and its name."""
        return self._key

    @property
    def param(self) -> str | None:
        """What stands for the parameters in the name; None without any."""
        call = getattr(self._item, "callspec", None)
        return None if call is None else str(call.id)

    @property
    def params(self) -> dict[str, Any] | None:
        """The test's parameters by name; None without any."""
        call = getattr(self._item, "callspec", None)
        return None if call is None else dict(call.params)

    @property
    def enabled(self) -> bool:
        """Whether it measures; without, it calls the function once."""
        return not self._settings.disabled

    @property
    def disabled(self) -> bool:
        """Whether it calls the function once and measures nothing."""
        return self._settings.disabled

    @property
    def stats(self) -> dict[str, Any] | None:
        """The figures of the result under pytest-benchmark's names, in seconds; None before."""
        return None if self.result is None else figures(self.result)

    @property
    def extra_info(self) -> dict[str, Any]:
        """What the test adds; it is stored with the result."""
        return self._extra_info

    @extra_info.setter
    def extra_info(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise checks.type_error(value, "extra_info", "a dict")
        self._extra_info = dict(value)

    @property
    def group(self) -> str | None:
        """The table that the test is in: the marker's `group`, or what the test sets."""
        return self._group

    @group.setter
    def group(self, value: Any) -> None:
        self._group = None if value is None else checks.text("group", value)

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
            If `fn` is no function, or returns a coroutine.
        InvalidStateError
            On a second use in one test.
        """
        self._begin(fn)
        return self._measure((fn, args, kwargs), Steps())

    def pedantic(  # noqa: PLR0917 (pytest-benchmark's order)
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> Any:
        """Measure with a given number of calls, and with steps before and after each round.

        The function is called ``(warmup_rounds + rounds) * iterations`` times. If `iterations` is
        above 1, one more call gives the value.

        Parameters
        ----------
        target : callable
            The function.
        args, kwargs
            Its arguments.
        setup : callable, optional
            Called before each round, untimed. It may return ``(args, kwargs)`` for that round.
        teardown : callable, optional
            Called with the arguments of a round after it, untimed.
        rounds : int
            The number of samples; a verdict needs 30.
        warmup_rounds : int
            The number of rounds before them, which are not measured.
        iterations : int
            How many calls a round has, over which its sample is taken; 1 with `setup`.

        Returns
        -------
        object
            The value of the last call.

        Raises
        ------
        TypeError
            If `target` is no function, or `setup` returns arguments besides those given.
        ValueError
            If a number is no whole number or too small, or `iterations` is above 1 with `setup`.
        InvalidStateError
            As for a call of the fixture.

        Notes
        -----
        Nothing is found out beforehand. If CUDA is in use after the warm-up rounds, and the stream
        has work in the rounds, they are timed on the GPU's clock; else on the CPU's. Neither the
        memory of a call nor its launches are measured. A failure is preceded by further
        measurements, which take as many calls each, in processes of their own where that is
        possible.
        """
        counts = checked_counts(rounds, warmup_rounds, iterations, has_setup=setup is not None)
        self._begin(target)
        steps = Steps(tuple(args), kwargs, setup, teardown)
        if steps.step is not None:
            args, kwargs = (), None
        return self._measure((target, tuple(args), dict(kwargs or {})), steps, counts)

    def check_launches(
        self, what: Callable[..., Any] | CapturedGraph, /, *args: Any, **kwargs: Any
    ) -> Launches | None:
        """Count what a call launches, and compare it with the baseline.

        The test fails if it launches more than in the baseline, or as much and other work. Its time
        is not judged, so the test is quick, and may run on a busy machine. It is the one use of
        `gpu_benchmark` in its test.

        Parameters
        ----------
        what : callable or CapturedGraph
            A function, which is called some times; or a graph, which is replayed some times.
        *args, **kwargs
            The function's arguments.

        Returns
        -------
        Launches or None
            What one call, or one replay, launches; None where benchmarks are switched off.

        Raises
        ------
        TypeError
            `what` is no function and no graph, returns a coroutine, or is a graph with arguments.
        InvalidStateError
            Nothing was counted: the text says why. Or a second use in one test.
        """
        graph = what if isinstance(what, CapturedGraph) else None
        if graph is not None and (args or kwargs):
            message = "check_launches: a graph takes no arguments; pass the graph alone"
            raise TypeError(message)
        fn: Any = what if graph is None else graph.launch
        self._begin(fn)
        with nullcontext() if self.disabled else self._device_lock():
            if graph is None:
                _refuse_coroutine(fn(*args, **kwargs))
            if self.disabled:
                return None
            call, mode = (fn, args, kwargs), self._arguments["mode"]
            options = {"name": self.fullname, "ranks": self._ranks}
            self.result = count_launches(call, graph, mode=mode, **options)
        self.decision, self.failure, _ = self._judge_by().decide_launches(self.result)
        return self.result.launches

    def _measure(self, call: Call, steps: Steps, counts: tuple[int, int, int] | None = None) -> Any:
        """Measure and judge; `counts` are the warm-up rounds, rounds and iterations of exact calls.

        Without them the value is that of a first call, which is not measured.
        """

        def call_once() -> Any:
            work = Work(call, steps.step)  # a new one: no arguments are kept
            work.set_up()
            value = work.call()
            _refuse_coroutine(value)
            return value

        def measure(warm: Callable[[], object] = lambda: None) -> tuple[Any, BenchResult]:
            with collector_off() if self._arguments["disable_gc"] else nullcontext():
                return self._benchmark(call, steps, counts, warm)

        if self.disabled:
            value = call_once()
            steps.tear_down()
            return value
        with self._device_lock() as place_may_have_changed:
            value = None
            if counts is None:
                value = call_once()
                place_may_have_changed()
            last, self.result = measure(place_may_have_changed)
            _refuse_coroutine(last)
            self._judge(self.result, lambda: measure()[1])
            steps.tear_down()
        return value if counts is None else last

    def _benchmark(
        self,
        call: Call,
        steps: Steps,
        counts: tuple[int, int, int] | None,
        warm: Callable[[], object],
    ) -> tuple[Any, BenchResult]:
        """Measure once: until the result is precise enough, or with a given number of calls."""
        given = ((name, each) for name, each in self._arguments.items() if name not in _OWN)
        options = {name: each for name, each in given if each is not None}
        options |= {"name": self.fullname, "setup": steps.step}
        least, last = self._arguments["min_rounds"], None
        if counts is not None:
            last, result = rounds.measure_rounds(call, options, counts, warm)
            return last, without_idle_gpu(result)
        if self._settings.save or self._settings.compare:
            options.setdefault("launches", True)  # also where counting them takes more calls
        if least is not None:
            # Fewer samples than a verdict needs are taken only where time is short.
            options["min_samples"] = max(least, options.get("min_samples", ENOUGH_ROUNDS))
        with api.prepare(*call, **options) as measurer:
            return None, without_idle_gpu(measurer.measure(least or 0))

    def _begin(self, fn: object) -> None:
        if self._refused is not None:
            self.used = True
            pytest.fail(self._refused, pytrace=False)
        if not callable(fn):
            message = (
                f"gpu_benchmark got {type(fn).__name__}, which cannot be called: pass a function "
                "and its arguments, gpu_benchmark(f, x), not gpu_benchmark(f(x))"
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

    @property
    def _ranks(self) -> str:
        return self._arguments["ranks"] or "together"

    def _device_lock(self) -> AbstractContextManager[Callable[[], None]]:
        # Rank 0 may be on the same device, and locks for all; so does who has started this process.
        if lockstep.follows(self._ranks) or RESULT_FILE in os.environ:
            return nullcontext(lambda: None)
        return device_lock.measuring(self._warn_of, self._say)

    def _judge(self, result: BenchResult, measure: Callable[[], BenchResult]) -> None:
        """Judge the result; measure again before the test fails."""
        judge, self._results = self._judge_by(*_LIMITS), [result]
        judgement, ranks = judge.decide(self._results), lockstep.join(self._ranks)
        while ranks.decide("another measurement", judgement.again):
            again = self._measured_elsewhere() if ranks.is_alone else None
            self._results.append(measure() if again is None else again)
            judgement = judge.decide(self._results, same_process=again is None)
        self.result = self._results[-1]
        self.decision, self.failure, _ = judgement

    def _measured_elsewhere(self) -> BenchResult | None:
        """Return what a process of its own measures; None where that cannot be."""
        if not self._settings.reruns:
            return None
        try:
            return without_idle_gpu(fresh_process.measure(self._item, self.fullname))
        except fresh_process.NotMeasured as error:
            self._warn_of(f"measured again in this process, because {error}")
            return None

    def _judge_by(self, *limits: str) -> Judge:
        if RESULT_FILE in os.environ:  # the process that has started this one judges
            limits = ()
        given = {name: self._arguments[name] for name in limits}
        return Judge(self.fullname, self._settings, self._comparisons, **given)

    def _warn_of(self, text: str) -> None:
        self._item.warn(pytest.PytestWarning(f"{FIXTURE}: {text}"))

    def _say(self, text: str) -> None:
        """Write a line to standard error at once, uncaptured: a worker has no other terminal."""
        capture = self._item.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            sys.stderr.write(f"\n{FIXTURE}: {text}\n")
            sys.stderr.flush()

    def record(self) -> dict[str, Any]:
        """Return what the JSON file has of the test, but for its statistics and its outcome."""
        assert self.result is not None
        extra = _plain(self.extra_info)
        results = [replace(each, extra_info=extra) for each in self._results or [self.result]]
        *earlier, result = [each.to_dict() for each in results]
        return {
            "group": self._group,
            "name": self.name,
            "fullname": self.fullname,
            "params": None if self.params is None else _plain(self.params),
            "param": self.param,
            "extra_info": result["extra_info"],
            "options": _plain(self._arguments),
            "stats": None,
            "gpuprof": {
                "result": result,
                "earlier": earlier,
                "decision": self.decision and _plain(self.decision.to_dict()),
                "outcome": None,
                "failure": self.failure,
            },
        }


def _refuse_coroutine(value: Any) -> None:
    """Raise a TypeError if what a function returned is a coroutine, whose work is not done."""
    if inspect.iscoroutine(value):
        value.close()
        message = (
            "the function returned a coroutine, so that a call does no work: pass a function that "
            "runs it to its end, such as lambda: loop.run_until_complete(f(x))"
        )
        raise TypeError(message)


def _plain(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a mapping as plain data; tests may be parametrised by any object."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        try:
            plain[str(name)] = plain_data(value)
        except Exception:  # the object's own repr failed: keep the rest
            plain[str(name)] = object.__repr__(value)
    return plain
