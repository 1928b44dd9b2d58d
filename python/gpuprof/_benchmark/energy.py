"""The energy of a call, from the counter of NVML, which has that of the whole GPU.

The counter moves in steps, tens of milliseconds apart. So a block of calls is counted from one step
to another, at least `BLOCK_S` later, with the GPU at work all the time: a reading takes some
milliseconds, in which a batch of calls runs. A block is wrong by one step at most, which is what
the result calls its resolution. The time is the host's, because the counter knows no stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from gpuprof._benchmark.harness import Harness
from gpuprof._benchmark.samplers import DeviceSampler
from gpuprof._common import nvml
from gpuprof._common.nvml import NvmlUnavailable
from gpuprof._common.units import joules, percent
from gpuprof._results import statistics
from gpuprof.errors import GpuprofError, InvalidStateError

BLOCK_S = 0.2  # of the least block
MAX_BLOCK_S = 2.0  # a block ends then, with fewer than `STEPS`
BLOCKS = 3  # of which the median counts
STEPS = 20  # of a block: a step is 5 % of it
STUCK_S = 5.0  # in which a counter that works has moved
BATCH_MS = 10.0  # of work between two readings, longer than a reading
COARSE = 0.1  # a resolution that is worth a warning

_NO_COUNTER = "the GPU has no counter of its energy, as before Volta, and as MIG slices"
_STUCK = f"NVML's counter does not move while the GPU works, within {STUCK_S:g} s or a block"


@dataclass
class _Block:
    """What was counted since a step of the counter, up to the last step."""

    begun: float
    joules: float  # of the counter at its begin
    calls: int = 0
    spent_s: float = 0.0
    used: float = 0.0
    steps: int = 0

    @property
    def done(self) -> bool:
        enough = self.spent_s >= BLOCK_S and self.steps >= STEPS
        return self.steps > 0 and (enough or self.spent_s >= MAX_BLOCK_S)


def check_energy(harness: Harness, uuid: str | None) -> None:
    """Raise the error that there is no energy to measure, before any time is spent."""
    has_setup = harness.work.setup is not None
    if has_setup or harness.mode in {"isolated", "cpu"}:
        how = f"{harness.mode} mode" + ", each after its setup" * has_setup
        message = (
            f"energy: the calls are measured in {how}, and it is that of calls which follow each "
            "other on the GPU; leave energy=True out"
        )
        raise InvalidStateError(message)
    with _counter(uuid) as read:
        read()


@contextmanager
def _counter(uuid: str | None) -> Iterator[Callable[[], float]]:
    """Give what reads the energy of a whole GPU since its driver was loaded, in joules.

    A GpuprofError says why it cannot be read, also of a later reading.
    """
    try:
        with nvml.session() as library:
            handle = nvml.handle_of(library, uuid or "")
            if handle is None:
                message = f"NVML does not know the device {uuid or 'without a UUID'}"
                raise NvmlUnavailable(message)

            def read() -> float:
                millijoules = nvml.ask(library, handle, "nvmlDeviceGetTotalEnergyConsumption")
                if millijoules is None:
                    raise NvmlUnavailable(_NO_COUNTER)
                return float(millijoules) * 1e-3

            yield read
    except NvmlUnavailable as error:
        message = f"energy: it cannot be measured: {error}"
        raise GpuprofError(message) from None


def energy_of_call(harness: Harness, uuid: str | None, median_ms: float) -> dict[str, float]:
    """Run the function for some seconds more, and return `BenchResult.energy`."""
    ranks, sampler = harness.ranks, harness.sampler
    assert isinstance(sampler, DeviceSampler)  # check_energy() has refused the others
    times = max(1, round(BATCH_MS / max(median_ms * sampler.calls, 1e-3)))
    run = partial(sampler.run, ranks.decide("the energy", times))
    with _counter(uuid) as read:
        _counted(run, read, lambda block: ranks.decide("the energy", block.steps > 0))
        blocks = [
            _counted(run, read, lambda block: ranks.decide("the energy", block.done))
            for _ in range(BLOCKS)
        ]
        sampler.run(0)  # waits
    step = statistics.median([block.used / block.steps for block in blocks])
    resolution = 1.0 / min(block.steps for block in blocks)
    if resolution > COARSE:
        harness.work.warn(
            f"the energy of a call is known to {percent(resolution, 2)} only, because the GPU's "
            f"counter moves in steps of {joules(step)}"
        )
    return {
        "joules": statistics.median([block.used / block.calls for block in blocks]),
        "watts": statistics.median([block.used / block.spent_s for block in blocks]),
        "resolution": resolution,
        "step_joules": step,
        "block_s": statistics.median([block.spent_s for block in blocks]),
    }


def _counted(
    run: Callable[[], int], read: Callable[[], float], done: Callable[[_Block], bool]
) -> _Block:
    """Run until `done`; the block begins now, at the end of the last one, which was at a step.

    One batch is under way at its begin, and one as large at its end.
    """
    block, calls = _Block(perf_counter(), read()), 0
    last = block.joules
    while not done(block):
        calls += run()
        now = read()
        if now != last:
            last, block.steps = now, block.steps + 1
            block.calls, block.used = calls, now - block.joules
            block.spent_s = perf_counter() - block.begun
        elif perf_counter() - block.begun > block.spent_s + STUCK_S:
            raise NvmlUnavailable(_STUCK)
    if not block.steps:  # rank 0 had enough
        raise NvmlUnavailable(_STUCK)
    return block
