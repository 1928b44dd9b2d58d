"""The exceptions: one root, CUDA's own names in the text, and pickles that keep everything."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from gpuprof import errors
from gpuprof.errors import CaptureError, CudaError, GpuprofError, InvalidStateError, cuda_error

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value)]
CUDA_CLASSES = [kind for kind in CLASSES if issubclass(kind, CudaError)]
PLAIN_CLASSES = [kind for kind in CLASSES if not issubclass(kind, CudaError)]

CAPTURE_CODES = {
    900: errors.CaptureUnsupportedError,
    901: errors.CaptureInvalidatedError,
    902: errors.CaptureMergeError,
    903: errors.CaptureUnmatchedError,
    904: errors.CaptureUnjoinedError,
    905: errors.CaptureIsolationError,
    906: errors.CaptureImplicitError,
    907: errors.CapturedEventError,
    908: errors.CaptureWrongThreadError,
}


def test_every_class_is_listed() -> None:
    assert sorted(errors.__all__) == sorted([*(kind.__name__ for kind in CLASSES), "cuda_error"])


def test_capture_errors_are_cuda_errors_and_a_missing_replay_is_a_state() -> None:
    assert issubclass(CaptureError, CudaError)
    assert all(issubclass(kind, CaptureError) for kind in CAPTURE_CODES.values())
    assert issubclass(errors.NotReplayedError, InvalidStateError)
    assert not issubclass(errors.CudaUnavailableError, CudaError)


@pytest.mark.parametrize("code", CAPTURE_CODES)
def test_capture_codes_have_classes_of_their_own(code: int) -> None:
    error = cuda_error(code, "CUDA_ERROR_STREAM_CAPTURE", "cuEventRecord")
    assert type(error) is CAPTURE_CODES[code]
    assert error.code == code


@pytest.mark.parametrize("code", [1, 2, 700, 899, 909, 999])
def test_any_other_code_is_a_plain_cuda_error(code: int) -> None:
    assert type(cuda_error(code, "CUDA_ERROR", "cuInit")) is CudaError


def test_the_text_names_the_call_and_the_code() -> None:
    error = CudaError(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuEventQuery", "an address was bad")
    assert str(error) == (
        "cuEventQuery failed: CUDA_ERROR_ILLEGAL_ADDRESS (700): an address was bad"
    )


def test_the_text_without_a_detail_ends_after_the_code() -> None:
    error = CudaError(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuEventQuery")
    assert str(error) == "cuEventQuery failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", PLAIN_CLASSES)
def test_errors_pickle_with_their_text(kind: type[GpuprofError], protocol: int) -> None:
    back = pickle.loads(pickle.dumps(kind("what, and what to do"), protocol))
    assert type(back) is kind
    assert str(back) == "what, and what to do"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", CUDA_CLASSES)
def test_cuda_errors_pickle_with_all_they_know(kind: type[CudaError], protocol: int) -> None:
    error = kind(code=907, name="CUDA_ERROR_CAPTURED_EVENT", call="cuEventQuery", detail="why")
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is kind
    assert (back.code, back.name, back.call, back.detail) == (
        907,
        "CUDA_ERROR_CAPTURED_EVENT",
        "cuEventQuery",
        "why",
    )
    assert str(back) == str(error)


@pytest.mark.parametrize("kind", CUDA_CLASSES)
def test_cuda_errors_can_be_copied(kind: type[CudaError]) -> None:
    error = kind(1, "CUDA_ERROR_INVALID_VALUE", "cuEventRecord")
    assert str(copy.copy(error)) == str(copy.deepcopy(error)) == str(error)
