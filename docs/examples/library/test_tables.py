"""What the library must do, and how long that takes: ``gpu_benchmark`` measures what it calls."""

from __future__ import annotations

import random
from typing import Any

import tables

VALUES = random.Random(1).sample(range(10_000), 1_000)


def test_ranks(gpu_benchmark: Any) -> None:
    assert gpu_benchmark(tables.ranks, VALUES)[VALUES.index(min(VALUES))] == 0


def test_dump(gpu_benchmark: Any) -> None:
    assert gpu_benchmark(tables.dump, VALUES).count(",") == len(VALUES) - 1
