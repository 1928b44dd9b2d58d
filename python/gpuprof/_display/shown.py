"""What a result needs to be shown, drawn and exported: one table, picture and list of records.

A program's first scope imports this module: those that display are imported where they are used.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from gpuprof._common.records import Json, Plain
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from gpuprof._display.records import Records
    from gpuprof._display.table import Table


class Shown(ABC):
    """Text, HTML, Markdown and a table on a terminal, all from `_table`.

    A dataclass takes its text from here with ``repr=False``.
    """

    __slots__ = ()

    @abstractmethod
    def _table(self, *args: Any, **options: Any) -> Table:
        """Return the table; a class names the options that it has, each with a default."""

    def __repr__(self) -> str:
        return "\n".join(self._table().plain())

    def _repr_html_(self) -> str:
        return self._table().html()

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        yield self._table()

    def to_markdown(self, **options: Any) -> str:
        """Return a Markdown table; `options` are those of `table`, where there is one."""
        return "\n".join(self._table(**options).markdown()) + "\n"

    def print(self, file: TextIO | None = None, *, style: str = "auto", **options: Any) -> None:
        """Write the table.

        Parameters
        ----------
        file : TextIO, optional
            Where to; None is standard output.
        style : str
            ``"plain"``, ``"rich"``, or ``"auto"``: rich on a terminal. Where rich is not installed
            the table is plain.
        options
            Those of `table`, where there is one.
        """
        from gpuprof._display.table import write

        write(self._table(**options), file, style)


class ShownAsCode:
    """HTML that is the `repr`, for what has no table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from html import escape

        return f"<code>{escape(repr(self))}</code>"


class Exported(Json, ABC):
    """CSV and data frames, both from `_records`, and JSON from `to_dict`."""

    __slots__ = ()

    @abstractmethod
    def _records(self, *args: Any, **options: Any) -> Records:
        """Return the records; a class names the options that it has, each with a default."""

    def to_csv(self, path: str | os.PathLike[str] | None = None, **options: Any) -> str | None:
        """Return CSV (RFC 4180), or write it to a file.

        Units are in the head: ``median_ms``. What is not known is empty.

        Parameters
        ----------
        path : str or os.PathLike, optional
            The file, in UTF-8, written whole or not at all. None returns the text.
        options
            ``samples=True``, for measurements: a line for each sample.
        """
        text = self._records(**options).csv()
        if path is None:
            return text
        from gpuprof._common.outputs import write_whole

        write_whole(path, text)
        return None

    def to_frame(self, **options: Any) -> Any:
        """Return the columns of `to_csv` as a pandas DataFrame; `options` are the same.

        Raises
        ------
        ModuleNotFoundError
            Without pandas.
        """
        return self._records(**options).frame(f"{type(self).__name__}.to_frame()")


class OfBlock(Shown, Exported):
    """What a ``with`` block finds, which is shown and read once the block has ended."""

    _state = "not entered"  # then "open", "ended"

    @property
    @abstractmethod
    def rows(self) -> Sequence[Plain]:
        """The lines of the table."""

    def _check_new(self) -> None:
        if self._state != "not entered":
            name = type(self).__name__
            message = f"this {name} is {self._state}; call gpuprof.{name.lower()}() for a new one"
            raise InvalidStateError(message)

    def _check_ended(self) -> None:
        if self._state != "ended":
            name = type(self).__name__.lower()
            message = (
                f"the {name} block is {self._state}: its result can be read after "
                f"`with gpuprof.{name}() as {name[0]}:` has ended"
            )
            raise InvalidStateError(message)

    def _records(self) -> Records:
        from gpuprof._display.records import Records

        return Records.of_plain(row.to_dict() for row in self.rows)

    def __repr__(self) -> str:
        ended = self._state == "ended"
        return super().__repr__() if ended else f"<gpuprof.{type(self).__name__}, {self._state}>"

    def _repr_html_(self) -> str:
        from html import escape

        return super()._repr_html_() if self._state == "ended" else escape(repr(self))
