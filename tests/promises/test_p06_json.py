"""P6: what is written as JSON is strict JSON, whatever the names and values are."""

from __future__ import annotations

import json
from typing import NoReturn

import pytest

import gpuprof

HOSTILE = [
    '"',
    "\\",
    "\n\r\t\x00\x1f\x7f",
    "\ud800",
    "\u2028\u2029",
    "\u202e",
    "</script>",
    "é😀",
    "x" * 10_000,
]


def _refuse(constant: str) -> NoReturn:
    message = f"{constant} is no JSON"
    raise ValueError(message)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_statistics_of_a_hostile_name(name: str) -> None:
    with gpuprof.timer(name, backend="cpu") as sample:
        pass
    text = gpuprof.stats().to_json()
    parsed = json.loads(text.encode("utf-8"), parse_constant=_refuse)
    assert len(parsed["rows"]) == 1
    assert len(json.dumps(sample.to_dict(), allow_nan=False).encode()) < 40_000


def test_values_that_json_has_no_form_for() -> None:
    gpuprof.disable()
    with gpuprof.timer("off") as sample:
        pass
    parsed = json.loads(json.dumps(sample.to_dict(), allow_nan=False), parse_constant=_refuse)
    assert parsed["ms"] is None
