"""Whatever ranks have left in the store, and whenever: each rank says what is wrong with which.

For longer: ``GPUPROF_FUZZ=N``, see `tests/support/fuzzing.py`.
"""

from __future__ import annotations

import json
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuprof
from gpuprof import distributed
from tests.support.fuzzing import VALUES, attempt, bounded, dumped, nearly
from tests.support.rank_store import MemoryStore, Ranks, gpu_row, row

ROWS = [row("step", 3.0), gpu_row("step/fwd", 2.0, 1.0), row("step/collective/all_reduce", 1.0)]


def read(message: bytes) -> tuple[bytes, list[bytes]]:
    """Return the head of what a rank wrote, and its two parts of JSON."""
    head, _, body = message.partition(b"\n")
    inflate = zlib.decompressobj()
    return head + b"\n", [inflate.decompress(body), zlib.decompress(inflate.unused_data)]


@bounded(150)
@given(data=st.data())
def test_a_message_is_in_the_table_or_left_out(
    data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, store = Ranks(monkeypatch, 3), MemoryStore()
    for rank in (1, 2):
        ranks.be(rank, ROWS)
        assert distributed.gather_stats(store=store) is None
    keys = [key for key in store.values if key.endswith(("/1", "/2"))]
    head, parts = read(store.values[keys[0]])
    some = [data.draw(nearly(json.loads(part)).map(dumped) | VALUES.map(dumped)) for part in parts]
    message = head + b"".join(map(zlib.compress, some))
    message = data.draw(st.just(message) | st.binary(max_size=40).map(head.__add__))
    store.values |= dict.fromkeys(keys, message)
    ranks.be(0, ROWS)
    found = distributed.gather_stats(store=store)
    assert found is not None
    assert {*found.ranks, *found.left_out} == {0, 1, 2}
    for form in (str(found), found._repr_html_(), found.to_markdown(), found.to_csv()):
        form.encode()
    json.loads(found.to_json(), parse_constant=pytest.fail)
    if 2 in found.ranks:
        stats, refusal = attempt(lambda: found.stats(2), ValueError)
        assert str(stats) if not refusal else "damaged" in refusal


def told(monkeypatch: pytest.MonkeyPatch, checks: int, message: bytes) -> str:
    """Return what rank 1 says at the end of its time; rank 0's message comes after some looks."""
    ranks, store, looks = Ranks(monkeypatch, 2), MemoryStore(), []
    ranks.be(1)

    def before(call: str, key: str) -> None:
        if call == "check":
            looks.append(key)
            if len(looks) > checks:
                store.values[key] = message

    store.before = before
    find = sys.modules["gpuprof._distributed.world"].find
    module = "gpuprof._distributed.lockstep"
    monkeypatch.setattr(f"{module}.distributed", lambda: True)
    monkeypatch.setattr(f"{module}.find", lambda call: find(call, store))
    monkeypatch.setattr(f"{module}.timeout_s", lambda: 0.0)
    with pytest.raises(gpuprof.errors.InvalidStateError) as raised:
        gpuprof.benchmark(abs, (1,))
    return str(raised.value)


STOPPED = b'[null, "ValueError: no more"]'


@pytest.mark.parametrize("checks", [0, 1])
def test_a_value_that_comes_as_the_time_ends_is_read(
    monkeypatch: pytest.MonkeyPatch, checks: int
) -> None:
    assert told(monkeypatch, checks, STOPPED) == "rank 0 has stopped: ValueError: no more"


def test_a_rank_without_a_value_is_named_when_the_time_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "rank 1 has waited 0 s for rank 0, which is not there" in told(monkeypatch, 2, STOPPED)


@pytest.mark.parametrize("message", [b"", b"\xff", b"[1]", b"7", b"[1, null, 2]", b'{"a": 1}'])
def test_a_damaged_value_stops_the_rank_that_reads_it(
    monkeypatch: pytest.MonkeyPatch, message: bytes
) -> None:
    said = "rank 0 has stopped: what it wrote for the others is damaged"
    assert told(monkeypatch, 0, message) == said
