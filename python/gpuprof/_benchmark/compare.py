"""Functions measured in turns in one process, so that drift affects all of them alike.

A round takes one sample of each function. The ratio of a round is free of what changes slowly
(temperature, clocks, another process), so it shows far smaller differences than two runs do. Before
a sample that counts, one or two are taken that do not, so that the caches hold what the function
left there itself, as in `benchmark`, and not what the other one did.

The order is random, in blocks in which each function is as often early as late: in a fixed order a
function whose every fourth call is slow could meet the same side each time. All samples have as
many calls, because a loop of few calls costs more per call than one of many.

A sample that is longer than a time slice has the neighbours' slices in it. Where the thread waited
for a CPU in the warm-up, the CPU times of the rounds are compared, which waiting leaves as they
are; the samples that are compared have no say in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from gpuprof._benchmark.api import prepare
from gpuprof._benchmark.loop import Measurer
from gpuprof._benchmark.options import checked_options
from gpuprof._common import checks
from gpuprof._common.units import percent
from gpuprof._display.progress import Progress
from gpuprof._distributed.lockstep import Alone, join
from gpuprof._frameworks.torch import random_state_kept
from gpuprof._results import statistics
from gpuprof._results.comparison import CompareResult, joint_confidence
from gpuprof._results.decision import check_threshold
from gpuprof._results.eligible import WORTH_SAYING, gives_up_the_cpu
from gpuprof._results.result import BenchResult

__all__ = ["CompareResult", "compare"]

MIN_ROUNDS = 30
MAX_ROUNDS = 1000
_ANY_PRECISION = 1e6
_PRECISE_ENOUGH = 0.1  # of a large difference
# Functions whose calls per sample differ by more keep their own numbers: equal ones would take too
# long, and the cost of the loop is nothing beside such a difference.
_MOST_TIMES_AS_MANY_CALLS = 32
_SEEDS = 2**32

# Every function that can be measured in one of these can be in those after it.
_MODES = ("graph", "batched", "isolated")
# Options of `benchmark` that have no meaning here.
_REFUSED = ("name", "params", "energy", "min_samples", "min_time_s", "rel_precision")


def compare(
    functions: Mapping[str, Callable[..., object]],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    rounds: int | None = None,
    threshold: float = 0.01,
    max_time_s: float = 10.0,
    seed: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> CompareResult:
    """Measure functions in turns and compare each with the first.

    All are measured in one mode: the one asked for or chosen, or, where it does not suit all of
    them, another that does, and the warnings say so. A function without GPU work, or one that works
    on several streams, cannot be compared with one on the GPU's clock: it is INCOMPARABLE. On the
    CPU's clock, if the thread had to wait for a CPU in the warm-up, the ratios are those of CPU
    times, and a warning says so.

    Parameters
    ----------
    functions : mapping of str to callable
        Two or more, by name; the first is what the others are compared with.
    args : sequence
        What each is called with.
    kwargs : mapping, optional
        What else each is called with, by name.
    rounds : int, optional
        How often each is measured. None is 30 rounds, and more until the interval of each ratio is
        no wider than the threshold, or a tenth of the ratio's distance from 1; at most 1,000.
    threshold : float
        The smallest change that matters, as a fraction.
    max_time_s : float
        After how many seconds no further round begins, without the warm-up.
    seed : int, optional
        The seed of the order of the rounds, random if left out; it is in the result.
    progress : bool, optional
        Whether to show the progress; None shows it on a terminal and in a notebook.
    options : Any
        Others of `benchmark`, such as `mode`, `cold_l2`, `setup`, `stream` and `warmup_s`.

    Returns
    -------
    CompareResult
        A row for each function.

    Raises
    ------
    TypeError
        If `functions` is no mapping of names to functions, or an option is unknown.
    ValueError
        If there are fewer than two functions, or an option has an invalid value.
    """
    _check(functions, rounds, threshold, max_time_s, seed)
    for refused in _REFUSED:
        if refused in options:
            message = (
                f"{refused} has no meaning here: the mapping has the names, and rounds= and "
                "threshold= say when to stop"
            )
            raise TypeError(message)
    shared = join(checked_options(**options).ranks)

    def ready(name: str, **chosen: Any) -> Measurer:
        # Only the precision of the ratios matters, not that of a median.
        chosen = {**options, "rel_precision": _ANY_PRECISION, "shared": shared, **chosen}
        with _noted(name):
            return prepare(functions[name], args, kwargs, name=name, **chosen)

    with (
        shared,
        random_state_kept(),
        ExitStack() as opened,
        Progress("gpuprof.compare", progress) as bar,
    ):
        seed = random.SystemRandom().randrange(_SEEDS) if seed is None else seed
        seed = shared.decide("the seed", seed)
        prepared, warnings = _alike([*functions], ready, opened)
        # Of several ranks the slowest one's time counts, and CPU times are each rank's own.
        waiting = max(each.waited() for each in prepared.values()) if shared.is_alone else 0.0
        by_cpu = waiting > WORTH_SAYING
        order = turns([*prepared], random.Random(seed))
        taking = _Rounds(prepared, threshold, max_time_s, shared, order, by_cpu)
        warnings += taking.take(rounds, bar)
        results = [
            replace(
                each.result(taking.samples[name]),
                name=name,
                requested_mode=options.get("mode", "auto"),
                duration_s=taking.spent_s[name],
            )
            for name, each in prepared.items()
        ]
    cpu_ms: dict[str, list[float]] = {}
    if by_cpu:
        how, cpu_ms = _by_cpu(results, taking.cpu_ms, waiting)
        warnings.append(how)
    return CompareResult.of(
        results, threshold=threshold, warnings=warnings, seed=seed, cpu_ms=cpu_ms
    )


@contextmanager
def _noted(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        add_note = getattr(error, "add_note", None)  # from Python 3.11 on
        if add_note is not None:
            add_note(f"gpuprof.compare was measuring {name!r}")
        raise


def _check(
    functions: object, rounds: object, threshold: object, max_time_s: object, seed: object
) -> None:
    if not isinstance(functions, Mapping):
        message = (
            "functions: expected a mapping of names to functions, as in "
            f'compare({{"old": f, "new": g}}), got {checks.shortened(functions)}'
        )
        raise TypeError(message)
    for name, function in functions.items():
        checks.text("a name of functions", name, empty=False)
        checks.function(f"functions[{name!r}]", function)
    if len(functions) < 2:
        message = f"functions: expected two or more, got {len(functions)}"
        raise ValueError(message)
    if rounds is not None:
        checks.whole("rounds", rounds)
    if seed is not None:
        checks.whole("seed", seed, least=0)
    check_threshold(threshold, above_0=True)
    checks.number("max_time_s", max_time_s, 0, checks.MOST_S, above=True)


def _alike(
    names: Sequence[str], ready: Callable[..., Measurer], opened: ExitStack
) -> tuple[dict[str, Measurer], list[str]]:
    """Prepare and warm up all functions, again until their modes and calls per sample agree."""
    chosen: dict[str, dict[str, str]] = {name: {} for name in names}
    wanted: list[int] = []  # calls in a sample, tried in turn
    warnings: list[str] = []
    while True:
        prepared: dict[str, Measurer] = {}
        calls = {"calls": wanted[-1]} if wanted else {}
        for name, mode in chosen.items():
            prepared[name] = ready(name, **mode, **calls)
            opened.callback(prepared[name].close)
        modes = {name: each.mode for name, each in prepared.items()}
        common = max(modes.values(), key=lambda mode: (*_MODES, mode).index(mode))
        moved = [name for name, mode in modes.items() if mode != common]
        if not moved:
            if len(wanted) == 2 or not _should_agree(prepared):
                _warm_up(prepared)  # which may choose the calls again
                if len(wanted) == 2 or not _should_agree(prepared):
                    return prepared, warnings
            counts = [each.sampler.calls for each in prepared.values()]
            # As many as the shortest function needs, or as many as the others can do.
            wanted.append(min(counts) if wanted else max(counts))
        elif common not in _MODES:
            _warm_up(prepared)
            return prepared, warnings
        else:
            cause = next(name for name, mode in modes.items() if mode == common)
            warnings.append(
                f"all are measured in {common} mode because of {cause!r}; {moved[0]!r} alone would "
                f"be in {modes[moved[0]]} mode"
            )
            chosen |= {name: {"mode": common} for name in moved}
        # Close all, last opened first: each may have made its stream the current one.
        opened.close()


def _warm_up(prepared: Mapping[str, Measurer]) -> None:
    for name, each in prepared.items():
        with _noted(name):
            each.warm_up()


def _by_cpu(
    results: Sequence[BenchResult], cpu_ms: dict[str, list[float]], waiting: float
) -> tuple[str, dict[str, list[float]]]:
    """Say what is compared, and return the CPU times if they can be."""
    why = f"the thread waited for a CPU for {percent(waiting)} of a sample in the warm-up"
    for each in results:
        if gives_up_the_cpu(each):
            how = f"{why}; times are compared all the same, because {each.name!r} also sleeps"
            return how, {}
    if any(min(times) <= 0.0 for times in cpu_ms.values()):
        return f"{why}; times are compared all the same: CPU times are too short to be told", {}
    return f"CPU times are compared, because {why}", cpu_ms


def _should_agree(prepared: Mapping[str, Measurer]) -> bool:
    counts = [each.sampler.calls for each in prepared.values()]
    return min(counts) < max(counts) <= _MOST_TIMES_AS_MANY_CALLS * min(counts)


@dataclass
class _Rounds:
    """Takes the samples, one of each function a round."""

    prepared: Mapping[str, Measurer]
    threshold: float
    max_time_s: float
    ranks: Alone
    turns: Iterator[list[tuple[str, int]]]
    by_cpu: bool

    def __post_init__(self) -> None:
        self.samples: dict[str, list[float]] = {name: [] for name in self.prepared}
        self.cpu_ms: dict[str, list[float]] = {name: [] for name in self.prepared}
        self.spent_s = dict.fromkeys(self.prepared, 0.0)

    def take(self, rounds: int | None, bar: Progress) -> list[str]:
        """Take that many rounds, or enough for None; return warnings."""
        most = MAX_ROUNDS if rounds is None else rounds
        least = MIN_ROUNDS if rounds is None else rounds
        for done in range(1, most + 1):
            self._round()
            known = done >= least and (done == most or self._known())
            if self.ranks.decide("the end", known):
                break
            taken = self.ranks.decide("the time", sum(self.spent_s.values()))
            bar.update(max(done / most, taken / self.max_time_s), f"{done:,} rounds")
            if taken >= self.max_time_s:
                if done >= least:
                    break
                return [
                    f"{done:,} of {least:,} rounds were measured in the {self.max_time_s:g} s of "
                    "max_time_s"
                ]
        return []

    def _round(self) -> None:
        for name, left_out in next(self.turns):
            each = self.prepared[name]
            begin = monotonic()
            # The two sides of a slope swap places from sample to sample. Leaving out one or two
            # gives the samples that count both orders.
            with _noted(name):
                for _ in range(left_out):
                    each.sample()
                self.samples[name].append(each.sample())
            self.cpu_ms[name].append(each.sampler.cpu_ms)
            self.spent_s[name] += monotonic() - begin

    def _known(self) -> bool:
        """Tell whether each ratio's interval is narrow, wherever it lies.

        Stopping as soon as it excludes 1 would find differences where there are none.
        """
        base, *others = (self.cpu_ms if self.by_cpu else self.samples).values()
        if min(base) <= 0:
            return False
        for other in others:
            ratios = [new / old for old, new in zip(base, other, strict=True)]
            low, high = statistics.median_interval(
                ratios,
                joint_confidence(len(others)),
                independent=statistics.independent_count(ratios),
            )
            ratio = statistics.median(ratios)
            if high - low > max(self.threshold * ratio, _PRECISE_ENOUGH * abs(ratio - 1)):
                return False
        return True


def turns(names: Sequence[str], chance: random.Random) -> Iterator[list[tuple[str, int]]]:
    """Yield for each round the functions in order, and how many samples each leaves out first.

    In each block of twice as many rounds as functions, each function is twice at each place, and
    leaves out one sample as often as two.
    """
    while True:
        once = chance.sample(names, len(names))
        rounds = [
            [*order[begin:], *order[:begin]]
            for order in (once, once[::-1])
            for begin in range(len(names))
        ]
        chance.shuffle(rounds)
        left_out = {name: chance.sample([1, 2] * len(names), 2 * len(names)) for name in names}
        yield from ([(name, left_out[name].pop()) for name in order] for order in rounds)
