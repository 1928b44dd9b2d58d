"""``gpu_benchmark.check_launches``: a test of what is launched, whatever time it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuprof._pytest import device_lock, event_loop
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from gpuprof._common.launches import Launches
    from gpuprof._graphs.graph import CapturedGraph
    from gpuprof._pytest.settings import Settings
    from gpuprof._results.decision import Decision
    from gpuprof._results.result import BenchResult

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

_NOT_COUNTED = "what a call launches was not counted"


class LaunchChecks:
    """The part of `GpuBenchmark` that counts launches, and judges nothing else."""

    result: BenchResult | None
    decision: Decision | None
    failure: str | None
    _key: str
    _settings: Settings
    _arguments: Mapping[str, Any]
    _comparisons: int
    _warn_of: Callable[[str], None]
    _say: Callable[[str], None]
    _begin: Callable[[object], None]

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
            Nothing was counted: the text says why. Or a second use in one test, or a coroutine
            function where an event loop runs.
        """
        graph = _graph(what, args or kwargs)
        fn: Any = what if graph is None else graph.launch
        self._begin(fn)
        with event_loop.as_function(fn) as function:
            if self._settings.disabled:
                if graph is None:
                    event_loop.refuse_coroutine(function(*args, **kwargs))
                return None
            with device_lock.measuring(self._warn_of, self._say):
                if graph is None:
                    event_loop.refuse_coroutine(function(*args, **kwargs))
                self.result = self._counted(function, args, kwargs, graph)
        self._judge_launches(self.result)
        return self.result.launches

    def _counted(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        graph: CapturedGraph | None,
    ) -> BenchResult:
        """Return a result with the launches, and a single sample."""
        from gpuprof._benchmark import api
        from gpuprof._benchmark import launches as counting

        options: dict[str, Any] = {"mode": self._arguments["mode"], "launches": True}
        if graph is not None:
            options = {"mode": "isolated", "launches": False}
        with api.prepare(fn, args, kwargs, name=self._key, **options) as measurer:
            result = measurer.result([measurer.sample()])
        if graph is not None:
            counted = counting.completed(counting.of_graph(graph), graph.device)
            result = replace(result, launches=counted)
        if result.launches is None:
            why = [text for text in result.warnings if text.startswith(_NOT_COUNTED)]
            on_cpu = result.clock == "cpu"
            reason = why or ["it gives no GPU any work" if on_cpu else "its graph tells nothing"]
            message = f"check_launches: {reason[0]}"
            raise InvalidStateError(message)
        return replace(result, warnings=())  # they are about the time

    def _judge_launches(self, result: BenchResult) -> None:
        from gpuprof._pytest.judge import Judge

        judge = Judge(
            self._key,
            self._settings,
            threshold=None,
            memory_threshold=None,
            max_ms=None,
            comparisons=self._comparisons,
        )
        judgement = judge.decide_launches(result)
        self.decision, self.failure = judgement.decision, judgement.failure


def _graph(what: object, arguments: object) -> CapturedGraph | None:
    """Return `what` if it is a graph; arguments for one are refused."""
    from gpuprof._graphs.graph import CapturedGraph

    if not isinstance(what, CapturedGraph):
        return None
    if arguments:
        message = "check_launches: a graph takes no arguments; pass the graph alone"
        raise TypeError(message)
    return what
