"""Which names of gpuprof a piece of code uses, and whether gpuprof has them."""

from __future__ import annotations

import ast
import inspect
import operator
import re

import gpuprof


def wrong_names(tree: ast.AST) -> list[str]:
    """Return the names of gpuprof that do not exist, and calls with arguments that do not."""
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := _dotted(node)) and not _exists(name):
            wrong.append(name)
        if isinstance(node, ast.Call) and (name := _dotted(node.func)) and _exists(name):
            given = {each.arg for each in node.keywords if each.arg}
            wrong += [f"{name}({each}=)" for each in sorted(given - _accepted(name))]
    return wrong


def _dotted(node: ast.expr) -> str:
    """Return `a.b` for `gpuprof.a.b`, and nothing for what is not looked up in gpuprof itself."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    is_own = isinstance(node, ast.Name) and node.id == "gpuprof"
    return ".".join(reversed(parts)) if is_own else ""


def _exists(name: str) -> bool:
    owner, _, last = name.rpartition(".")
    try:
        found = operator.attrgetter(owner)(gpuprof) if owner else gpuprof
    except AttributeError:
        return False
    fields = getattr(found, "__dataclass_fields__", {})  # those without a default are no attributes
    return hasattr(found, last) or last in fields or last in getattr(found, "__annotations__", {})


def _accepted(name: str) -> set[str]:
    """Return the arguments that a callable of gpuprof takes by name."""
    target = operator.attrgetter(name)(gpuprof)
    try:
        parameters = inspect.signature(target).parameters
    except ValueError:  # a compiled one, whose signature is in its docstring
        return {*re.findall(r"(\w+)(?=[:=,)])", target.__doc__ or "")}
    takes_others = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return {*parameters} | (_accepted("benchmark") if takes_others else set())
