"""The ranks that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.rank_pool import RankPool


@pytest.fixture(scope="package")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    pytest.importorskip("torch", reason="torch is not installed")
    with RankPool(tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks
