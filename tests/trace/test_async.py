"""Traces in ``async with``, which begins and closes them as ``with`` does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import gpuprof
from tests.support.trace_events import files, names


def test_a_block_is_a_trace(tmp_path: Path) -> None:
    async def main() -> None:
        async with gpuprof.trace(tmp_path / "block.json") as writer:
            assert isinstance(writer, gpuprof.TraceWriter)
            async with gpuprof.timer("block"):
                await asyncio.sleep(0)
        with pytest.raises(ValueError, match="body"):
            async with gpuprof.trace_windows(tmp_path / "w.json", schedule=(0, 0, 1, 1)):
                raise ValueError("body")

    asyncio.run(main())
    assert files(tmp_path) == {"block.json", "w.1.json"}
    assert names(tmp_path / "block.json") == ["block"]
