"""`benchmark` without a GPU: the CPU's clock, arguments, set-up, when it stops."""

from __future__ import annotations

import gc
import itertools
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpuprof
from gpuprof._benchmark import api, loop
from gpuprof._benchmark.loop import Clocks
from tests.support.processes import check_python

QUICK: dict[str, Any] = {"warmup_s": 0.0, "min_time_s": 0.0, "min_samples": 6, "max_time_s": 0.5}


def nap() -> None:
    time.sleep(0.002)


def test_a_function_that_uses_no_gpu_is_timed_on_the_cpus_clock() -> None:
    out = check_python("""
        import time, gpuprof
        result = gpuprof.benchmark(lambda: time.sleep(0.002), warmup_s=0, max_time_s=0.5)
        print(result.mode, result.clock, result.l2, result.gate, result.machine["gpu"])
        print(2.0 <= result.median_ms < 200.0, result.count >= 30, result.calls_per_sample)
    """)
    assert out.split() == ["cpu", "cpu", "n/a", "n/a", "None", "True", "True", "1"]


def test_a_reading_agrees_with_an_independent_clock() -> None:
    result = gpuprof.benchmark(nap, **QUICK)
    begin = time.perf_counter()
    nap()
    own = (time.perf_counter() - begin) * 1e3
    assert result.min_ms >= 2.0
    assert result.min_ms <= own * 2.0


def test_short_calls_are_timed_many_at_a_time() -> None:
    calls = []
    result = gpuprof.benchmark(lambda: calls.append(1), **QUICK)
    assert result.calls_per_sample > 10
    assert len(calls) >= result.calls_per_sample * result.count


def test_calls_of_a_sample_that_were_asked_for_stay() -> None:
    with api.prepare(int, calls=3, warmup_s=0.01) as m:
        m.warm_up()
        assert m.sampler.calls == 3


def test_arguments_reach_the_function() -> None:
    seen = set()

    def function(first: int, *, second: int) -> None:
        seen.add((first, second))

    gpuprof.benchmark(function, (1,), {"second": 2}, **QUICK)
    assert seen == {(1, 2)}


def test_a_set_up_runs_before_each_sample_and_may_give_its_arguments() -> None:
    log: list[str] = []
    made = iter(range(10**9))

    def setup() -> Any:
        log.append("setup")
        return ([next(made)],), {}

    def consume(items: list[int]) -> None:
        items.pop()  # fails if it gets the same list twice
        log.append("call")

    result = gpuprof.benchmark(consume, setup=setup, **QUICK)
    assert result.calls_per_sample == 1
    assert log == ["setup", "call"] * (len(log) // 2)


def test_a_set_up_that_returns_something_else_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"setup: expected it to return None or \(args, kwargs\)"):
        gpuprof.benchmark(nap, setup=lambda: 5, **QUICK)


def test_it_stops_at_the_time_limit_and_says_what_precision_it_has() -> None:
    wild = iter(0.001 * (1 + i % 7) for i in range(10**9))
    result = gpuprof.benchmark(
        lambda: time.sleep(next(wild)),
        warmup_s=0.0,
        min_samples=6,
        max_time_s=0.2,
        rel_precision=1e-6,
    )
    assert result.duration_s < 30.0
    assert any("max_time_s" in text for text in result.warnings)


def test_a_median_that_is_hardly_known_is_said_in_plain_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = itertools.cycle([1.0] * 51 + [100.0] * 50)
    monkeypatch.setattr("gpuprof._benchmark.samplers.CpuSampler.sample", lambda _: next(samples))
    result = gpuprof.benchmark(nap, warmup_s=0.0, min_samples=6, max_time_s=0.3)
    (text,) = [text for text in result.warnings if "known to" in text]
    assert re.match(r"the median is known to [1-9],?\d\d\d % only, where 1 % was wanted", text)


def test_it_takes_at_least_the_samples_asked_for() -> None:
    result = gpuprof.benchmark(nap, **{**QUICK, "min_samples": 21, "rel_precision": 1.0})
    assert result.count >= 21


def test_more_samples_are_taken_than_usual_if_asked_for() -> None:
    result = gpuprof.benchmark(lambda: None, warmup_s=0.0, min_samples=5_500, max_time_s=60.0)
    assert result.count >= 5_500


def test_fewer_samples_than_asked_for_are_told() -> None:
    result = gpuprof.benchmark(
        lambda: time.sleep(0.01), warmup_s=0.0, max_time_s=0.15, rel_precision=1.0
    )
    assert 6 <= result.count < 30
    told = f"{result.count} of the 30 samples of min_samples were taken in the 0.15 s of max_time_s"
    assert told in result.warnings


def test_more_samples_are_taken_until_the_median_is_precise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def precision(samples: list[float]) -> float:
        asked.append(len(samples))
        return 0.5 if len(samples) < 100 else 0.001

    monkeypatch.setattr(loop, "_precision", precision)
    result = gpuprof.benchmark(int, **{**QUICK, "max_time_s": 20.0})
    assert result.count >= 100
    assert asked[0] >= QUICK["min_samples"]


def test_the_generators_are_put_back() -> None:
    numpy = pytest.importorskip("numpy", reason="Python build without NumPy")
    random.seed(3)
    numpy.random.seed(3)
    expected = random.random(), float(numpy.random.rand())
    random.seed(3)
    numpy.random.seed(3)
    gpuprof.benchmark(lambda: (random.random(), numpy.random.rand()), **QUICK)
    assert (random.random(), float(numpy.random.rand())) == expected


def test_garbage_collection_is_on_again_also_after_an_error() -> None:
    calls = iter(range(12))

    def fails_later() -> None:
        if next(calls) == 11:
            raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"):
        gpuprof.benchmark(fails_later, setup=lambda: None, **{**QUICK, "min_samples": 100})
    assert gc.isenabled()


def test_garbage_collection_stays_on_beside_a_benchmark_of_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The other one's sample had it off when this one's began, and switches it on again meanwhile.
    monkeypatch.setattr(gc, "isenabled", lambda: False)
    gpuprof.benchmark(int, **QUICK)
    monkeypatch.undo()
    assert gc.isenabled()


def test_the_functions_own_exception_comes_out_unchanged() -> None:
    error = OSError("mine")

    def raises() -> None:
        raise error

    with pytest.raises(OSError, match="mine") as caught:
        gpuprof.benchmark(raises, **QUICK)
    assert caught.value is error


def test_a_result_has_the_functions_name_or_the_one_given() -> None:
    assert gpuprof.benchmark(nap, **QUICK).name == "nap"
    assert gpuprof.benchmark(nap, name="other", **QUICK).name == "other"


def test_modes_of_the_gpu_are_said_to_be_left_out_on_the_cpu() -> None:
    result = gpuprof.benchmark(nap, mode="batched", cold_l2=True, **QUICK)
    assert result.mode == "cpu"
    assert result.requested_mode == "batched"
    assert any("'batched'" in text for text in result.warnings)
    assert any("cold_l2" in text for text in result.warnings)


def test_passing_a_result_instead_of_a_function_is_told() -> None:
    with pytest.raises(TypeError, match=r"fn: pass a function, got int: benchmark\(f, \(x,\)\)"):
        gpuprof.benchmark(len([]))  # type: ignore[arg-type]


async def pauses() -> None:
    pass


def counts() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("fn", "kind"),
    [(pauses, "an async function"), (counts, "a generator"), (partial(counts), "a generator")],
)
def test_a_function_whose_call_runs_nothing_is_refused(fn: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"is {kind}, and a call of it runs nothing"):
        gpuprof.benchmark(fn, **QUICK)


def test_a_slow_function_is_called_a_few_times_only() -> None:
    # Where CUDA is in use, it is looked at first, with more calls.
    out = check_python("""
        import time, gpuprof
        calls = []
        def slow():
            calls.append(1)
            time.sleep(0.06)
        result = gpuprof.benchmark(slow, warmup_s=0.01, max_time_s=0.05)
        print(len(calls) <= 6, any("warm-up" in text for text in result.warnings))
    """)
    assert out.split() == ["True", "False"]


def test_too_few_samples_for_an_interval_are_told() -> None:
    result = gpuprof.benchmark(nap, **{**QUICK, "max_time_s": 1e-4})
    assert result.count < 6
    assert any("an interval of the median" in text for text in result.warnings)


def test_samples_in_which_memory_grew_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Growing:
        """What is prepared on a GPU whose framework takes more memory for each sample."""

        mode = "graph"
        ranks = SimpleNamespace(decide=lambda _what, value: value)
        taken = 0

        def samples_until(self, _until: float, _most: int) -> list[float]:
            self.taken += 1
            return [1.0]

    growing: Any = Growing()
    monkeypatch.setattr(loop, "device_allocations", lambda: growing.taken)
    samples = loop.Samples()
    samples.add_chunk(growing, Clocks(None), time.perf_counter() + 0.1)
    assert samples.too_long == len(samples.samples) == 1


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"args": 5}, TypeError, "args: expected a tuple or list"),
        ({"kwargs": [1]}, TypeError, "kwargs: expected a mapping"),
        ({"mode": "fast"}, ValueError, "mode: expected one of"),
        ({"setup": 3}, TypeError, "setup: expected a callable"),
        ({"setup": nap, "mode": "graph"}, ValueError, "setup: mode 'graph'"),
        ({"warmup_s": -1}, ValueError, "warmup_s: expected a number from 0 to 86400"),
        ({"max_time_s": 0}, ValueError, "max_time_s: expected a number above 0 and up to 86400"),
        ({"warmup_s": "1"}, TypeError, "warmup_s: expected a number from 0 to 86400"),
        ({"rel_precision": float("nan")}, ValueError, "rel_precision: expected a finite number"),
        ({"max_time_s": 10**400}, ValueError, "max_time_s: expected a number above 0"),
        ({"warmup_s": 86_401}, ValueError, "warmup_s: expected a number from 0 to 86400, got 864"),
        ({"min_samples": 0}, ValueError, "min_samples: expected a whole number from 1"),
        ({"min_samples": None}, TypeError, "min_samples: expected a whole number from 1"),
        ({"min_samples": True}, TypeError, "min_samples: expected a whole number"),
        ({"nbytes": 1.5}, TypeError, "nbytes: expected a whole number"),
        ({"flops": -1}, ValueError, "flops: expected a whole number"),
        ({"flops": 2**63}, ValueError, "flops: expected a whole number from 0 to"),
        ({"name": ""}, ValueError, "name: expected a non-empty str"),
        ({"params": 5}, TypeError, "params: expected a mapping"),
        ({"params": {1: 2}}, TypeError, "params: expected a mapping of text"),
    ],
)
def test_a_bad_argument_is_named(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        gpuprof.benchmark(nap, **options)


def test_amounts_may_be_numbers_of_numpy() -> None:
    numpy = pytest.importorskip("numpy", reason="Python build without NumPy")
    result = gpuprof.benchmark(nap, nbytes=numpy.prod((1000, 2000)), **QUICK)
    assert type(result.nbytes) is int
    assert result.nbytes == 2_000_000


def test_rates_come_from_the_bytes_and_operations_given() -> None:
    result = gpuprof.benchmark(nap, nbytes=2_000_000, flops=4_000_000, **QUICK)
    assert result.gbytes_per_s == pytest.approx(2.0 / result.median_ms)
    assert result.tflops_per_s == pytest.approx(0.004 / result.median_ms)


def with_scopes(name: str) -> Callable[[], None]:
    """Return a function that is full of what the process records."""
    scope, note = gpuprof.timer(f"{name} scope"), gpuprof.annotate(f"{name} range")

    def function() -> None:
        with scope, note:
            gpuprof.mark(f"{name} mark")
            gpuprof.counter(f"{name} counter").set(1)
            gpuprof.range_end(gpuprof.range_start(f"{name} started"))
            probe = gpuprof.start_probe_timer_if(True)
            gpuprof.finish_probe_timer_traced(probe, f"{name} probe", "c", None)

    return function


def counted(name: str) -> int:
    return sum(row.time.count for row in gpuprof.stats().values() if row.name == f"{name} scope")


@pytest.mark.parametrize("how", ["benchmark", "compare", "sweep"])
def test_scopes_and_ranges_are_off_while_a_benchmark_measures(how: str, tmp_path: Path) -> None:
    function = with_scopes(how)
    with gpuprof.trace(tmp_path / "t.json"):
        if how == "benchmark":
            gpuprof.benchmark(function, **QUICK)
        elif how == "compare":
            gpuprof.compare({"a": function, "b": function}, rounds=2, warmup_s=0.0)
        else:
            gpuprof.sweep(lambda **_: function, {"n": [1, 2]}, **QUICK)
        assert counted(how) == 0
        function()
    assert counted(how) == 1
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    names = Counter(event["name"] for event in events if event["name"].startswith(how))
    assert names.pop(f"{how} started") in {1, 2}  # a beginning and an end
    kinds = ("scope", "range", "mark", "counter", "probe")
    assert names == {f"{how} {kind}": 1 for kind in kinds}


def test_scopes_are_measured_with_the_function_if_asked_for() -> None:
    result = gpuprof.benchmark(with_scopes("with"), scopes=True, **QUICK)
    assert counted("with") >= result.count * result.calls_per_sample
    with pytest.raises(TypeError, match=r"^scopes: expected True or False, got 1"):
        gpuprof.benchmark(nap, scopes=1, **QUICK)  # type: ignore[arg-type]


def test_scopes_are_on_again_after_a_benchmark_that_failed() -> None:
    def fail() -> None:
        with_scopes("failed")()
        raise LookupError

    with pytest.raises(LookupError):
        gpuprof.benchmark(fail, **QUICK)
    assert counted("failed") == 0
    with_scopes("failed")()
    assert counted("failed") == 1


def test_a_benchmark_within_a_benchmark_leaves_the_outer_ones_scopes_off() -> None:
    def nested() -> None:
        gpuprof.benchmark(nap, warmup_s=0.0, min_time_s=0.0, min_samples=1, max_time_s=0.001)
        with_scopes("nested")()

    gpuprof.benchmark(nested, warmup_s=0.0, min_time_s=0.0, min_samples=1, max_time_s=0.001)
    assert counted("nested") == 0


def test_scopes_of_other_threads_count_beside_a_benchmark() -> None:
    def beside() -> None:
        thread = threading.Thread(target=with_scopes("beside"))
        thread.start()
        thread.join()

    result = gpuprof.benchmark(beside, **QUICK)
    assert counted("beside") >= result.count


def test_a_scope_around_a_benchmark_counts() -> None:
    with gpuprof.timer("around scope"):
        gpuprof.benchmark(nap, **QUICK)
    assert counted("around") == 1


def test_samples_that_are_alike_widen_the_interval_and_that_is_said() -> None:
    rise = [1.0 + place / 1000 for place in range(200)]
    turns = rise[::2] + rise[1::2][::-1]  # up and down again: the same values
    mixed = random.Random(1).sample(rise, len(rise))
    with api.prepare(nap, **QUICK) as measurer:
        independent, alike = measurer.result(mixed), measurer.result(turns)
    assert independent.independent_samples == 200
    assert alike.independent_samples < 10
    (low, high), (least, most) = alike.interval_ms, independent.interval_ms
    assert low < least < independent.median_ms == alike.median_ms < most < high
    said = "samples that follow each other are alike: 200 of them tell as much as "
    assert any(text.startswith(said) for text in alike.warnings)
    assert not any(text.startswith(said) for text in independent.warnings)
    assert "200 samples (as " in str(alike)


def test_it_measures_on_where_samples_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, level = random.Random(1), [1.0]

    def wandering(_: object) -> float:
        level.append(0.95 * level[-1] + 0.05 + chance.gauss(0.0, 0.01))
        return level[-1]

    monkeypatch.setattr("gpuprof._benchmark.samplers.CpuSampler.sample", wandering)
    options = {**QUICK, "min_samples": 30, "max_time_s": 60.0}
    result = gpuprof.benchmark(nap, rel_precision=0.01, **options)
    assert result.count > 200
    assert result.rel_precision <= 0.01


def test_one_argument_that_was_not_put_into_a_tuple_is_explained() -> None:
    for given in ([3, 1, 2], (3, 1, 2)):
        with pytest.raises(
            TypeError, match=r"^args: these are 3 arguments, which sorted .*\(value,\)$"
        ):
            gpuprof.benchmark(sorted, given)
