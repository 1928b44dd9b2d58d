"""What is said of a broken capture: the first refused call, whose it was, and what to do."""

from __future__ import annotations

import pickle
import sys

import pytest

from gpuprof import errors
from gpuprof._graphs.diagnosis import CaptureFacts, explain, note_for_body
from gpuprof.errors import capture_error, refused

HEAD = "[2026-11-20 10:15:59.123][140212][CUDA][E] "


def returning(code: int, name: str, call: str) -> str:
    return f"{HEAD}Returning {code} ({name}) from {call}"


def unsupported(call: str) -> str:
    return returning(900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", call)


ECHO = returning(901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "cuStreamEndCapture")
EVENT = [
    f"{HEAD}Recorded event not allowed on stream",
    returning(907, "CUDA_ERROR_CAPTURED_EVENT", "cuEventQuery"),
]
MEMORY = [
    f"{HEAD}API call conflicts with a stream capture sequence initiated from the calling thread",
    unsupported("cuMemAlloc_v2"),
]
UNJOINED = returning(904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "cuStreamEndCapture")


def facts(*lines: str, own: bool = True, mode: str = "thread_local") -> CaptureFacts:
    return CaptureFacts("decode", mode, 41, "add_k", [(own, line) for line in lines])


def explained(code: int, known: CaptureFacts) -> errors.CaptureError:
    return explain(refused(code, "cuStreamEndCapture"), known)


@pytest.mark.parametrize(
    ("lines", "call", "hint"),
    [
        (EVENT, "cuEventQuery", "event.query()"),
        (MEMORY, "cuMemAlloc_v2", 'mode="relaxed"'),
        *(
            ([unsupported(call)], call, hint)
            for call, hint in {
                "cuStreamSynchronize": ".item()",
                "cuEventSynchronize": "synchronize()",
                "cuMemcpyDtoH_v2": ".cpu()",
                "cuCtxSynchronize_v2": "torch.cuda.synchronize()",
                "cuStreamQuery": "polls",
                "cuMemFree_v2": "before the capture",
                "cuLibraryLoadData": "kernel was loaded",
                "cuGraphExecDestroy": "collector",
            }.items()
        ),
    ],
)
def test_the_first_refused_call_and_its_usual_cause_are_named(
    lines: list[str], call: str, hint: str
) -> None:
    error = explained(901, facts(*lines, ECHO))
    assert (error.code, error.first_refused) == (901, call)
    assert hint in str(error.hint)
    text = str(error)
    assert text.startswith("cuStreamEndCapture failed: ")
    assert "capture 'decode' (mode thread_local, 41 nodes when last seen, last kernel add_k)" in (
        text
    )
    assert f"First refused call: {call} on this thread, refused with" in text
    assert str(error.hint)[1:] in text
    assert error.log == (*lines, ECHO)


@pytest.mark.parametrize(
    ("code", "rule", "call", "hint"),
    [
        (902, "MERGE", "cuStreamWaitEvent", "two captures cannot become one"),
        (903, "UNMATCHED", "cuStreamEndCapture", "ended on another stream"),
        (905, "ISOLATION", "cuStreamWaitEvent", "outside of the capture"),
        (906, "IMPLICIT", "cuMemcpyDtoH_v2", "legacy default stream"),
    ],
)
def test_a_broken_rule_for_streams_has_the_rules_own_class(
    code: int, rule: str, call: str, hint: str
) -> None:
    line = returning(code, f"CUDA_ERROR_STREAM_CAPTURE_{rule}", call)
    error = explained(901, facts(line, ECHO))
    assert type(error) is getattr(errors, f"Capture{rule.capitalize()}Error")
    assert (error.first_refused, error.call) == (call, "cuStreamEndCapture")
    assert hint in str(error.hint)


@pytest.mark.parametrize(
    ("code", "rule", "hint"),
    [(904, "UNJOINED", "wait_stream"), (908, "WRONG_THREAD", "another thread")],
)
def test_an_end_that_is_itself_refused_is_not_named_twice(code: int, rule: str, hint: str) -> None:
    line = returning(code, f"CUDA_ERROR_STREAM_CAPTURE_{rule}", "cuStreamEndCapture")
    remark = f"{HEAD}Something is wrong with the end"
    error = explained(code, facts(remark, line))
    assert error.first_refused == "cuStreamEndCapture"
    assert hint in str(error.hint)
    assert str(error).count("cuStreamEndCapture") == 1
    assert 'The driver says "Something is wrong with the end"' in str(error)
    assert "The driver says" not in str(explained(code, facts(line)))


@pytest.mark.parametrize(
    ("kernel", "shown"),
    [
        ("add_k", "add_k"),
        ("_Z5add_kPfS_i", "add_k"),
        ("_Z4fill4Pair", "fill"),
        ("_ZN2at6native13reduce_kernelILi512EEEvT0_", "at::native::reduce_kernel<...>"),
        (
            "_ZN2at34_GLOBAL__N__0a7ec5f4_8_Cross_cu_ab12cross_kernelEPf",
            "at::{anonymous}::cross_kernel",
        ),
        ("_ZN12_GLOBAL__N_13addEv", "{anonymous}::add"),
        ("_Z999x", "_Z999x"),  # cut off
        ("void many<" + "int, " * 40 + ">()", "many<...>"),
    ],
)
def test_the_last_kernel_is_shown_without_its_template_arguments(kernel: str, shown: str) -> None:
    known = CaptureFacts(last_kernel=kernel)
    error = explain(refused(904, "cuStreamEndCapture"), known)
    assert f"(last kernel {shown}) broke" in str(error)
    assert error.last_kernel == kernel


def test_the_class_and_the_call_stay_and_the_object_too() -> None:
    error = refused(904, "cuStreamEndCapture")
    assert explain(error, facts(UNJOINED)) is error
    assert type(error) is errors.CaptureUnjoinedError
    assert error.call == "cuStreamEndCapture"


def test_what_the_driver_remarks_is_quoted() -> None:
    text = str(explained(901, facts(*EVENT, ECHO)))
    assert 'the driver says "Recorded event not allowed on stream"' in text
    assert "the driver says" not in str(explained(901, facts(unsupported("cuMemAlloc_v2"), ECHO)))


def test_the_lines_of_this_thread_come_first() -> None:
    log = [
        (False, unsupported("cuEventQuery")),
        (False, ECHO),
        (True, unsupported("cuStreamSynchronize")),
        (True, ECHO),
    ]
    error = explained(901, CaptureFacts(log=log))
    assert error.first_refused == "cuStreamSynchronize"
    assert "cuStreamSynchronize on this thread" in str(error)
    assert error.log[0].startswith("another thread: ")
    assert error.log[2] == log[2][1]


def test_a_line_of_another_thread_is_labelled() -> None:
    error = explained(901, facts(unsupported("cuEventQuery"), own=False))
    assert "cuEventQuery on another thread" in str(error)
    assert "thread_local" not in str(error.hint)


def test_in_global_mode_another_thread_is_told_of_thread_local() -> None:
    error = explained(901, facts(unsupported("cuMemAlloc_v2"), own=False, mode="global"))
    assert error.hint is not None
    assert 'mode="thread_local"' in error.hint
    assert "run the body" not in error.hint
    own = explained(901, facts(unsupported("cuMemAlloc_v2"), mode="global"))
    assert 'mode="thread_local"' not in str(own)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [ECHO],
        [returning(1, "CUDA_ERROR_INVALID_VALUE", "cuPointerGetAttributes")],
        [returning(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuStreamSynchronize")],
        ["something else altogether"],
        # What only looks like a refusal.
        ["Returning", "Returning x (A) from b", "Returning 900 from b", "Returning 900 () from b"],
        ["Returning 900 (A) from ", "[open", ""],
    ],
)
def test_a_log_without_a_refusal_says_so_and_names_debug(lines: list[str]) -> None:
    error = explained(901, facts(*lines))
    assert error.first_refused is None
    assert "The driver's log names no refused call" in str(error)
    assert error.hint == "debug=True finds the line"


def test_a_driver_without_a_log_is_said_to_have_none() -> None:
    error = explain(refused(901, "cuStreamEndCapture"), CaptureFacts(log=None))
    assert "keeps no log" in str(error)
    assert error.log == ()


def test_a_call_that_nobody_knows_has_no_hint() -> None:
    error = explained(901, facts(unsupported("cuSomethingNew"), ECHO))
    assert error.first_refused == "cuSomethingNew"
    assert error.hint is None
    assert str(error).endswith("refused with 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)")


def test_the_operator_and_the_line_are_named() -> None:
    known = facts(unsupported("cuStreamSynchronize")).at(
        "aten::_local_scalar_dense", "model.py:88 in forward"
    )
    error = explained(901, known)
    assert " broke in aten::_local_scalar_dense at model.py:88 in forward. First" in str(error)
    assert (error.op, error.where) == ("aten::_local_scalar_dense", "model.py:88 in forward")
    assert " broke at model.py:88 in forward. First" in str(
        explained(901, known.at(None, "model.py:88 in forward"))
    )


def test_little_knowledge_makes_a_short_text() -> None:
    error = explain(refused(904, "cuStreamEndCapture"), CaptureFacts())
    assert "(904): the capture broke: capturing stream has unjoined work. A stream" in str(error)
    one = explain(refused(904, "cuStreamEndCapture"), CaptureFacts(num_nodes=1))
    assert "(1 node when last seen)" in str(one)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_explained_error_pickles_with_all_that_it_knows(protocol: int) -> None:
    error = explained(901, facts(*MEMORY, ECHO).at("op", "line"))
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_an_error_of_a_capture_that_nobody_explained_knows_nothing_more() -> None:
    error = errors.cuda_error(901, "NAME", "cuCall")
    assert isinstance(error, errors.CaptureError)
    assert (error.capture, error.mode, error.num_nodes, error.first_refused) == (None,) * 4
    assert (error.last_kernel, error.hint, error.log) == (None, None, ())


class FrameworkError(RuntimeError):
    """As torch raises it from 2.9 on."""

    def __init__(self, text: str, error_code: int) -> None:
        super().__init__(text)
        self.error_code = error_code


@pytest.mark.parametrize("code", range(900, 909))
def test_a_frameworks_error_is_known_by_its_number_or_its_text(code: int) -> None:
    by_number = capture_error(FrameworkError("CUDA error", code), "cuStreamEndCapture")
    assert by_number is not None
    assert by_number.code == code
    told = by_number.detail
    by_text = capture_error(RuntimeError(f"CUDA error: {told}\nAdvice"), "cuStreamEndCapture")
    assert by_text is not None
    assert (by_text.code, type(by_text)) == (code, type(by_number))


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA out of memory"), FrameworkError("illegal address", 700)]
)
def test_any_other_error_of_a_framework_is_none_of_a_capture(error: Exception) -> None:
    assert capture_error(error, "cuStreamEndCapture") is None


@pytest.mark.parametrize("code", [0, 1, 700])
def test_a_broken_capture_with_a_strange_answer_is_an_invalidated_one(code: int) -> None:
    assert type(refused(code, "cuStreamEndCapture")) is errors.CaptureInvalidatedError


needs_notes = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="this Python version has no notes on exceptions"
)


@needs_notes
@pytest.mark.parametrize("log", [None, [], [(True, ECHO)]])
def test_an_exception_of_a_body_that_broke_nothing_gets_no_note(
    log: list[tuple[bool, str]] | None,
) -> None:
    error = ValueError("the body's")
    note_for_body(error, CaptureFacts(log=log))
    assert not hasattr(error, "__notes__")


@needs_notes
def test_a_note_names_the_line_and_is_added_once() -> None:
    error = ValueError("the body's")
    error.add_note("the program's own")
    known = facts(*MEMORY, ECHO)
    note_for_body(error, known.at(None, "model.py:88 in forward"))
    note_for_body(error, known)
    own, note = error.__notes__
    assert own == "the program's own"
    assert " broke at model.py:88 in forward. First refused call: cuMemAlloc_v2" in note


@needs_notes
def test_an_error_that_says_so_itself_gets_no_note() -> None:
    known = facts(*MEMORY, ECHO)
    error = explained(901, known)
    note_for_body(error, known)
    assert not hasattr(error, "__notes__")


def test_an_exception_that_takes_no_notes_is_left_alone() -> None:
    class OldError(ValueError):
        add_note = None

    note_for_body(OldError("the body's"), facts(*MEMORY))
