"""Small projects that are tested with the pytest plugin, where the times are made up.

As a plugin of the inner session (of ``PYTEST_PLUGINS``) this module replaces
what measures: a test's times come from ``times.json`` in its folder, so that no verdict depends on
the machine.

PYTEST_DONT_REWRITE: the outer session has imported it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpuprof import BenchResult, GpuBenchmark
from gpuprof._benchmark import api, rounds
from gpuprof.results import Launches

if TYPE_CHECKING:
    from typing_extensions import Self

CPU_MACHINE = {"gpu": None, "cpu": "Test CPU", "cpus": 2, "python": "3"}
GPU_MACHINE = {**CPU_MACHINE, "gpu": "Test GPU", "gpu_uuid": "GPU-1", "sms": 8, "driver": "1.0"}
TIMES = "times.json"
CALLS = "calls.jsonl"
COMPARE = "--gpu-benchmark-compare=main"
TWO_TESTS = """
def test_a(gpu_benchmark):
    gpu_benchmark(sum, [1])

def test_b(gpu_benchmark):
    gpu_benchmark(sum, [1])
"""


def marked(test: str, arguments: str) -> str:
    """Return `TWO_TESTS` with a marker on those whose name begins so."""
    marker = f"@pytest.mark.gpu_benchmark({arguments})"
    return f"import pytest\n{TWO_TESTS}".replace(f"def {test}", f"{marker}\ndef {test}")


def made_up(median_ms: float, count: int = 45, **fields: Any) -> BenchResult:
    """Return a result with that median and a spread of 1 %."""
    order = [*range(0, count, 2), *range(1, count, 2)]
    steps = [(place + 0.5) / count - 0.5 for place in order]
    values: dict[str, Any] = {
        "samples_ms": [median_ms * (1 + 0.01 * s) for s in steps],
        "name": "made up",
        "mode": "cpu",
        "requested_mode": "auto",
        "clock": "cpu",
        "l2": "n/a",
        "machine": CPU_MACHINE,
        **fields,
    }
    return BenchResult(**{**values, "samples_ms": tuple(values["samples_ms"])})


class _Measuring:
    """Stands for `gpuprof._benchmark.api` in one session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._taken: dict[str, int] = {}
        self.real_rounds = rounds.measure_rounds

    def benchmark(self, *call: Any, **options: Any) -> BenchResult:
        measurer = self.prepare(*call, **options)
        measurer.sample()
        return measurer.result([1.0] * 45)

    def prepare(
        self,
        fn: Any,
        args: Any,
        kwargs: Any,
        *,
        name: str,
        setup: Any = None,
        **options: Any,
    ) -> _Measurer:
        with (self._folder / CALLS).open("a", encoding="utf-8") as calls:
            calls.write(json.dumps({"name": name, **options}, default=repr) + "\n")
        plan = json.loads((self._folder / TIMES).read_text(encoding="utf-8"))
        test = name.rpartition("::")[2]
        times = plan.get(test, plan["*"])
        turn = self._taken.get(test, 0)
        median = times[min(turn, len(times) - 1)]
        peaks = plan.get("memory", {}).get(test, [])
        if peaks:
            memory = {"peak_bytes": peaks[min(turn, len(peaks) - 1)], "change_bytes": 0}
            plan["fields"]["memory"] = memory
        planned = plan.get("launches", {}).get(test, [])
        if planned:
            plan["fields"]["launches"] = planned[min(turn, len(planned) - 1)]
        self._taken[test] = self._taken.get(test, 0) + 1

        def call() -> None:
            made = setup() if setup else None
            positional, named = made if made is not None else (args, kwargs)
            fn(*positional, **named)

        return _Measurer(call, median, {**plan["fields"], "name": name})

    def measure_rounds(
        self, call: Any, options: Any, counts: Any, warm: Any
    ) -> tuple[Any, BenchResult]:
        """Make the calls; only their times are made up."""
        value, taken = self.real_rounds(call, options, counts, warm)
        measurer = self.prepare(*call, calls=counts[-1], **options)
        fields = {**measurer.fields, "calls_per_sample": taken.calls_per_sample}
        return value, made_up(measurer.median_ms, taken.count, **fields)


@dataclass
class _Measurer:
    """Stands for `gpuprof._benchmark.loop.Measurer`."""

    call: Callable[[], None]
    median_ms: float
    fields: dict[str, Any]

    def sample(self) -> float:
        self.call()
        return self.median_ms

    def measure(self, least: int = 0) -> BenchResult:
        self.call()
        return made_up(self.median_ms, max(least, 45), **self.fields)

    def result(self, samples: list[float]) -> BenchResult:
        return made_up(self.median_ms, len(samples), **self.fields)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def replaced(folder: Path) -> Iterator[None]:
    from gpuprof._pytest import fresh_process

    with pytest.MonkeyPatch.context() as patch:
        measuring = _Measuring(folder)
        # Another process takes what would be the next measurement in this one.
        patch.setattr(
            fresh_process,
            "measure",
            lambda _, key: measuring.benchmark(lambda: None, (), {}, name=key),
        )
        patch.setattr(api, "benchmark", measuring.benchmark)
        patch.setattr(api, "prepare", measuring.prepare)
        patch.setattr(rounds, "measure_rounds", measuring.measure_rounds)
        yield


def pytest_configure(config: pytest.Config) -> None:
    context = replaced(config.rootpath)
    context.__enter__()
    config.add_cleanup(lambda: context.__exit__(None, None, None))


def fixture_of(test: str, storage: Path, **settings: Any) -> GpuBenchmark:
    """Return the fixture of a test outside of any session; a warning of its fails the caller."""
    from gpuprof._pytest.settings import MARKER_ARGUMENTS, Settings

    item: Any = SimpleNamespace(name=test, warn=lambda warning: pytest.fail(str(warning)))
    return GpuBenchmark(item, test, Settings(storage=storage, **settings), MARKER_ARGUMENTS)


class Project:
    """A folder of tests, and how it is tested."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        pytester.makeini("[pytest]\n")
        self.times(1.0)

    def times(self, *every: float, fields: dict[str, Any] | None = None, **tests: Any) -> None:
        """Say what the tests take, in milliseconds; a list for the first and later measurements."""
        plan: dict[str, Any] = {"*": list(every) or [1.0], "fields": fields or {}}
        plan.update({name: [t] if isinstance(t, float) else t for name, t in tests.items()})
        (self.path / TIMES).write_text(json.dumps(plan), encoding="utf-8")

    def plan(self) -> dict[str, Any]:
        """Return what was last said of the tests' times."""
        plan: dict[str, Any] = json.loads((self.path / TIMES).read_text(encoding="utf-8"))
        return plan

    def memory(self, **tests: int | list[int]) -> None:
        """Say what the tests' peak memory is, in MiB; a list for the first and later ones."""
        self._add("memory", tests, lambda mib: mib << 20)

    def launches(self, *, versions: dict[str, str] | None = None, **tests: Any) -> None:
        """Say which kernels the tests launch, by name; a list for the first and later times."""
        self._add("launches", tests, lambda each: Launches(each, versions=versions or {}).to_dict())

    def _add(self, what: str, tests: dict[str, Any], told: Callable[[Any], Any]) -> None:
        plan = self.plan()
        plan[what] = {
            name: [told(each) for each in (times if isinstance(times, list) else [times])]
            for name, times in tests.items()
        }
        (self.path / TIMES).write_text(json.dumps(plan), encoding="utf-8")

    def on_gpu(self, *every: float, mode: str = "graph", **machine: Any) -> None:
        """Let the tests be measured on a GPU."""
        fields = {"mode": mode, "clock": "cuda", "l2": "hot", "machine": {**GPU_MACHINE, **machine}}
        self.times(*every, fields=fields)

    def calls(self) -> list[dict[str, Any]]:
        """Return what the measurer was asked for since the last time."""
        path = self.path / CALLS
        if not path.exists():
            return []
        calls = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        path.unlink()
        return calls

    def run(self, *arguments: str) -> pytest.RunResult:
        """Test it in this process, with the made-up times."""
        arguments = ("-p", "no:cacheprovider", *arguments)
        with pytest.MonkeyPatch.context() as patch:
            # For each -p pytest reads what all installed packages say of their plugins.
            patch.setenv("PYTEST_PLUGINS", "gpuprof._pytest.plugin,tests.support.pytest_projects")
            return self.pytester.runpytest_inprocess(*arguments, no_reraise_ctrlc=True)

    def check(self, *arguments: str, **outcomes: int) -> pytest.LineMatcher:
        """Test it; it must have these outcomes. Return what it prints."""
        done = self.run(*arguments)
        done.assert_outcomes(**outcomes)
        return done.stdout

    def refuse(self, *arguments: str) -> pytest.LineMatcher:
        """Have arguments refused before anything is measured. Return what is said of them."""
        done = self.run(*arguments)
        assert done.ret == pytest.ExitCode.USAGE_ERROR
        assert self.calls() == []
        return done.stderr

    def saved(self, name: str = "main") -> dict[str, list[Any]]:
        """Return the runs of a baseline by machine."""
        from gpuprof._results.git_store import opened

        return opened(self.path / ".gpuprof").runs(name)

    def written(self, file: str = "out.json") -> Any:
        """Return the content of a JSON file."""
        return json.loads((self.path / file).read_text(encoding="utf-8"))

    def save_runs(self, count: int = 5, name: str = "main") -> None:
        """Store a run of the tests, as often as a baseline wants runs."""
        from gpuprof._results.git_store import opened

        done = self.run(f"--gpu-benchmark-save={name}")
        assert done.ret == 0, done.stdout.str()
        for (run,) in self.saved(name).values():
            for _ in range(count - 1):
                opened(self.path / ".gpuprof").append(name, run)
        self.calls()
