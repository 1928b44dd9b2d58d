"""A library as small as can be, with something to measure."""

from __future__ import annotations

import json
from collections.abc import Sequence


def ranks(values: Sequence[float]) -> list[int]:
    """Return the place that each value has among all, from the smallest on."""
    places = {value: place for place, value in enumerate(sorted(values))}
    return [places[value] for value in values]


def dump(values: Sequence[float]) -> str:
    """Return the values as text."""
    return json.dumps(list(values))
