"""A result of a benchmark, for the tests of the pages that show results."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def result(results: Any) -> Any:
    rows = [
        results.Row("raw pair", 1500.0, "ns", median=1600.0),
        results.Row("scope", 1800.0, "ns", 1900.0, "raw pair", 1.2, 1.19, target=1.4),
        results.Row("disabled | off", 90.0, "ns", 91.0, "raw pair", 0.06, 0.06, target=0.05),
        results.Row("import", 31.5, "ms", target=40.0),
    ]
    return results.Result(
        script="timing_scope_overhead",
        date="2026-01-31",
        machine={"gpu": "Some GPU", "driver": "580.1", "cpu": "Some CPU", "os": "Linux"},
        versions={"python": "3.12.3", "gpuprof": "0.1.0"},
        rows=rows,
        notes=["a note"],
    )
