"""``gpu_benchmark.stats``: the figures of the result as pytest-benchmark's fixture gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuprof._results.export import figures

if TYPE_CHECKING:
    from gpuprof._results.result import BenchResult


class FixtureStats:
    """Figures in seconds: ``stats["min"]``, ``stats.stats.min``, ``stats.get("min")``.

    Besides those in `gpuprof._results.export` there are ``data``, the samples, and what the test
    is called.

    Raises
    ------
    KeyError, AttributeError
        There is no figure of that name; the text lists them.
    """

    def __init__(self, result: BenchResult, test: Mapping[str, Any]) -> None:
        self._figures = figures(result)
        self._all = self._figures | {**test, **self._figures}

    @property
    def stats(self) -> FixtureStats:
        """Itself: pytest-benchmark has the figures one level down, too."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy that is being made has no figures yet
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __getitem__(self, name: str) -> Any:
        if name in self._all:
            return self._all[name]
        message = f"there is no figure {name!r}; there are {', '.join(self._all)}"
        raise KeyError(message)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a figure, or `default` if there is none of that name."""
        return self._all.get(name, default)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures without the samples."""
        return {name: value for name, value in self._figures.items() if name != "data"}

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._all})

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self._figures[name]:.6g}" for name in ("min", "mean", "median"))
        return f"<stats of {self.get('fullname')!r} in seconds: {shown}>"
