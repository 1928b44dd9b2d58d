"""Plain forms: `to_dict`, `from_dict` and JSON of dataclasses follow from their fields.

A plain form holds dicts, lists, text, finite numbers and None, and is ready for JSON: a tuple is a
list, an enum its value (one of integers its name), a record within a record its own plain form, and
None stands for a number that is not finite. What is read may come from anywhere: all that is wrong
with it is a ValueError that names the member, as in ``History.series[0].points[3].value: expected a
number, got 'x'``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timezone
from enum import Enum
from functools import cache
from itertools import chain
from math import isfinite, nan
from types import MappingProxyType, NoneType, SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)
from typing import get_type_hints as type_hints

from gpuprof._common import checks
from gpuprof._common.text import output_text, plain_data

if TYPE_CHECKING:
    from typing_extensions import Self

_LARGEST = 2**63
_Kind = TypeVar("_Kind", bound=type)
Check: TypeAlias = "Callable[[str, Any], Any]"  # takes a name and a value; returns the value


def in_results(kind: _Kind) -> _Kind:
    """Show a class as one of `gpuprof.results`, in tracebacks and in pickles, once it is made."""
    kind.__module__ = "gpuprof.results"
    return kind


class Plain:
    """A dataclass with a plain form, which also pickles as its fields.

    `_HEAD` are members that are always the same, such as format and version. `_MEMBERS` are the
    names of all members in their order: those of the head, of fields, and of properties, which are
    written for other readers and not read. An ellipsis stands for what is not named: the head and
    the fields.
    """

    __slots__ = ()
    _HEAD: ClassVar[Mapping[str, Any]] = {}
    _MEMBERS: ClassVar[Sequence[Any]] = (...,)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, text, finite numbers and None."""
        frame, names = _members(cast("Any", type(self)))
        found = {
            # Most are numbers, which are not worth a call.
            name: value
            if (kind := type(value := getattr(self, name))) is int
            or (kind is float and isfinite(value))
            else _plain(value)
            for name in names
        }
        return frame | found if self._HEAD else found

    def _member(self) -> Any:
        """Return the plain form as a member of another record."""
        return self.to_dict()

    def __reduce__(self) -> tuple[Any, ...]:
        me: Any = self
        return type(me), tuple(getattr(me, each.name) for each in fields(me))


class Record(Plain):
    """A dataclass that is read back from its plain form, too.

    Fields are read as their types say. `_NEWER` are those that files of an older gpuprof lack.
    """

    __slots__ = ()
    _NEWER: ClassVar[Collection[str]] = ()
    _SCOPE: ClassVar[dict[str, Any]]  # what the names in types mean

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_SCOPE" not in vars(cls):  # a dataclass with slots is made twice
            frame = sys._getframe(1)
            while frame.f_back and frame.f_globals["__name__"] == "abc":
                frame = frame.f_back
            cls._SCOPE = frame.f_globals

    @classmethod
    def _names(cls) -> dict[str, Any]:
        """Return the types of fields that the module imports only where there are any."""
        return {}

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Build one from what `to_dict` returned.

        Raises
        ------
        ValueError
            If `data` is something else, or of a version that this one cannot read; it names the
            member that is wrong.
        """
        with checks.damaged(cls.__name__):
            return cls._read(cls.__name__, data)

    @classmethod
    def _read(cls, where: str, data: object) -> Self:
        """Build one from its plain form, which errors call `where`."""
        if type(data) is not dict and not isinstance(data, Mapping):
            raise checks.value_error(data, where, "what to_dict() returns")
        readers, needed, known = _readers(cast("Any", cls))
        if cls._HEAD:
            _check_head(cls, where, data)
        if not (needed <= data.keys() <= known):
            missing = [name for name in readers if name in needed and name not in data]
            unknown = [name for name in data if name not in known]
            what = f"{missing[0]!r} is missing" if missing else f"{unknown[0]!r} is unknown"
            message = f"{where}: {what}"
            raise ValueError(message)
        try:
            given = {name: read(name, data[name]) for name, read in readers.items() if name in data}
            return cls(**given)
        except (TypeError, ValueError) as error:
            message = f"{where}.{error}"
            raise ValueError(message) from None


class Checked(Record):
    """A record whose constructor runs the checks that the types of its fields are `Annotated` with.

    They take plain forms as well.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, check in _checks(cast("Any", type(self))).items():
            object.__setattr__(self, name, check(name, getattr(self, name)))


class Json:
    """What has a plain form, as JSON."""

    __slots__ = ()

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as strict JSON, in ASCII."""
        me: Any = self
        return json.dumps(me.to_dict(), indent=indent, allow_nan=False)


class Document(Json, Record):
    """A record that is stored by itself, as JSON."""

    __slots__ = ()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Build one from what `to_json` returned; ValueError if `text` is something else."""
        return cls.from_dict(checks.json_object(text))


def now() -> str:
    """Return the time as ISO 8601 text in UTC, as results say when they were made."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def head(form: str, version: int = 1, **more: str) -> Mapping[str, Any]:
    """Return the head of a document: its format and version, and what else is always the same."""
    return MappingProxyType({"format": form, "version": version, **more})


def format_of(kind: type[Record]) -> str:
    return str(kind._HEAD["format"])


def check_of(kind: type[Record]) -> Check:
    return lambda name, value: value if isinstance(value, kind) else kind._read(name, value)


def or_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def each_of(check: Check) -> Check:
    """Return the check of a list of which each item passes `check`; it returns a tuple."""

    def check_all(name: str, value: Any) -> tuple[Any, ...]:
        return _items(name, (check(name, item) for item in checks.sequence(name, value)))

    return check_all


def _items(name: str, checked: Iterable[Any]) -> tuple[Any, ...]:
    """Return the checked items of a list; an error of one, which names the list, gets its place."""
    found: list[Any] = []
    try:
        found.extend(checked)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        message = f"{name}[{len(found)}]{str(error).removeprefix(name)}"
        raise kind(message) from None
    return tuple(found)


def by_name(check: Check) -> Check:
    """Return the check of a mapping from text, of which each value passes `check`."""

    def check_all(name: str, value: Any) -> dict[str, Any]:
        items = checks.mapping(name, value).items()
        return {key: check(f"{name}[{key!r}]", item) for key, item in items}

    return check_all


def _check_head(kind: Any, where: str, data: Mapping[str, Any]) -> None:
    found = {name: data.get(name) for name in kind._HEAD}
    if found != kind._HEAD or any(isinstance(each, bool) for each in found.values()):
        message = (
            f"{where}: expected {dict(kind._HEAD)}, got {checks.shortened(found)}; another gpuprof "
            "may have written it"
        )
        raise ValueError(message)


@cache
def _members(kind: Any) -> tuple[dict[str, Any], Sequence[str]]:
    """Return all members in their order, with the values of the head, and the names of others."""
    head = kind._HEAD
    known = (*head, *(each.name for each in fields(kind)))
    rest = [name for name in known if name not in kind._MEMBERS]
    found: list[str] = []
    for name in kind._MEMBERS:
        found += rest if name is ... else [name]
    return {name: head.get(name) for name in found}, [name for name in found if name not in head]


def _types(kind: Any) -> dict[str, Any]:
    """Return the types of all fields, with the checks that they are annotated with."""
    # By hand, because these classes call their module "gpuprof", which has none of the names.
    texts = SimpleNamespace(__annotations__={each.name: each.type for each in fields(kind)})
    return type_hints(texts, kind._SCOPE, kind._names(), include_extras=True)


@cache
def _checks(kind: Any) -> dict[str, Check]:
    types = _types(kind).items()
    return {name: each.__metadata__[0] for name, each in types if get_origin(each) is Annotated}


@cache
def _readers(kind: Any) -> tuple[dict[str, Check], frozenset[str], frozenset[str]]:
    """Return what reads each field, and the names that data must have and may have."""
    found = {name: _reader(each) for name, each in _types(kind).items()}
    fields_read = frozenset(found)
    return found, fields_read - {*kind._NEWER}, fields_read.union(_members(kind)[0])


def _plain(value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool:  # most are one of these
        return value
    if kind is str:
        return output_text(value)
    if isinstance(value, Plain):
        return value._member()
    if kind is tuple and {*map(type, value)} <= {str}:
        return [*map(output_text, value)]
    if isinstance(value, Enum):
        return value.name.lower() if isinstance(value, int) else value.value
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], Plain):
        return [each._member() for each in value]
    if isinstance(value, Mapping) and value and isinstance(next(iter(value.values())), Plain):
        return {output_text(str(key)): each._member() for key, each in value.items()}
    return plain_data(value)


def _reader(kind: Any) -> Check:
    """Return what makes a member's value of its plain form, by the field's type."""
    outer, inner = get_origin(kind), get_args(kind)
    if outer is Annotated:
        return _SCALARS[Any]
    if outer in {Union, UnionType}:  # with None, always
        return or_none(next(_reader(each) for each in inner if each is not NoneType))
    if outer is tuple and inner[-1] is not Ellipsis:
        return _fixed([_reader(each) for each in inner])
    if outer in {tuple, list}:
        items = each_of(_reader(inner[0]))
        if get_args(inner[0]) == (int, int):
            return _pairs(items)
        return items if outer is tuple else lambda name, value: [*items(name, value)]
    if outer in {dict, Mapping}:
        return by_name(_reader(inner[1]))
    if kind in _SCALARS:
        return _SCALARS[kind]
    if issubclass(kind, Enum):
        known = [each.value for each in kind]
        return lambda name, value: kind(checks.choice(name, value, known))
    read: Check = kind._read
    return read


def _pairs(read: Check) -> Check:
    """Return `read`, and before it a quick way for lists of pairs: statistics have thousands."""

    def read_quickly(name: str, value: Any) -> Any:
        if type(value) is list and {*map(type, value)} == {list} and {*map(len, value)} == {2}:
            flat = [*chain.from_iterable(value)]
            if {*map(type, flat)} == {int} and min(flat) >= -_LARGEST and max(flat) <= _LARGEST:
                return tuple(map(tuple, value))
        return read(name, value)

    return read_quickly


def _fixed(readers: Sequence[Check]) -> Check:
    def read_all(name: str, value: Any) -> tuple[Any, ...]:
        items = checks.sequence(name, value)
        if len(items) != len(readers):
            message = f"{name}: expected {len(readers)} values, got {len(items)}"
            raise ValueError(message)
        return _items(name, (read(name, item) for read, item in zip(readers, items, strict=True)))

    return read_all


def _float(name: str, value: Any) -> float:
    if type(value) is float and isfinite(value):
        return value
    found = nan if value is None else checks.number(name, value)
    return value if type(value) is int else found  # which is written as it was


def _int(name: str, value: Any) -> int:
    return checks.whole(name, value, -_LARGEST, _LARGEST)


_SCALARS: dict[Any, Check] = {
    Any: lambda _, value: value,
    bool: checks.flag,
    float: _float,
    int: _int,
    str: checks.text,
}
