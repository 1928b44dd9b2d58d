"""Decode loops behind graphs on a GPU: the same tokens as without, and no capture meanwhile."""

from __future__ import annotations

import copy
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support.frameworks import torch_or_skip

PAGE = Path(__file__).resolve().parents[3] / "docs" / "integrations" / "decode.md"
SIZES = (1, 2, 4, 8)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the page's script has left; it runs as it is."""
    torch_or_skip()
    found = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    path = tmp_path_factory.mktemp("page") / "decode.py"
    path.write_text(found[1], encoding="utf-8")
    return runpy.run_path(str(path))


def decoders(page: dict[str, Any], **options: Any) -> tuple[Any, Any, Any]:
    """Return torch, an eager decoder and the graphs of another one with the same weights."""
    import torch

    torch.manual_seed(0)
    eager = page["Decoder"](sequences=16).to("cuda").eval()
    zeros = torch.zeros(SIZES[-1], dtype=torch.long, device="cuda")
    graphs = page["decode_graphs"](copy.deepcopy(eager), (zeros,) * 3, SIZES, **options)
    return torch, eager, graphs


def test_the_script_of_the_page_replays_every_token(page: dict[str, Any]) -> None:
    stats = page["decode"].stats()
    assert page["steps"] == 10
    assert stats.captures == 4
    assert stats.padded_calls >= 3
    assert stats.failures == 0


def test_sequences_that_come_and_go_get_the_tokens_that_the_step_gives(
    page: dict[str, Any],
) -> None:
    import torch

    with torch.no_grad():
        torch, eager, graphs = decoders(page)
        before = graphs.stats()
        # Two caches: each decoder sees the tokens of its own.
        states = [
            {row: (row, 0) for row in range(1, 4)},  # row of the cache: (token, position)
            {row: (row, 0) for row in range(1, 4)},
        ]
        for step in range(40):
            for state, decode in zip(states, (eager, graphs), strict=True):
                if step % 3 == 0 and len(state) < SIZES[-1]:
                    state[max(state, default=0) % 15 + 1] = (step, 0)
                if step % 7 == 6:
                    state.pop(min(state))
                rows = list(state)
                tokens, positions = (
                    torch.tensor([state[row][part] for row in rows], device="cuda")
                    for part in (0, 1)
                )
                found = decode(tokens, positions, torch.tensor(rows, device="cuda")).tolist()
                state.update(
                    {
                        row: (token, state[row][1] + 1)
                        for row, token in zip(rows, found, strict=True)
                    }
                )
            assert states[0] == states[1], f"step {step}"
        stats = graphs.stats()
    assert (stats.captures, stats.eager_calls) == (before.captures, before.eager_calls)
    assert stats.padded_calls > before.padded_calls


def test_padding_writes_to_row_0_of_the_cache_alone(page: dict[str, Any]) -> None:
    import torch

    with torch.no_grad():
        torch, _, graphs = decoders(page)
        model = graphs.eager
        model.cache.fill_(7.0)
        numbers = torch.tensor([1, 2, 3], device="cuda")
        graphs(numbers, numbers, numbers)
        changed = (model.cache != 7.0).flatten(3).any(3).any(0).nonzero().tolist()
    assert changed == [[0, 0], [1, 1], [2, 2], [3, 3]]


def test_arguments_that_are_views_of_one_tensor(page: dict[str, Any]) -> None:
    import torch

    with torch.no_grad():
        torch, eager, graphs = decoders(page)
        both = torch.tensor([[3, 1, 2], [0, 0, 0], [1, 2, 3]], device="cuda")
        assert torch.equal(graphs(*both), eager(*both))
        one = both[2]
        assert torch.equal(graphs(one, one, one), eager(one, one, one))
        columns = both.T.contiguous().T
        assert torch.equal(graphs(*columns), eager(*columns))


def test_it_can_be_verified(page: dict[str, Any]) -> None:
    import torch

    with torch.no_grad():
        torch, eager, graphs = decoders(page, verify=1, outputs="static")
        for batch in (8, 5, 3, 1, 2):
            numbers = torch.arange(1, batch + 1, device="cuda")
            assert torch.equal(graphs(numbers, numbers, numbers), eager(numbers, numbers, numbers))
