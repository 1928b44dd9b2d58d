"""JAX's work: the arrays in a structure, and the wait for all that is alive.

JAX gives nobody the streams that its work runs on, so a wait for arrays is all that can be done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, cast


def wait_for_all(jax: Any) -> None:
    """Wait for every array that is alive, and for side effects.

    Work whose results nobody holds is not waited for. A failure of the work is not raised here; JAX
    raises it where the result is used.
    """
    with contextlib.suppress(Exception):
        jax.effects_barrier()
    arrays = jax.live_arrays()
    try:
        jax.block_until_ready(arrays)
    except Exception:  # of one that failed, or that another thread has donated: the rest counts
        for array in arrays:
            with contextlib.suppress(Exception):
                array.block_until_ready()


def leaves(jax: Any, tree: Any) -> list[Any]:
    """Return what is in a structure, also in dicts whose keys JAX cannot sort.

    Parameters
    ----------
    jax : module
        JAX.
    tree : Any
        Any nesting of containers that JAX knows. Of one that it does not know, itself.

    Returns
    -------
    list
        The leaves, in no order that means anything.
    """
    try:
        return cast("list[Any]", jax.tree_util.tree_leaves(tree))
    except ValueError:  # a dict, in some place, with keys that are not sorted
        parts = tree.values() if isinstance(tree, dict) else tree
    parts = parts if isinstance(parts, Iterable) else ()
    return [leaf for part in parts for leaf in leaves(jax, part)]
