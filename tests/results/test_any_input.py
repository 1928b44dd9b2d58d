"""Whatever a file of results holds: it is read, or one error names it, and it stays as it is.

For longer: ``GPUPROF_FUZZ=N``, see `tests/support/fuzzing.py`.
"""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import gpuprof
from gpuprof.errors import BaselineError
from tests.results.test_formats import FOUND, FULL, SLOWER
from tests.support.fuzzing import attempt, bounded, dumped, nearly, raw

READ = [name for name, found in FOUND.items() if hasattr(found, "from_dict")]
(COMMAND,) = entry_points(group="console_scripts", name="gpuprof")
RUN = {
    "created": "2026",
    "commit": "abc",
    "machine": {"gpu": "NVIDIA H200"},
    "results": {"x": FULL.to_dict(), "y": SLOWER.to_dict()},
}
OWN = {"result": FULL.to_dict(), "decision": FOUND["decision"].to_dict()}
SESSION = {"benchmarks": [{"name": "x", "fullname": "t.py::x", "gpuprof": OWN}]}
DOCUMENTS = [SESSION, *(FOUND[name].to_dict() for name in READ if name != "decision")]


def check_forms(found: Any) -> None:
    """Check that something that was read can be shown and written in each of its forms."""
    for form in ("__str__", "_repr_html_", "to_markdown", "to_csv", "to_json"):
        getattr(found, form, found.__str__)().encode()
    data = found.to_dict()
    assert type(found).from_dict(json.loads(json.dumps(data, allow_nan=False))).to_dict() == data


@pytest.mark.parametrize("name", READ)
@bounded(20)
@given(data=st.data())
def test_a_record_that_is_nearly_right_is_read_or_a_value_error(
    name: str, data: st.DataObject
) -> None:
    kind = type(FOUND[name])
    given = data.draw(nearly(FOUND[name].to_dict()))
    found, refusal = attempt(lambda: kind.from_dict(given), ValueError)
    if found is None:
        assert refusal.startswith(kind.__name__)
    else:
        check_forms(found)


@bounded(150)
@given(content=raw(RUN))
@example(content=b"")
def test_a_line_of_a_baseline_is_read_or_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "baselines" / "main" / "NVIDIA-H200.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = dumped(RUN) + b"\n" + content
    path.write_bytes(content)
    found, refusal = attempt(lambda: gpuprof.history(tmp_path), BaselineError)
    if found is None:
        assert refusal.startswith(f"{path}, line ")
    else:
        check_forms(found)
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@bounded(40)
@given(content=st.sampled_from(DOCUMENTS).flatmap(raw))
@example(content=b'{"benchmarks": [{"gpuprof": {"result": []}}]}')
def test_a_file_of_results_is_read_or_named(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fuzzed.json"
    path.write_bytes(content)
    if COMMAND.load()(["report", str(path), "--output", str(tmp_path / "page.html")]) != 0:
        assert str(path) in capsys.readouterr().err
    assert path.read_bytes() == content
