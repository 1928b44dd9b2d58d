"""What a class gets from one table and one list of records, and what it must have for it."""

from __future__ import annotations

import pytest

from gpuprof._display.shown import Exported, Shown


@pytest.mark.parametrize(("kind", "missing"), [(Shown, "_table"), (Exported, "_records")])
def test_a_class_without_its_table_or_records_fails_when_it_is_made(
    kind: type, missing: str
) -> None:
    class Found(kind):  # type: ignore[misc]
        __slots__ = ()

    with pytest.raises(TypeError, match=rf"abstract.*{missing}"):
        Found()
