"""Why a capture broke: which call the driver refused, and what usually causes that.

Ending a broken capture only reports that something failed earlier. The cause is in the driver's log
(CUDA 12.9 and later), which has lines of all threads: the first refusal is the cause, and later
ones, mostly 901, are its consequences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuprof.errors import CAPTURE_TEXTS, INVALIDATED, CaptureError, refused

_OWN_KINDS = {902, 903, 905, 906}


_WAIT = (
    "likely .item(), .cpu(), .tolist() or the printing of a tensor, or a synchronize() of a stream "
    "or an event: the host cannot wait for work that is only being recorded, so do it after the "
    "capture"
)
_COPY = (
    "likely .item(), .cpu(), .numpy() or the printing of a tensor, or a copy that waits: copy "
    "after the capture, or between device memory and pinned memory with non_blocking=True"
)
_MEMORY = (
    "memory was allocated or freed: run the body once before the capture, so that what it needs is "
    'there, or capture with mode="relaxed"'
)
_QUERY = (
    "likely event.query() or stream.query(), or a thread that polls: what is being recorded has no "
    "state to ask for, so ask after a replay"
)
_LOADING = (
    "a kernel was loaded or unloaded: run the body once before the capture, so that every kernel "
    "is there"
)

# By the beginning of the call's name.
_BY_CALL = (
    ("cuStreamSynchronize", _WAIT),
    ("cuEventSynchronize", _WAIT),
    (
        "cuCtxSynchronize",
        "likely torch.cuda.synchronize() or another wait for the whole device: do it after the "
        "capture",
    ),
    ("cuEventQuery", _QUERY),
    ("cuStreamQuery", _QUERY),
    (
        "cuEventElapsedTime",
        "the time between two events was asked for while they are only being recorded: ask after "
        "a replay, or use gpuprof.timer() in the body",
    ),
    ("cuMemcpy", _COPY),
    ("cuMemset", "a memset that waits: use one that takes a stream"),
    ("cuMemAlloc", _MEMORY),
    ("cuMemFree", _MEMORY),
    ("cuMemHost", _MEMORY),
    ("cuMemCreate", _MEMORY),
    ("cuMemMap", _MEMORY),
    ("cuMemUnmap", _MEMORY),
    ("cuMemRelease", _MEMORY),
    ("cuModule", _LOADING),
    ("cuLibrary", _LOADING),
    (
        "cuGraph",
        "a graph was made, launched or destroyed in the body, which the garbage collector may do "
        "too: drop graphs before the capture",
    ),
)

_UNJOINED = (
    "a stream that the capture forked to was not joined again: make the capture's stream wait for "
    "it before the end, with capture_stream.wait_stream(other) or by waiting for an event that was "
    "recorded on it"
)
_BY_CODE = {
    902: (
        "a stream of one capture waited for an event of another: two captures cannot become one, "
        "so keep their streams and events apart"
    ),
    903: "the capture was ended on another stream than the one that it was begun on",
    904: _UNJOINED,
    905: (
        "the body waits for an event or a stream from outside of the capture: wait before the "
        "capture begins, or record the event in the body"
    ),
    906: (
        "work on the legacy default stream met a capture on a stream that waits for it: capture on "
        "a non-blocking stream, and keep the default stream out of the body"
    ),
    907: (
        "an event of the capture was asked for a result: it has one once the graph was launched, "
        "if it was recorded with the external flag"
    ),
    908: (
        "the capture was ended on another thread than the one that began it: end it where it "
        'began, or capture with mode="relaxed"'
    ),
}

_HEADER = re.compile(r"^\s*(?:\[[^\]]*\]\s*)*")
_REFUSAL = re.compile(r"Returning (\d+) \((\w+)\) from (\w+)")
_MANGLED = re.compile(r"_ZN?(?=\d)")
_SIZE = re.compile(r"\d{1,3}")
_LONGEST = 80
_NOTE = "gpuprof: "
_VERSION = re.compile(r"(?:_v\d+)?(?:_pt[ds]z?s?)?$")


@dataclass(frozen=True)
class CaptureFacts:
    """What is known of a capture when it broke."""

    name: str | None = None
    mode: str | None = None
    num_nodes: int | None = None  # when last seen: of a broken capture the driver does not tell
    last_kernel: str | None = None
    # The lines of the driver's log since the capture began, oldest first, each with whether this
    # thread wrote it; None where the driver keeps no log.
    log: Sequence[tuple[bool, str]] | None = ()
    op: str | None = None  # what broke it, and the line, with debug=True
    where: str | None = None
    stream: int | None = None

    def at(self, op: str | None, where: str | None) -> CaptureFacts:
        """Return these facts with what broke the capture, as far as it was seen."""
        return replace(self, op=op, where=where)


@dataclass(frozen=True)
class Refusal:
    """One call that the driver refused because of a capture."""

    own: bool  # whether this thread called it
    code: int
    name: str  # CUDA's name of the code
    call: str
    remark: str  # what the driver said before it, or nothing

    def __str__(self) -> str:
        thread = "this thread" if self.own else "another thread"
        text = f"{self.call} on {thread}, refused with {self.code} ({self.name})"
        return f'{text}; the driver says "{self.remark}"' if self.remark else text


def first_refusal(log: Sequence[tuple[bool, str]] | None) -> Refusal | None:
    """Return the first refused call in the log, preferring this thread's; echoes (901) are none."""
    found: list[Refusal] = []
    remarks = {True: "", False: ""}
    for own, line in log or ():
        text = _HEADER.sub("", line).strip()
        match = _REFUSAL.search(text)
        if match is None:
            remarks[own] = text
            continue
        code = int(match[1])
        if code in CAPTURE_TEXTS and code != INVALIDATED:
            found.append(Refusal(own, code, match[2], match[3], remarks[own]))
        remarks[own] = ""
    return next((refusal for refusal in found if refusal.own), found[0] if found else None)


def explain(error: CaptureError, facts: CaptureFacts) -> CaptureError:
    """Fill an error of a capture with what is known, and make its text of it.

    It is changed in place, unless it is only an echo (901) and the log names a rule for streams
    (902, 903, 905, 906): then the result is an error of that code.
    """
    refusal = first_refusal(facts.log)
    if error.code == INVALIDATED and refusal is not None and refusal.code in _OWN_KINDS:
        error = refused(refusal.code, error.call)
    error.capture = facts.name
    error.mode = facts.mode
    error.num_nodes = facts.num_nodes
    error.last_kernel = facts.last_kernel
    error.first_refused = refusal.call if refusal else None
    error.log = tuple(_lines(facts.log))
    error.op = facts.op
    error.where = facts.where
    error.hint = _hint(error.code, refusal, facts)
    sentences = [f"{_title(facts)} broke{_place(facts)}"]
    if refusal is None or error.code != INVALIDATED:
        sentences[0] += f": {CAPTURE_TEXTS.get(error.code, error.detail)}"
    if refusal is not None and (refusal.code, refusal.call) != (error.code, error.call):
        sentences.append(f"First refused call: {refusal}")
    elif refusal is not None:
        sentences.extend([f'The driver says "{refusal.remark}"'] if refusal.remark else [])
    elif facts.log is None:
        sentences.append("This driver keeps no log of what it refuses (CUDA 12.9 and later do)")
    elif error.code == INVALIDATED:
        sentences.append("The driver's log names no refused call")
    if error.hint is not None:
        sentences.append(error.hint[0].upper() + error.hint[1:])
    error.detail = ". ".join(sentences)
    error.args = (error.code, error.name, error.call, error.detail)
    return error


def note_for_body(error: BaseException, facts: CaptureFacts) -> None:
    """Add a note to the body's exception on what the driver had refused, unless it says so already.

    Python 3.10 has no notes.
    """
    refusal = first_refusal(facts.log)
    add_note = getattr(error, "add_note", None)
    explained = isinstance(error, CaptureError) and error.first_refused is not None
    noted = any(str(note).startswith(_NOTE) for note in getattr(error, "__notes__", ()))
    if refusal is None or add_note is None or explained or noted:
        return
    hint = _hint(refusal.code, refusal, facts)
    place = _place(facts)
    # Without a place it is not sure: another thread may have been refused for another capture.
    end = f"broke{place}" if place else "was discarded"
    text = f"{_NOTE}{_title(facts)} {end}. First refused call: {refusal}"
    add_note(f"{text}. {hint[0].upper()}{hint[1:]}." if hint else f"{text}.")


def _title(facts: CaptureFacts) -> str:
    """Return the capture's name and what is known of it: capture 'step' (thread_local, ...)."""
    known = []
    if facts.stream is not None:
        known.append(f"stream {facts.stream}")
    if facts.mode is not None:
        known.append(f"mode {facts.mode}")
    if facts.num_nodes is not None:
        nodes = "node" if facts.num_nodes == 1 else "nodes"
        known.append(f"{facts.num_nodes} {nodes} when last seen")
    if facts.last_kernel is not None:
        known.append(f"last kernel {_short(facts.last_kernel)}")
    name = "the capture" if facts.name is None else f"capture {facts.name!r}"
    return f"{name} ({', '.join(known)})" if known else name


def _short(kernel: str) -> str:
    """Return a kernel's name without template arguments: those of torch's are whole paragraphs."""
    nested = _MANGLED.match(kernel)
    if nested is None:
        return kernel if len(kernel) <= _LONGEST else f"{kernel[: _LONGEST - 3]}..."
    parts, at = [], nested.end()
    while (size := _SIZE.match(kernel, at)) is not None:
        at = size.end() + int(size[0])
        parts.append(kernel[size.end() : at])
        if nested[0] == "_Z":
            break
    name = "::".join(part for part in parts if not part.startswith("_GLOBAL__N"))
    return f"{name}<...>" if kernel[at : at + 1] == "I" else name


def _place(facts: CaptureFacts) -> str:
    """Return what broke it, as far as it was seen: in aten::item at model.py:88 in forward."""
    op = "" if facts.op is None else f" in {facts.op}"
    return op if facts.where is None else f"{op} at {facts.where}"


def _lines(log: Sequence[tuple[bool, str]] | None) -> list[str]:
    return [line if own else f"another thread: {line}" for own, line in log or ()]


def _hint(code: int, refusal: Refusal | None, facts: CaptureFacts) -> str | None:
    cause = _hint_of_call(refusal) if refusal is not None else None
    hint = cause if cause is not None else _BY_CODE.get(code)
    if refusal is not None and not refusal.own and facts.mode == "global":
        # What to do in the body is no advice: the call is another thread's.
        return (
            "in global mode a capture binds all threads of the process; "
            'mode="thread_local" binds only the one that captures'
        )
    if hint is None and refusal is None and code == INVALIDATED and facts.where is None:
        return "debug=True finds the line"
    return hint


def _hint_of_call(refusal: Refusal) -> str | None:
    # These codes say more than the call that they came from.
    if refusal.code in {902, 903, 904, 905, 906, 908}:
        return _BY_CODE[refusal.code]
    call = _VERSION.sub("", refusal.call)
    for beginning, hint in _BY_CALL:
        if call.startswith(beginning):
            return hint
    return _BY_CODE.get(refusal.code)
