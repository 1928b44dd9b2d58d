"""What the fixture measures in other ways than `benchmark`.

`pedantic` has steps around each round. The measurement knows a set-up step only, so the teardown of
a round runs at the beginning of the next set-up, and that of the last round at the end: outside of
the measured time, and one for each set-up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gpuprof._benchmark import api
from gpuprof._benchmark import device as beside
from gpuprof._benchmark.work import Call, is_call
from gpuprof._common import checks
from gpuprof._graphs.graph import CapturedGraph
from gpuprof._results.result import BenchResult
from gpuprof.errors import InvalidStateError

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

ENOUGH_ROUNDS = 30  # as many samples as a verdict needs
_GPU_FACTS = ("gpu", "gpu_uuid", "sms", "cc", "gpu_memory", "driver", "cuda")


class Steps:
    """A set-up and a teardown step, either of which may be None.

    `step` is what to give as the set-up to what measures: None if there is no step at all.
    """

    def __init__(
        self,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
    ) -> None:
        self._given = args, dict(kwargs or {})
        self._setup = setup
        self._teardown = teardown
        self._open: Callable[[], Any] | None = None  # the teardown of the round before
        self.step = None if setup is None and teardown is None else self._set_up

    def _set_up(self) -> Any:
        self.tear_down()
        made = None if self._setup is None else self._setup()
        if made is not None and any(self._given):
            message = (
                "setup returned arguments, and pedantic was given args or kwargs, too: leave them "
                "out, or let setup return None"
            )
            raise TypeError(message)
        made = self._given if made is None else made
        if self._teardown is not None and is_call(made):  # `Work` refuses anything else
            self._open = partial(self._teardown, *made[0], **made[1])
        return made

    def tear_down(self) -> None:
        teardown, self._open = self._open, None
        if teardown is not None:
            teardown()


def checked_counts(
    rounds: Any, warmup_rounds: Any, iterations: Any, *, has_setup: bool
) -> tuple[int, int, int]:
    """Return warm-up rounds, rounds and iterations; ValueError for what cannot be."""
    try:
        checks.whole("rounds", rounds)
        checks.whole("warmup_rounds", warmup_rounds, least=0)
        checks.whole("iterations", iterations)
    except TypeError as error:  # as in pytest-benchmark
        raise ValueError(str(error)) from None
    if iterations > 1 and has_setup:
        message = (
            f"iterations is {iterations}, and setup is a step of a single call: leave setup out, "
            "or give iterations=1"
        )
        raise ValueError(message)
    return warmup_rounds, rounds, iterations


def count_launches(
    call: Call, graph: CapturedGraph | None, *, mode: str, **options: Any
) -> BenchResult:
    """Return a result with the launches of a function, or of a graph, and a single sample."""
    mode = mode if graph is None else "isolated"
    with api.prepare(*call, mode=mode, launches=graph is None, **options) as measurer:
        result = measurer.result([measurer.sample()])
    if graph is not None:
        launches = beside.completed(beside.of_graph(graph), graph.device)
        result = replace(result, launches=launches)
    if result.launches is None:
        why = [text for text in result.warnings if text.startswith(beside.NOT_COUNTED)]
        on_cpu = result.clock == "cpu"
        reason = why or ["it gives no GPU any work" if on_cpu else "its graph tells nothing"]
        message = f"check_launches: {reason[0]}"
        raise InvalidStateError(message)
    return replace(result, warnings=())  # they are about the time


def without_idle_gpu(result: BenchResult) -> BenchResult:
    """Remove the GPU from a result on the CPU clock: it depends on what else ran in the process."""
    if result.mode != "cpu" or result.machine.get("gpu") is None:
        return result
    return replace(result, machine={**result.machine, **dict.fromkeys(_GPU_FACTS)})
