"""Headless Chromium with one page in it, driven by tests.

It is driven over a pair of pipes (the DevTools protocol, a message of JSON and a NUL each), so that
no port is open for it. Names of hosts lead nowhere.
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
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

PATIENCE_S = 120.0
WIDTH, HEIGHT = 1600, 900
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
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class BrowserError(Exception):
    """Chromium or the page in it failed."""


def chromium() -> str | None:
    """Return the path of a Chromium, or None."""
    return next((path for name in _BINARIES if (path := shutil.which(name))), None)


class Chromium:
    """A browser with one empty page.

    Examples
    --------
    >>> with Chromium() as page:
    ...     page.go("file:///tmp/page.html")
    ...     page.evaluate("document.title")
    """

    def __init__(self) -> None:
        if chromium() is None:
            raise BrowserError("Chromium is not installed")
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (close closes it)
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        # What a sanitizer wants loaded into Python is not for Chromium.
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _WITH_PIPES, str(commands), str(answers)),
                *(str(chromium()), *_FLAGS, f"--user-data-dir={self._profile.name}"),
            ],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            env=environment,
        )
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._session = ""
        self._pieces = bytearray()
        self.events: list[dict[str, Any]] = []
        try:
            target = self.send("Target.createTarget", url="about:blank")["targetId"]
            attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            self.resize(WIDTH, HEIGHT)
            self.send("Page.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End Chromium."""
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        self._said.close()
        self._profile.cleanup()

    def go(self, address: str) -> None:
        """Load a page, and wait until it is there."""
        before = len(self.events)
        failed = self.send("Page.navigate", url=address).get("errorText")
        if failed:
            raise BrowserError(f"{address}: {failed}")
        self._receive_until(lambda: self._loaded(since=before) is not None, f"load {address}")

    def screenshot(self) -> bytes:
        """Return a PNG of the page."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def resize(self, width: int, height: int) -> None:
        """Set the size of the page, in pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def evaluate(self, expression: str) -> Any:
        """Return the value of JavaScript in the page."""
        result = self.send(
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

    def wait_to_be_at(self, address: str) -> None:
        """Wait until another page has led to an address, and the page is there."""
        self._receive_until(lambda: self._loaded(since=0) == address, f"lead to {address}")

    def _receive_until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            try:
                self.events.append(self._receive(deadline))
            except BrowserError as error:
                raise BrowserError(f"waiting for Chromium to {what}: {error}") from error

    def _loaded(self, since: int) -> str | None:
        # The events tell the address: while a page is left, there is none to be asked.
        loaded = False
        for event in reversed(self.events[since:]):
            if event["method"] == "Page.loadEventFired":
                loaded = True
            elif event["method"] == "Page.frameNavigated":
                frame = event["params"]["frame"]
                if "parentId" not in frame:
                    return str(frame["url"]) if loaded else None
        return None

    def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and return its result; what happens meanwhile is added to `events`."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") != self._number:
                self.events.append(answer)
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
