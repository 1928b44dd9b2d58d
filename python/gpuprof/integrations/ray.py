"""Ray: the statistics of many actors in one table, and their traces in one file."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._common import checks
from gpuprof._distributed import wire
from gpuprof._distributed.files import FileState, RankMerge, begin_file, end_file, merge_files
from gpuprof._distributed.ranks import RankStats
from gpuprof._timing.scope import stats
from gpuprof._trace import path as trace_path


def gather_stats(actors: Sequence[Any], timeout_s: float = 60.0) -> RankStats:
    """Return the statistics of all actors as one table, in which rank n is the n-th actor.

    After `timeout_s` seconds an actor is `missing` in it; a dead one is `left_out`, with the
    reason.
    """
    answers = _ask(actors, timeout_s, _packed)
    result = RankStats(tuple(range(len(actors))))
    for number, answer in answers.items():
        if isinstance(answer, bytes):
            result.add(number, answer)
        else:
            result.left_out[number] = str(answer)
    return result


@contextlib.contextmanager
def trace(actors: Sequence[Any], path: Any, timeout_s: float = 60.0) -> Iterator[list[RankMerge]]:
    """Trace each actor for a block, and merge the files into one; rank n is the n-th actor.

    The actors' files have ``.rank0``, ``.rank1`` before the suffix. What was merged, and who is
    missing, is in the block's list at its end. Get the results of the actors' calls before that.
    """
    _check(actors, timeout_s)
    each, whole = map(trace_path.absolute, trace_path.of_ranks(checks.path("path", path)))
    trace_path.expand(whole)  # which says what is wrong with it
    begun = _ask(actors, timeout_s, _begin, each, len(actors))
    found: list[RankMerge] = []
    try:
        yield found
    except BaseException:
        timeout_s = min(timeout_s, 5.0)
        raise
    finally:
        both = (begun, _ask(actors, timeout_s, _end, each))
        states = {n: s for part in both for n, s in part.items() if isinstance(s, FileState)}
        found.append(merge_files(states, range(len(actors)), trace_path.expand(whole)))
        if found[0].missing or found[0].cut:  # the second frame outside is contextlib's
            warnings.warn(
                f"gpuprof: {found[0]}", RuntimeWarning, stacklevel=checks.level_outside() + 1
            )


def _check(actors: Any, timeout_s: float) -> None:
    is_list = isinstance(actors, Sequence) and len(actors) > 0
    if not is_list or not all(hasattr(actor, "__ray_call__") for actor in actors):
        raise checks.type_error(actors, "actors", "a list with the handles of Ray actors")
    checks.number("timeout_s", timeout_s, 0, checks.MOST_S)


def _ask(actors: Sequence[Any], timeout_s: float, call: Any, *args: Any) -> dict[int, Any]:
    """Return what a function returns on each actor that answers in time, or an error as text."""
    _check(actors, timeout_s)
    ray, answers = importlib.import_module("ray"), {}
    with contextlib.suppress(Exception):  # Ray was shut down: nobody answers
        refs = {actor.__ray_call__.remote(call, n, *args): n for n, actor in enumerate(actors)}
        for ref in ray.wait([*refs], num_returns=len(refs), timeout=timeout_s)[0]:
            try:
                answers[refs[ref]] = ray.get(ref)
            except Exception as error:
                answers[refs[ref]] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return answers


def _packed(_actor: object, _number: int) -> bytes:
    return wire.pack(stats())


def _begin(_actor: object, number: int, path: str, size: int) -> FileState:
    return begin_file(path, number, size)


def _end(_actor: object, _number: int, path: str) -> FileState | None:
    return end_file(path)
