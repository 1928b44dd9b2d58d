"""How long tests with random input run: briefly and always alike, or as long as one likes.

``GPUPROF_FUZZ=N`` takes N times as many examples, and others in each run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("GPUPROF_FUZZ", "0"))


def bounded(examples: int, *, steps: int = 50) -> settings:
    """Return the settings of a test that takes so many examples where nothing else is asked for."""
    return settings(
        max_examples=examples * max(TIMES, 1),
        stateful_step_count=steps,
        derandomize=not TIMES,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
