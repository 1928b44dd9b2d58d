"""The exceptions of gpuprof.

`GpuprofError` is the root. A failure of the CUDA driver is a `CudaError` with CUDA's own name for
it and the driver call that answered it. Bad arguments are plain `TypeError` and `ValueError`.
"""

from __future__ import annotations

__all__ = [
    "BaselineError",
    "CaptureError",
    "CaptureImplicitError",
    "CaptureInvalidatedError",
    "CaptureIsolationError",
    "CaptureMergeError",
    "CaptureUnjoinedError",
    "CaptureUnmatchedError",
    "CaptureUnsupportedError",
    "CaptureWrongThreadError",
    "CapturedEventError",
    "CudaError",
    "CudaUnavailableError",
    "DriverGoneError",
    "EmptyGraphError",
    "ForkedProcessError",
    "GpuprofError",
    "GraphMismatchError",
    "GraphUpdateError",
    "InvalidStateError",
    "NotReplayedError",
    "StreamMismatchError",
    "TraceError",
    "cuda_error",
]


class GpuprofError(RuntimeError):
    """The root of all exceptions that gpuprof raises for its own reasons."""


class CudaUnavailableError(GpuprofError):
    """There is no CUDA driver, no device, or the driver is too old; the text says which."""


class CudaError(GpuprofError):
    """A call of the CUDA driver failed.

    Parameters
    ----------
    code : int
        The driver's number for the error.
    name : str
        CUDA's name for it, such as ``CUDA_ERROR_ILLEGAL_ADDRESS``.
    call : str
        The driver call that answered it.
    detail : str
        The driver's description, and what its log says where it keeps one (CUDA 12.9 and later).
    """

    def __init__(self, code: int, name: str, call: str, detail: str = "") -> None:
        super().__init__(code, name, call, detail)
        self.code = code
        self.name = name
        self.call = call
        self.detail = detail

    def __str__(self) -> str:
        text = f"{self.call} failed: {self.name} ({self.code})"
        return f"{text}: {self.detail}" if self.detail else text


class InvalidStateError(GpuprofError):
    """A call in the wrong order, or on an object whose state does not allow it."""


class CaptureError(CudaError):
    """A stream capture failed or was broken.

    Attributes
    ----------
    capture : str or None
        The name that the capture was given.
    mode : str or None
        Its mode.
    num_nodes : int or None
        How many nodes it had when it was last seen.
    last_kernel : str or None
        The last kernel that it had then.
    first_refused : str or None
        The driver call that broke it, as far as the driver's log tells (CUDA 12.9 and later).
    log : tuple of str
        What the log said since the capture began.
    hint : str or None
        What usually causes this, and what to do.
    op : str or None
        The operator that broke it, with ``debug=True`` and in graphed callables.
    where : str or None
        The line that broke it, likewise.
    """

    capture: str | None = None
    mode: str | None = None
    num_nodes: int | None = None
    last_kernel: str | None = None
    first_refused: str | None = None
    log: tuple[str, ...] = ()
    hint: str | None = None
    op: str | None = None
    where: str | None = None


class CaptureUnsupportedError(CaptureError):
    """Error 900: a call that is not allowed while a stream is being captured."""


class CaptureInvalidatedError(CaptureError):
    """Error 901: an earlier error has invalidated the capture."""


class CaptureMergeError(CaptureError):
    """Error 902: two separate captures would have been merged."""


class CaptureUnmatchedError(CaptureError):
    """Error 903: the capture was not begun on this stream."""


class CaptureUnjoinedError(CaptureError):
    """Error 904: a stream forked from the capture was not joined to it again."""


class CaptureIsolationError(CaptureError):
    """Error 905: the capture would depend on work outside of it."""


class CaptureImplicitError(CaptureError):
    """Error 906: work on the legacy default stream met a capture on a blocking stream."""


class CapturedEventError(CaptureError):
    """Error 907: an event that was recorded into a capture was asked for a result."""


class CaptureWrongThreadError(CaptureError):
    """Error 908: the capture was ended on another thread than the one that began it."""


class EmptyGraphError(GpuprofError):
    """A capture recorded nothing."""


class NotReplayedError(InvalidStateError):
    """A time was asked of a graph that has not run yet."""


class GraphUpdateError(GpuprofError):
    """A graph cannot be updated in place; the text says why and at which node."""


class GraphMismatchError(GpuprofError):
    """A replay of a graphed callable computed something else than the function itself.

    Attributes
    ----------
    path : str or None
        The first array or value that differs, as in ``result['logits']``.
    index : tuple of int or None
        Its first element that differs; None where the shapes, dtypes or types differ.
    expected, found : object
        What the function computed there, and what the replay did.
    problems : tuple of str
        Every array and value that differs, a text each.
    """

    path: str | None = None
    index: tuple[int, ...] | None = None
    expected: object = None
    found: object = None
    problems: tuple[str, ...] = ()


class StreamMismatchError(GpuprofError):
    """The timed work ran on another stream than the one that was timed."""


class ForkedProcessError(GpuprofError):
    """CUDA objects of the parent process were used in a forked child."""


class DriverGoneError(GpuprofError):
    """The CUDA driver has been taken down, because the process is exiting."""


class TraceError(GpuprofError):
    """A trace cannot be written or read."""


class BaselineError(GpuprofError):
    """A stored baseline is missing, damaged or of another format."""


# In tracebacks and pickles they have the name by which users import them.
for _class in [*globals().values()]:
    if isinstance(_class, type):
        _class.__module__ = "gpuprof"
del _class

# By code: the exception, and CUDA's name after CUDA_ERROR_.
_BY_CODE: dict[int, tuple[type[CaptureError], str]] = {
    900: (CaptureUnsupportedError, "STREAM_CAPTURE_UNSUPPORTED"),
    901: (CaptureInvalidatedError, "STREAM_CAPTURE_INVALIDATED"),
    902: (CaptureMergeError, "STREAM_CAPTURE_MERGE"),
    903: (CaptureUnmatchedError, "STREAM_CAPTURE_UNMATCHED"),
    904: (CaptureUnjoinedError, "STREAM_CAPTURE_UNJOINED"),
    905: (CaptureIsolationError, "STREAM_CAPTURE_ISOLATION"),
    906: (CaptureImplicitError, "STREAM_CAPTURE_IMPLICIT"),
    907: (CapturedEventError, "CAPTURED_EVENT"),
    908: (CaptureWrongThreadError, "STREAM_CAPTURE_WRONG_THREAD"),
}
INVALIDATED = 901  # only says that an earlier call broke the capture

# What the runtime says for each code, by which errors of torch and CuPy are recognised.
CAPTURE_TEXTS = {
    900: "operation not permitted when stream is capturing",
    901: "operation failed due to a previous error during capture",
    902: "operation would result in a merge of separate capture sequences",
    903: "capture was not initiated in this stream",
    904: "capturing stream has unjoined work",
    905: "dependency created on uncaptured work in another stream",
    906: "operation would make the legacy stream depend on a capturing blocking stream",
    907: "operation not permitted on an event last recorded in a capturing stream",
    908: "attempt to terminate a thread-local capture sequence from another thread",
}


def cuda_error(code: int, name: str, call: str, detail: str = "") -> CudaError:
    """Return the exception for a failed driver call: a `CudaError` or the fitting subclass."""
    kind = _BY_CODE[code][0] if code in _BY_CODE else CudaError
    return kind(code, name, call, detail)


def capture_error(error: BaseException, call: str) -> CaptureError | None:
    """Return an error of torch or CuPy as gpuprof's, or None if it is not about a capture.

    `call` is the driver call that it must have come from.
    """
    text = str(error)
    code = getattr(error, "error_code", None)
    if code not in _BY_CODE:
        code = next((code for code, said in CAPTURE_TEXTS.items() if said in text), None)
    return None if code is None else refused(code, call)


def refused(code: int, call: str, detail: str | None = None) -> CaptureError:
    """Return the error for a call that answered a code from 900 to 908; any other means 901."""
    known = code if code in _BY_CODE else INVALIDATED
    kind, name = _BY_CODE[known]
    return kind(known, f"CUDA_ERROR_{name}", call, detail or CAPTURE_TEXTS[known])
