"""Random programs through capture and replay give what they give eagerly.

`python -m tests.gpu.support.fuzz SEED` shows the program of a failure and runs it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.frameworks import torch_or_skip
from tests.gpu.support.fuzz import captured, check, graphed, without_gradients
from tests.gpu.support.fuzz_programs import SIDES, Program

PROGRAMS = 200
AT_ONCE = 10


@pytest.fixture
def torch() -> Iterator[Any]:
    torch = torch_or_skip()
    with without_gradients(torch):
        yield torch


@pytest.mark.parametrize("how", [captured, graphed])
@pytest.mark.parametrize("first", range(0, PROGRAMS, AT_ONCE))
def test_programs_give_what_they_give_eagerly(torch: Any, first: int, how: Any) -> None:
    sides = [torch.cuda.Stream() for _ in range(SIDES)]
    for seed in range(first, first + AT_ONCE):
        program = Program(torch, seed, "cuda")
        check(program, how(gpuprof, program, sides), sides=sides)
        torch.cuda.synchronize()  # before what other streams use is let go
