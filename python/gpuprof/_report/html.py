"""A report as one HTML file that needs no network: what was measured, to be passed on and kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import gpuprof._core as _core
from gpuprof._common.checks import text as check_text
from gpuprof._common.checks import type_error
from gpuprof._common.outputs import write_whole
from gpuprof._report import sections
from gpuprof._report.page import document
from gpuprof._results.comparison import CompareResult
from gpuprof._results.decision import Decision
from gpuprof._results.history import History
from gpuprof._results.result import BenchResult
from gpuprof._results.two_sides import Comparison
from gpuprof._timing.stats import Stats

TITLE = "gpuprof report"


def write_report(
    path: str | os.PathLike[str],
    *,
    stats: Any = None,
    results: Any = None,
    graphs: Any = None,
    history: Any = None,
    title: str | None = None,
) -> None:
    """Write a report as one HTML file that opens without a network.

    It has tables that a click sorts, histograms and drawings, follows the reader's choice of dark
    or light, and fits a phone. Nothing is loaded: its Content-Security-Policy forbids that. Names
    are shown as text, whatever they hold.

    Parameters
    ----------
    path : str or os.PathLike
        The file, written whole or not at all.
    stats : Stats, optional
        Statistics of scopes; several as a list, or as a dict whose keys are their headings.
    results : BenchResult, CompareResult or SweepResult, optional
        What benchmarks found; several as a list or a dict. A pair of a result and its
        `results.Decision` is shown with the verdict.
    graphs : CapturedGraph, optional
        Graphs to be drawn; several as a list or a dict.
    history : History, optional
        Runs of benchmarks over time; several as a list or a dict.
    title : str, optional
        The title of the page.

    Raises
    ------
    OSError
        The file cannot be written.
    TypeError
        One of the arguments is something else; the text says what.

    Notes
    -----
    With nothing to show, it is the statistics of this process. Graphs are drawn where Graphviz is
    installed, and listed elsewhere.
    """
    if title is not None:
        check_text("title", title)
    if all(each is None for each in (stats, results, graphs, history)):
        from gpuprof._timing.scope import stats as own_stats

        stats = own_stats()
    found = _parts("Scopes", _named("stats", stats, (Stats,), "Stats"), sections.stats_part)
    found += [*_of_results(results), *_of_graphs(graphs)]
    histories = _named("history", history, (History,), "a History")
    found += _parts("History", histories, sections.history_part)
    write_page(path, title or TITLE, found)


def write_page(
    path: str | os.PathLike[str], title: str, parts: Sequence[tuple[str, str]], about: str = ""
) -> None:
    """Write headings and their HTML as a page, with a line that begins with `about`."""
    created = datetime.now(timezone.utc).isoformat(" ", "seconds")
    facts = f"{about}written {created} by gpuprof {_core.build_info()['version']}"
    write_whole(path, document(title, facts, parts))


def _parts(
    heading: str, named: Iterable[tuple[str, Any]], part: Callable[[Any], str]
) -> list[tuple[str, str]]:
    """Return a section for each value, with its name in the heading."""
    return [(f"{heading}: {name}" if name else heading, part(each)) for name, each in named]


def _named(what: str, given: Any, kinds: tuple[type, ...], expected: str) -> list[tuple[str, Any]]:
    """Return what is given as pairs of a name, empty where there is none, and a value."""
    if given is None:
        return []
    if isinstance(given, kinds):
        return [("", given)]
    pairs = [("", given)]
    if isinstance(given, Mapping):
        pairs = [(str(name), each) for name, each in given.items()]
    elif isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        pairs = [("", each) for each in given]
    for _, each in pairs:
        if not isinstance(each, kinds):
            raise type_error(each, what, f"{expected}, or a list or dict of them")
    return pairs


def _of_results(given: Any) -> list[tuple[str, str]]:
    """Return a section for all results, and one for each comparison."""
    expected = "a BenchResult, a CompareResult, a (BenchResult, Decision) pair"
    alone: list[tuple[BenchResult, Decision | None]] = []
    compared: list[tuple[str, Any]] = []
    if isinstance(given, tuple):
        given = [given] if _is_pair(given) else [*given]
    elif not isinstance(given, CompareResult):
        given = getattr(given, "results", given)  # of a sweep
    kinds = (BenchResult, CompareResult, Comparison, tuple)
    for name, each in _named("results", given, kinds, expected):
        if isinstance(each, (CompareResult, Comparison)):  # the latter was read from a file
            compared.append((name, each))
        elif isinstance(each, BenchResult):
            alone.append((each, None))
        elif _is_pair(each):
            alone.append(each)
        else:
            message = f"results: expected {expected}, got a tuple of {len(each)}"
            raise TypeError(message)
    parts = [("Benchmarks", sections.results_part(alone))] if alone else []
    return parts + _parts("Comparison", compared, sections.comparison_part)


def _is_pair(given: tuple[Any, ...]) -> bool:
    return (
        len(given) == 2
        and isinstance(given[0], BenchResult)
        and isinstance(given[1], (Decision, type(None)))
    )


def _of_graphs(given: Any) -> list[tuple[str, str]]:
    if given is None:
        return []
    from gpuprof._graphs.graph import CapturedGraph

    pairs = _named("graphs", given, (CapturedGraph,), "a CapturedGraph")
    named = [(name or f"graph {place}", each) for place, (name, each) in enumerate(pairs)]
    return [("Graphs", sections.graphs_part(named))] if named else []
