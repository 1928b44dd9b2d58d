"""Everything that a user can do with the driver through gpuprof, one small scenario each.

The sweep, the soak and the fault tests run all of them, so that a new part of the public API is
covered by adding a row. A scenario gets a `Stage`; what it does with gpuprof are public calls. Its
own driver calls stand inside ``with stage.aside():``, where no fault is injected.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import gpuprof
from gpuprof import _core
from tests.fake_driver.control import FakeCuda

US = 1_000


@dataclass
class Stage:
    """The fake driver with a current context, and a stream of it."""

    fake: FakeCuda
    stream: int

    @contextmanager
    def aside(self) -> Iterator[FakeCuda]:
        """Let the block's driver calls pass untouched and uncounted."""
        with self.fake.spared():
            yield self.fake

    def work(self, ns: int = 20 * US) -> None:
        with self.aside() as fake:
            fake.work(self.stream, ns)


Scenario = Callable[[Stage], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


@scenario
def scope_on_a_stream(stage: Stage) -> None:
    with gpuprof.timer("scenario", stream=stage.stream, backend="cuda") as sample:
        stage.work()
    assert sample.ms > 0.019


@scenario
def scope_on_the_current_stream(stage: Stage) -> None:
    with gpuprof.timer("scenario", backend="cuda") as sample:
        pass
    assert sample.ms >= 0.0


@scenario
def nested_scopes_read_through_the_statistics(stage: Stage) -> None:
    with gpuprof.timer("outer", stream=stage.stream, backend="cuda"):
        for _ in range(3):
            with gpuprof.timer("inner", stream=stage.stream, backend="cuda"):
                stage.work()
    row = gpuprof.stats()["outer/inner"]
    assert row.gpu.count + row.failed + row.dropped == 3


@scenario
def scopes_that_are_only_flushed(stage: Stage) -> None:
    scope = gpuprof.timer("scenario", stream=stage.stream, backend="cuda")
    for _ in range(18):
        with scope:
            stage.work()
    gpuprof.flush()


@scenario
def scopes_that_are_listened_to(stage: Stage) -> None:
    heard: list[bool] = []
    scope = gpuprof.timer("scenario", stream=stage.stream, backend="cuda")
    with gpuprof.on_sample(lambda samples: heard.extend(each.failed for each in samples)) as handle:
        for _ in range(18):
            with scope:
                stage.work()
        row = gpuprof.stats()["scenario"]
    assert handle.error is None
    assert (heard.count(False), heard.count(True)) == (row.gpu.count, row.failed)


@scenario
def a_sample_that_is_polled(stage: Stage) -> None:
    with gpuprof.timer("scenario", stream=stage.stream, backend="cuda") as sample:
        stage.work()
    while not sample.ready and sample.state == "pending":
        pass
    assert sample.try_ms() is not None or sample.failed


@scenario
def a_body_that_raises(stage: Stage) -> None:
    mine = KeyError("mine")
    unchanged = False
    scope = gpuprof.timer("scenario", stream=stage.stream, backend="cuda")
    try:
        with scope:
            stage.work()
            raise mine
    except KeyError as error:
        unchanged = error is mine
    del mine  # its traceback holds this frame, and so the scope
    assert unchanged
    gpuprof.flush()


@scenario
def verified_stream(stage: Stage) -> None:
    with gpuprof.timer(
        "scenario", stream=stage.stream, backend="cuda", verify_stream=True
    ) as sample:
        stage.work()
    assert sample.ms > 0.019


@scenario
def timer_pair(stage: Stage) -> None:
    timer = gpuprof.Timer("cuda", stage.stream)
    try:
        for _ in range(2):
            timer.record_start()
            stage.work()
            timer.record_end()
            assert timer.elapsed_ms() > 0.019
    finally:
        timer.close()


@scenario
def probe(stage: Stage) -> None:
    timer = gpuprof.start_probe_timer_if(True, stage.stream, "cuda")
    stage.work()
    microseconds = gpuprof.finish_probe_timer(timer)
    assert microseconds is not None
    assert microseconds > 19


@scenario
def scope_inside_somebodys_capture(stage: Stage) -> None:
    with stage.aside() as fake:
        fake.begin_capture(stage.stream)
    try:
        with gpuprof.timer("scenario", stream=stage.stream, backend="cuda"):
            stage.work()
    finally:
        with stage.aside() as fake:
            fake.graph_destroy(fake.end_capture(stage.stream))


@contextmanager
def captured(stage: Stage) -> Iterator[None]:
    """Capture the block into a graph, replay that once, and let it go."""
    with stage.aside() as fake:
        fake.begin_capture(stage.stream)
    try:
        yield
    finally:
        with stage.aside() as fake:
            graph = fake.end_capture(stage.stream)
            launched = fake.instantiate(graph)
            fake.graph_launch(launched, stage.stream)
            fake.stream_synchronize(stage.stream)
            fake.exec_destroy(launched)
            fake.graph_destroy(graph)


@scenario
def scope_recorded_into_a_capture(stage: Stage) -> None:
    scope = gpuprof.timer("scenario", stream=stage.stream, backend="cuda", in_capture="record")
    with captured(stage), scope as sample:
        stage.work()
    assert sample.ms > 0.019


@scenario
def calibration(stage: Stage) -> None:
    assert gpuprof.calibrate().tick_ns > 0


@scenario
def what_there_is(stage: Stage) -> None:
    assert gpuprof.backends()["cuda"].reason
    assert _core.devices()[0]["name"] == "Fake GPU"


@scenario
def filling_device_memory(stage: Stage) -> None:
    buffer = _core.DeviceBuffer(1 << 16)
    buffer.fill(2)


@scenario
def work_behind_a_gate(stage: Stage) -> None:
    gate = _core._Gate(stage.stream)
    gate.close(60.0)
    stage.work()
    assert gate.open()
    _core._synchronize(stage.stream)


@scenario
def scopes_in_a_trace(stage: Stage) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        with gpuprof.trace(path):
            for _ in range(2):
                with gpuprof.timer("scenario", stream=stage.stream, backend="cuda"):
                    stage.work()
        events = json.loads(path.read_text())["traceEvents"]
    # The host's part is there whatever the driver does.
    assert [e["name"] for e in events if e.get("cat") == "scope"] == ["scenario"] * 2


# Rows of their own file; here, because they need what stands above.
from tests.support import scenarios_graphs as _scenarios_graphs  # noqa: E402, F401
