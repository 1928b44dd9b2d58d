"""Names of kernels for people: short, or just what tells two of them apart.

A kernel's name may be any text, so it is never shown unescaped; see `shown_text`.
"""

from __future__ import annotations

from gpuprof._common.text import shown_text

MAX_NAME = 60
_ANONYMOUS = ("(anonymous namespace)", "{anonymous}")
_CLOSES = {"<": ">", "(": ")", "[": "]", "{": "}"}


def short_name(name: str) -> str:
    """Cut a kernel's name to what tells it from others: no result, arguments or long templates."""
    plain = shown_text(name)
    return cut(_without_types(plain.replace(*_ANONYMOUS)) or plain, MAX_NAME)


def _without_types(name: str) -> str:
    """Drop the result and the parameters, and what stands in angle and square brackets."""
    kept: list[str] = []
    closers: list[str] = []
    for character in name:
        if closers:
            if character == closers[-1]:
                closers.pop()
            elif character in _CLOSES:
                closers.append(_CLOSES[character])
            elif closers[0] != "}":
                continue
            if closers == [] and character == ">":
                kept.append("<...>")
            elif closers[0] == "}" if closers else character == "}":
                kept.append(character)
        elif character == "(":
            break
        elif character in _CLOSES:
            closers.append(_CLOSES[character])
            if character == "{":
                kept.append(character)
        elif character == " ":
            kept.clear()
        else:
            kept.append(character)
    return "".join(kept)


def cut(text: str, most: int) -> str:
    """Cut `text` in the middle, so that both of its ends can be read."""
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail - 1]}…{text[-tail:]}"


def around(name: str, place: int) -> str:
    """Cut a long name to what stands around a place in it."""
    begin, end = max(0, place - MAX_NAME // 3), place + MAX_NAME
    return f"{'…' if begin else ''}{name[begin:end]}{'…' if end < len(name) else ''}"
