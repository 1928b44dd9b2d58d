"""What a measurement is, as plain data: the raw samples, and how they were taken.

A ``BenchResult`` holds no function, stream or event. It never waits and reads nothing from the
driver; it can be pickled, written as JSON, read elsewhere and shown there. Times are milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Annotated, Any

from gpuprof._common import checks
from gpuprof._common.launches import Launches
from gpuprof._common.quantiles import quantile
from gpuprof._common.records import Checked, Document, by_name, check_of, each_of, head, or_none
from gpuprof._common.text import in_html, plural, shown_text
from gpuprof._common.units import duration, interval_text, joules
from gpuprof._display import histogram
from gpuprof._display.histogram import Bin
from gpuprof._display.records import Records
from gpuprof._display.shown import Exported, Shown
from gpuprof._display.table import Table, aligned, html_list
from gpuprof._results import fields, statistics, texts
from gpuprof._results.export import RATES, SPREAD, figures_of, samples_of

LEFT = frozenset({"name", "mode", "clock", "L2", "verdict", "error"})


@dataclass(frozen=True, repr=False)
class BenchResult(Shown, Exported, Document, Checked):
    """What `benchmark` measured: the time of one call, sample by sample.

    Attributes
    ----------
    name : str
        What was measured.
    mode : str
        How it was measured: ``"graph"``, ``"batched"``, ``"isolated"``, ``"synchronized"`` (host
        time around a wait for the device) or ``"cpu"``.
    requested_mode : str
        The mode asked for; ``"auto"`` leaves the choice to gpuprof.
    clock : str
        ``"cuda"`` for times of events on the GPU, ``"host"`` for the host's clock around a wait for
        the device, ``"cpu"`` for the host's clock alone.
    l2 : str
        What the L2 cache held at the start of a call: ``"hot"``, ``"rotated"`` (each call gets
        other copies of the arguments), ``"flushed"``, or ``"n/a"``.
    samples_ms : tuple of float
        The time of one call, in milliseconds, in the order in which they were taken; all of
        them.
    host_ms : float
        The median of what the host needs to queue one call; NaN if it was not taken.
    tick_ms : float
        The smallest step that a sample can have.
    calls_per_sample : int
        Over how many calls a sample is taken.
    gate : str
        ``"gated"`` if the GPU began only after the work of a sample was queued, so that the host's
        time is not in it; else ``"ungated"``, or ``"n/a"``.
    clock_mhz : tuple of float
        The clock of the GPU's multiprocessors at each sample; empty if it was not read.
    throttle_reasons : tuple of str
        Why the GPU lowered its clocks meanwhile.
    noise : mapping of str to float
        What else the machine did meanwhile, on the CPU's clock: the shares of the time that the
        thread ``"waited"`` for a CPU, and that the host of a virtual machine has ``"stolen"``;
        ``"off_cpu"``, the share of a median sample in which the thread was on no CPU;
        ``"switches_per_s"``, how often it lost its CPU; ``"loop_ms"``, the time of a loop that is
        always the same. Empty on other clocks; what the system does not report is left out.
    nbytes : int or None
        The bytes that a call moves, as the caller says.
    flops : int or None
        The floating-point operations of a call, as the caller says.
    memory : mapping of str to int
        What an ordinary call did to the memory that torch and CuPy have allocated on the GPU, in
        bytes: ``"peak_bytes"``, how far it rose above its level before the call, and
        ``"change_bytes"``, what was left of that once the call's value was dropped. Empty on the
        CPU's clock, and where neither library allocates.
    energy : mapping of str to float
        What a call takes of the GPU's energy, idle power included: ``"joules"``, and ``"watts"``
        while such calls follow each other, the medians of blocks of ``"block_s"`` seconds. The
        counter moves in steps of ``"step_joules"``, which are ``"resolution"`` of a block, as a
        fraction. Empty if it was not measured; of several ranks it is rank 0's.
    peaks : mapping of str to float or str
        What the device can do, for the shares: ``"bytes_per_s"``, and ``"flops_per_s"`` for data
        of type ``"dtype"``. Empty if nobody has said it.
    launches : Launches or None
        What one call launches on the GPU: kernels by name, copies, memsets. None if that was not
        counted.
    warnings : tuple of str
        What lessens the result's worth, and what was measured otherwise than asked for.
    params : mapping
        The point of a sweep that this is.
    extra_info : mapping
        Whatever the caller adds.
    machine : mapping
        The machine that measured: GPU, driver, versions.
    created : str
        When, as ISO 8601 text in UTC.
    duration_s : float
        How long measuring took, in seconds.
    ranks : tuple of BenchResult
        What each rank measured, where several have measured together; each sample of this result is
        then the longest of theirs. Else empty.
    """

    __module__ = "gpuprof"

    name: Annotated[str, checks.text]
    mode: Annotated[str, partial(checks.choice, known=fields.MODES)]
    requested_mode: Annotated[str, partial(checks.choice, known=fields.REQUESTED_MODES)]
    clock: Annotated[str, partial(checks.choice, known=texts.CLOCKS)]
    l2: Annotated[str, partial(checks.choice, known=(*texts.L2_STATES, "n/a"))]
    samples_ms: Annotated[tuple[float, ...], fields.samples]
    host_ms: Annotated[float, fields.time_or_nan] = math.nan
    tick_ms: Annotated[float, fields.not_negative] = 0.0
    calls_per_sample: Annotated[int, checks.whole] = 1
    gate: Annotated[str, partial(checks.choice, known=fields.GATES)] = "n/a"
    clock_mhz: Annotated[tuple[float, ...], each_of(fields.not_negative)] = ()
    throttle_reasons: Annotated[tuple[str, ...], each_of(checks.text)] = ()
    noise: Annotated[Mapping[str, float], by_name(fields.not_negative)] = field(
        default_factory=dict
    )
    nbytes: Annotated[int | None, fields.amount] = None
    flops: Annotated[int | None, fields.amount] = None
    memory: Annotated[Mapping[str, int], fields.memory] = field(default_factory=dict)
    energy: Annotated[Mapping[str, float], fields.energy] = field(default_factory=dict)
    peaks: Annotated[Mapping[str, Any], fields.peaks] = field(default_factory=dict)
    launches: Annotated[Launches | None, or_none(check_of(Launches))] = None
    warnings: Annotated[tuple[str, ...], each_of(checks.text)] = ()
    params: Annotated[Mapping[str, Any], checks.mapping] = field(default_factory=dict)
    extra_info: Annotated[Mapping[str, Any], checks.mapping] = field(default_factory=dict)
    machine: Annotated[Mapping[str, Any], checks.mapping] = field(default_factory=dict)
    created: Annotated[str, checks.text] = ""
    duration_s: Annotated[float, fields.not_negative] = 0.0
    ranks: Annotated[tuple[BenchResult, ...], each_of(check_of(BenchResult))] = ()

    _HEAD = head("gpuprof-result", unit="ms")
    _MEMBERS = (..., "summary")
    _NEWER = frozenset({"noise", "memory", "energy", "peaks", "launches", "ranks"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clock_mhz and len(self.clock_mhz) != len(self.samples_ms):
            expected = f"a value for each of {len(self.samples_ms)} samples, or none"
            raise checks.value_error(self.clock_mhz, "clock_mhz", expected)

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.samples_ms)

    @cached_property
    def _sorted(self) -> list[float]:
        return sorted(self.samples_ms)

    @cached_property
    def median_ms(self) -> float:
        """The median: the figure to quote."""
        return statistics.median(self._sorted)

    @property
    def min_ms(self) -> float:
        """The smallest sample. It hides what happens only sometimes; quote the median."""
        return self._sorted[0]

    @property
    def max_ms(self) -> float:
        """The largest sample."""
        return self._sorted[-1]

    @cached_property
    def mean_ms(self) -> float:
        """The mean."""
        return math.fsum(self.samples_ms) / self.count

    @cached_property
    def stddev_ms(self) -> float:
        """The standard deviation; 0 of a single sample."""
        return statistics.stddev(self.samples_ms)

    @property
    def q1_ms(self) -> float:
        """The first quartile."""
        return quantile(self._sorted, 0.25)

    @property
    def q3_ms(self) -> float:
        """The third quartile."""
        return quantile(self._sorted, 0.75)

    @property
    def iqr_ms(self) -> float:
        """The distance between the quartiles."""
        return self.q3_ms - self.q1_ms

    @cached_property
    def mad_ms(self) -> float:
        """The median absolute deviation from the median, not scaled."""
        return statistics.mad(self._sorted)

    @property
    def p10_ms(self) -> float:
        """The 10th percentile."""
        return quantile(self._sorted, 0.1)

    @property
    def p90_ms(self) -> float:
        """The 90th percentile."""
        return quantile(self._sorted, 0.9)

    @cached_property
    def interval_ms(self) -> tuple[float, float]:
        """The 95 % interval of the median, by order statistics: exact for independent samples.

        It is as wide as that of `independent_samples`, and reaches at least a tick to both sides of
        the median. With fewer than 6 it is from the smallest to the largest. It says how well this
        run knows its median; another run of the same code may differ by more.
        """
        return statistics.median_interval(
            self._sorted, tick=self.tick_ms, independent=self.independent_samples
        )

    @cached_property
    def independent_samples(self) -> float:
        """How many independent samples would say as much about the median as these.

        It is fewer than `count` where samples that follow each other are alike.
        """
        return statistics.independent_count(self.samples_ms)

    @property
    def rel_precision(self) -> float:
        """Half the interval over the median; infinite if the median is not above 0."""
        low, high = self.interval_ms
        return (high - low) / 2 / self.median_ms if self.median_ms > 0 else math.inf

    @property
    def gbytes_per_s(self) -> float | None:
        """`nbytes` over the median, in 10^9 bytes a second; None if `nbytes` is not known."""
        return self._rate(self.nbytes, 1e6)

    @property
    def tflops_per_s(self) -> float | None:
        """`flops` over the median, in 10^12 operations a second; None if `flops` is not known."""
        return self._rate(self.flops, 1e9)

    @property
    def bytes_share(self) -> float | None:
        """`gbytes_per_s` as a fraction of the device's peak; None if one of them is not known."""
        return self._share(self.gbytes_per_s, "bytes_per_s", 1e9)

    @property
    def flops_share(self) -> float | None:
        """`tflops_per_s` as a fraction of the device's peak; None if one of them is not known."""
        return self._share(self.tflops_per_s, "flops_per_s", 1e12)

    @property
    def peak_bytes(self) -> int | None:
        """The peak of the memory that a call takes, in bytes; None if it was not measured."""
        return self.memory.get("peak_bytes")

    def _share(self, rate: float | None, name: str, scale: float) -> float | None:
        return None if rate is None or name not in self.peaks else rate * scale / self.peaks[name]

    def _rate(self, amount: int | None, per_ms: float) -> float | None:
        if amount is None or self.median_ms <= 0:
            return None
        return amount / self.median_ms / per_ms

    @property
    def summary(self) -> dict[str, Any]:
        """The figures that follow from the samples, as JSON repeats them for other readers."""
        return {name: getattr(self, name) for name in _SUMMARY}

    def _records(self, samples: bool = False) -> Records:
        return samples_of([self]) if samples else Records.of([figures_of(self)])

    def _table(self) -> Table:
        line = {"name": self.name, **cells(self)}
        return Table.of([line], left=LEFT, notes=warnings_of([self]))

    def histogram(self, bins: int = 12) -> str:
        """Return a histogram of the samples as plain text, a line for each bin.

        Parameters
        ----------
        bins : int
            How many bins at most. None is narrower than a tick, and samples far outside the
            quartiles share a bin at the end.
        """
        return histogram.text(bins_of(self, checks.whole("bins", bins, 1, 1000)))

    def __str__(self) -> str:
        warnings = [f"  warning: {shown_text(each)}" for each in self.warnings]
        return "\n".join([headline(self), *aligned(_facts(self), indent="  "), *warnings])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        drawing = histogram.svg(
            bins_of(self, 30), self.median_ms, self.interval_ms, (self.min_ms, self.max_ms)
        )
        facts = "".join(
            f'<tr><th style="text-align:left">{in_html(heading)}</th>'
            f'<td style="text-align:left">{in_html(text)}</td></tr>'
            for heading, text in _facts(self)
        )
        return (
            f"<div><div><b>{in_html(headline(self))}</b></div>{drawing}"
            f"<table><tbody>{facts}</tbody></table>{html_list(warnings_of([self]))}</div>"
        )


def merged(ranks: Sequence[object]) -> BenchResult:
    """Return the slowest rank's time of each sample; `ranks` is what `to_dict` of each returned."""
    results = tuple(map(BenchResult.from_dict, ranks))
    warnings = texts.said_once(
        [(str(rank), each.warnings) for rank, each in enumerate(results)], "rank "
    )
    samples = zip(*(result.samples_ms for result in results), strict=True)
    slowest = tuple(map(max, samples))
    return replace(results[0], samples_ms=slowest, warnings=tuple(warnings), ranks=results)


_SUMMARY = ("count", "median_ms", "interval_ms", "independent_samples", *SPREAD, *RATES)


def cells(result: BenchResult) -> dict[str, str]:
    """Return what a line of a table says of a result; without its name."""
    bytes_per_s, flops_per_s = result.gbytes_per_s, result.tflops_per_s
    unknown = math.isnan(result.host_ms)
    return {
        "median": duration(result.median_ms),
        "95 % interval": interval_text(*result.interval_ms),
        "min": duration(result.min_ms),
        "IQR": duration(result.iqr_ms),
        # On the CPU's clock the time of a call is the host's time.
        "host": "" if result.clock == "cpu" or unknown else duration(result.host_ms),
        "bytes": texts.rate_text(bytes_per_s and bytes_per_s * 1e9, "B", result.bytes_share),
        "flops": texts.rate_text(flops_per_s and flops_per_s * 1e12, "FLOP", result.flops_share),
        "memory": texts.peak_text(result.peak_bytes),
        "energy": joules(result.energy.get("joules")),
        "samples": f"{result.count:,}",
        "mode": result.mode,
        "clock": result.clock,
        "L2": "" if result.l2 == "n/a" else result.l2,
    }


def _facts(result: BenchResult) -> list[tuple[str, str]]:
    """Return what there is to say besides the median, by heading."""
    shown, noise, launches = cells(result), result.noise, result.launches
    independent, tick_ms = result.independent_samples, result.tick_ms
    as_few = f" (as {independent:,.0f} independent ones)" if independent < result.count else ""
    tick = f", tick {duration(tick_ms)}" if tick_ms >= 5e-7 else ""
    samples = (
        f"{plural(result.count, 'sample')}{as_few} of {plural(result.calls_per_sample, 'call')} in "
        f"{duration(1e3 * result.duration_s)}{tick}"
    )
    spread = (
        f"min {shown['min']}, quartiles {duration(result.q1_ms)} and {duration(result.q3_ms)}, "
        f"max {duration(result.max_ms)}; IQR {shown['IQR']}, MAD {duration(result.mad_ms)}"
    )
    cpu = f"{duration(noise.get('cpu_ms'))} a call, which a tenth of the samples stay below"
    medians = ", ".join(duration(each.median_ms) for each in result.ranks)
    clock = ""
    if mhz := result.clock_mhz:
        clock = f"{statistics.median(mhz):,.0f} MHz ({min(mhz):,.0f} to {max(mhz):,.0f})"
    facts = [
        ("measured", texts.how(result)),
        ("left out", "the host's time, allocation" if result.mode == "graph" else ""),
        ("samples", samples),
        ("spread", spread),
        ("CPU time", cpu if "cpu_ms" in noise else ""),
        ("host", shown["host"] and f"{shown['host']} to queue a call"),
        ("rate", ", ".join(filter(None, (shown["bytes"], shown["flops"])))),
        ("peak", texts.peaks_text(result)),
        ("memory", texts.memory_text(result.memory) if result.memory else ""),
        ("energy", texts.energy_text(result.energy) if result.energy else ""),
        ("launches", "; ".join(filter(None, (str(launches), launches.varies))) if launches else ""),
        ("ranks", medians and f"the slowest of {len(result.ranks)} in each sample; {medians}"),
        ("SM clock", clock),
        ("throttled", ", ".join(result.throttle_reasons)),
        ("params", ", ".join(f"{key}={value}" for key, value in result.params.items())),
    ]
    extra = [(str(key), str(value)) for key, value in result.extra_info.items()]
    return [(heading, text) for heading, text in facts if text] + extra


def headline(result: BenchResult) -> str:
    return (
        f"{shown_text(result.name)}: {duration(result.median_ms)} a call, "
        f"95 % interval {interval_text(*result.interval_ms)}"
    )


def warnings_of(results: Sequence[BenchResult], more: Sequence[str] = ()) -> list[str]:
    """Return the warnings of several results; one that all have is said once, without a name."""
    found = texts.said_once([(result.name, result.warnings) for result in results])
    return [f"warning: {text}" for text in [*more, *found]]


def bins_of(result: BenchResult, most: int) -> list[Bin]:
    quartiles = result.q1_ms, result.q3_ms
    return histogram.bins(result.samples_ms, quartiles, result.tick_ms, most)
