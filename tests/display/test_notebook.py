"""What IPython shows by itself: a line under a cell for each unnamed scope that nobody holds."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path

import pytest

import gpuprof
from tests.support.processes import check_python, environment

# In a real shell, on the fake driver's virtual time.
CELLS = """
import contextlib, io, os, textwrap
from IPython.core.interactiveshell import InteractiveShell
from tests.fake_driver.control import FakeCuda

shell = InteractiveShell.instance(colors="NoColor")
def run(code):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        result = shell.run_cell(textwrap.dedent(code))
    lines = out.getvalue().splitlines()
    return result, [line for line in lines if line.startswith(("GPU", "host", "not ", "... "))]
fake = FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])
shell.user_ns["fake"] = fake
FIRST = "import gpuprof\\nwith gpuprof.timer(backend='cpu'):\\n    pass"
assert [line[:5] for line in run(FIRST)[1]] == ["host "]
fake.use_primary()
shell.user_ns["stream"] = fake.stream_create()
"""
needs_ipython = pytest.mark.skipif(
    importlib.util.find_spec("IPython") is None, reason="Python build without IPython"
)


@needs_ipython
def test_an_unnamed_scope_shows_a_line_when_the_cell_ends(fake_path: Path, tmp_path: Path) -> None:
    body = """
    _, shown = run("with gpuprof.timer(stream=stream):\\n    fake.work(stream, 5_000_000)")
    assert len(shown) == 1 and shown[0].startswith("GPU 5.00 ms, host "), shown
    _, shown = run('''
        with gpuprof.timer("step", stream=stream):
            with gpuprof.timer(stream=stream):
                fake.work(stream, 1_000_000)
            with gpuprof.timer(stream=stream):
                fake.work(stream, 2_000_000)
    ''')
    assert [line.split(",")[0] for line in shown] == ["GPU 1.00 ms", "GPU 2.00 ms"], shown
    _, shown = run("async with gpuprof.timer(stream=stream):\\n    pass")
    assert len(shown) == 1, shown
    """
    check_python(CELLS + textwrap.dedent(body), driver=fake_path, IPYTHONDIR=str(tmp_path))


@needs_ipython
def test_the_scope_itself_does_not_wait(fake_path: Path, tmp_path: Path) -> None:
    # On manual time a wait inside of the cell would never end; the line's own one does.
    body = """
    fake.configure("mode=manual")
    _, shown = run('''
        with gpuprof.timer(stream=stream):
            fake.work(stream, 3_000_000)
        waits = [fake.calls(call) for call in ("cuEventSynchronize", "cuStreamSynchronize")]
        fake.complete(stream)
    ''')
    assert shell.user_ns["waits"] == [0, 0]
    assert shown[0].startswith("GPU 3.00 ms"), shown
    """
    check_python(CELLS + textwrap.dedent(body), driver=fake_path, IPYTHONDIR=str(tmp_path))


@needs_ipython
def test_what_is_held_named_read_or_failed_shows_nothing(fake_path: Path, tmp_path: Path) -> None:
    body = """
    for code in (
        "with gpuprof.timer(stream=stream) as sample:\\n    pass",
        "with gpuprof.timer() as sample:\\n    pass",
        "scope = gpuprof.timer()\\nwith scope:\\n    pass",
        "scope = gpuprof.timer()\\nwith scope:\\n    pass",  # the one before goes away unread
        "with gpuprof.timer('named'):\\n    pass",
        "def f():\\n    own = gpuprof.timer()\\n    with own:\\n        pass\\n    own.ms\\nf()",
        "def f():\\n    own = gpuprof.timer()\\n    with own:\\n        pass\\n    own.last\\nf()",
        "def f():\\n    with gpuprof.timer() as own:\\n        pass\\n    own.ms\\nf()",
        "with gpuprof.timer(enabled=False):\\n    pass",
        "gpuprof.timer()",
        "gpuprof.timer(lambda: None)()",
        "del sample, scope",
    ):
        result, shown = run(code)
        result.raise_error()
        assert shown == [], (code, shown)
    result, shown = run("with gpuprof.timer():\\n    raise KeyError")
    assert isinstance(result.error_in_exec, KeyError)
    assert shown == []
    """
    check_python(CELLS + textwrap.dedent(body), driver=fake_path, IPYTHONDIR=str(tmp_path))


@needs_ipython
def test_many_in_a_cell_are_counted(fake_path: Path, tmp_path: Path) -> None:
    body = """
    loop = "for _ in range({}):\\n    with gpuprof.timer(backend='cpu'):\\n        pass"
    assert len(run(loop.format(10))[1]) == 10
    _, shown = run(loop.format(25))
    assert len(shown) == 11, shown
    assert shown[-1].startswith("... and 15 more; give the scope a name"), shown
    assert run("1")[1] == []
    """
    check_python(CELLS + textwrap.dedent(body), driver=fake_path, IPYTHONDIR=str(tmp_path))


@needs_ipython
def test_a_scope_of_the_drivers_failure_says_so(fake_path: Path, tmp_path: Path) -> None:
    body = """
    two = "with gpuprof.timer(stream=stream):\\n    pass\\n" * 2
    fake.configure("mode=manual")
    fake.script("cuEventElapsedTime@1=700")
    _, shown = run(two + "fake.complete(stream)")
    assert len(shown) == 2, shown
    assert shown[0].startswith("not timed: "), shown
    """
    check_python(CELLS + textwrap.dedent(body), driver=fake_path, IPYTHONDIR=str(tmp_path))


def test_nothing_is_imported_or_kept_outside_of_ipython() -> None:
    check_python("""
        import types
        sys.modules["IPython"] = types.ModuleType("IPython")  # imported, but no shell is there
        sys.modules["IPython"].get_ipython = lambda: None
        import gpuprof
        with gpuprof.timer():
            pass
        assert "gpuprof._display.notebook" not in sys.modules
        assert sys.modules["gpuprof._core"]._take_unheld() == ([], 0)
    """)


def test_a_kernel_shows_it_under_the_cell(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="Python build without nbclient")
    nbformat = pytest.importorskip("nbformat", reason="Python build without nbformat")
    pytest.importorskip("ipykernel", reason="Python build without ipykernel")
    sources = [
        "import gpuprof\nwith gpuprof.timer():\n    pass",
        "1",
        "with gpuprof.timer():\n    pass\nwith gpuprof.timer():\n    pass",
        "with gpuprof.timer() as sample:\n    pass\nsample",
        "gpuprof.backends()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, sources)])
    client = nbclient.NotebookClient(
        notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env=environment(None, IPYTHONDIR=str(tmp_path)))
    texts = [
        "".join(output.get("text", "") for output in cell["outputs"]) for cell in notebook["cells"]
    ]
    assert [text.count("\n") for text in texts] == [1, 0, 2, 0, 0]
    assert texts[0].startswith("host ")
    assert texts[0].endswith("; no GPU time was measured\n")
    for cell in notebook["cells"][3:]:
        assert "<table" in cell["outputs"][0]["data"]["text/html"]


def test_a_sample_has_a_table_and_does_not_wait_for_it() -> None:
    with gpuprof.timer("load<", backend="cpu") as sample:
        assert '<td style="text-align:left">open</td>' in sample._repr_html_()
    html = sample._repr_html_()
    assert "load&lt;" in html
    assert "done" in html
    assert "GPU" not in html


def test_backends_are_a_mapping_with_a_table() -> None:
    found = gpuprof.backends()
    assert [*found] == ["cuda", "cpu", "metal"]
    assert len(found) == 3
    assert found["cpu"].available
    assert "unknown" not in found
    assert repr(found).splitlines()[0].split() == ["clock", "available", "reason"]
    assert "<td" in found._repr_html_()  # type: ignore[attr-defined]
