"""Labels of scopes: part of the name, in the notation of Prometheus, as in ``step{batch="8"}``.

So statistics have a row for each combination, and what reads names needs to know nothing of them.
Exporters take them apart again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpuprof._common import checks
from gpuprof._common.text import clean_text

MOST_VALUES = 200
OTHER = "other"
TAKEN = {"path", "clock", "le"}  # by the exporters' own
_KEY = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PAIR = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\.)*"'
_LABELLED = re.compile(rf"(.+?)\{{({_PAIR}(?:,{_PAIR})*)\}}", re.DOTALL)
_PARTS = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

# Of each key, as texts. Without a lock: a few more than the limit do no harm.
_seen: dict[str, set[str]] = {}


def checked_key(name: str, key: object) -> str:
    text = checks.text(name, key)
    if not _KEY.fullmatch(text) or text in TAKEN or text.startswith("__"):
        expected = f"keys such as 'batch', of letters, digits and _, and none of {sorted(TAKEN)}"
        raise checks.value_error(key, name, expected)
    return text


def labelled(name: str, labels: object) -> str:
    """Return the name with its labels, of which each key has a bounded number of values.

    Past `MOST_VALUES` a value is ``other``, with one warning for each key.
    """
    pairs = []
    for key, value in sorted(checks.mapping("labels", labels).items()):
        if not isinstance(value, (str, int, float)):
            raise checks.type_error(value, f"labels[{key!r}]", "a str or a number")
        found = _bounded(checked_key("labels", key), clean_text(str(value)))
        pairs.append(f'{key}="{found.translate(_ESCAPES)}"')
    return f"{name}{{{','.join(pairs)}}}" if pairs else name


def taken_apart(names: Iterable[str]) -> tuple[list[str], Mapping[str, str]]:
    """Return the names of a path without their labels, and all labels; the innermost wins.

    A name that was written by hand may have labels that are `TAKEN`; they are left out.
    """
    plain, labels = [], {}
    for name in names:
        found = _LABELLED.fullmatch(name) if name.endswith("}") else None
        plain.append(found[1] if found else name)
        for key, value in _PARTS.findall(found[2]) if found else ():
            if key not in TAKEN:
                labels[key] = re.sub(r"\\(.)", lambda each: each[1].replace("n", "\n"), value)
    return plain, labels


def _bounded(key: str, value: str) -> str:
    values = _seen.setdefault(key, set())
    if value in values or len(values) < MOST_VALUES:
        values.add(value)
        return value
    if OTHER not in values:
        values.add(OTHER)
        checks.warn_outside(
            f"gpuprof: the label {key!r} has more than {MOST_VALUES} values; the others are shown "
            f"as {OTHER!r}"
        )
    return OTHER
