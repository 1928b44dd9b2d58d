"""How long tests with random input run: briefly and always alike, or as long as one likes.

``GPUPROF_FUZZ=N`` takes N times as many examples, and others in each run.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TIMES = int(os.environ.get("GPUPROF_FUZZ", "0"))


def bounded(examples: int, *, steps: int = 50) -> settings:
    """Return the settings of a test that takes so many examples where nothing else is asked for."""
    return settings(
        max_examples=examples * max(TIMES, 1),
        stateful_step_count=steps,
        derandomize=not TIMES,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


# What JSON can hold, and what Python's writes besides.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([1e308, 2**63, 10**400, "2026", "\ud800", ""])
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Return each place in plain data: what holds a value, and its key there."""
    found = []
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        found.append((data, key))
        if isinstance(value, (dict, list)):
            found += places(value)
    return found


@st.composite
def nearly(draw: st.DrawFn, data: Any) -> Any:
    """Return plain data with other values at up to three places, or none there."""
    made = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(places(made) or [({"": 0}, "")]))
        if draw(st.integers(0, 5)) == 0:
            del holder[key]
        else:
            holder[key] = draw(VALUES)
    return made


def dumped(data: Any) -> bytes:
    return json.dumps(data).encode()


def raw(data: Any) -> st.SearchStrategy[bytes]:
    """Return bytes: any, any JSON, or nearly that of `data`; some are cut off."""
    whole = st.binary(max_size=99) | VALUES.map(dumped) | nearly(data).map(dumped)
    return whole | st.tuples(whole, st.floats(0, 1)).map(
        lambda each: each[0][: int(each[1] * len(each[0]))]
    )


def attempt(use: Callable[[], Any], refusal: type[Exception]) -> tuple[Any, str]:
    """Return what a call gives; or None, and the text of the one error that it may raise."""
    try:
        return use(), ""
    except refusal as error:
        text = str(error)
    assert len(text) < 1000
    return None, text
