"""Whatever ranks have left in the store: rank 0 has a table, and says why a rank is not in it.

For longer: ``GPUPROF_FUZZ=N``, see `tests/support/fuzzing.py`.
"""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
