"""The hooks that a ``conftest.py`` may have; all change what they are given, in place.

They run where results are collected, at the end of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def pytest_gpu_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    """Change the ``machine_info`` of the JSON file.

    Parameters
    ----------
    config : pytest.Config
        The session's configuration.
    machine_info : dict
        The machine that measured.
    """


def pytest_gpu_benchmark_update_commit_info(
    config: pytest.Config, commit_info: dict[str, Any]
) -> None:
    """Change the ``commit_info`` of the JSON file, and the commit that is saved with a baseline.

    Parameters
    ----------
    config : pytest.Config
        The session's configuration.
    commit_info : dict
        The commit of the sources: ``id``, ``time``, ``author_time``, ``dirty``, ``project`` and
        ``branch``. A baseline has the ``id``, and whether it is ``dirty``.
    """


def pytest_gpu_benchmark_update_json(
    config: pytest.Config, benchmarks: list[dict[str, Any]], output_json: dict[str, Any]
) -> None:
    """Change the JSON file before it is written.

    Parameters
    ----------
    config : pytest.Config
        The session's configuration.
    benchmarks : list of dict
        The benchmarks of the file.
    output_json : dict
        The whole content, as plain data.

    Notes
    -----
    If it holds what JSON cannot, the file is not written, and pytest's exit status is 1.
    """
