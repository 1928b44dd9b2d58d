"""Every driver call of every scenario fails once: nothing crashes, leaks or lies."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.support.hanging_calls import NEWEST
from tests.support.processes import ROOT, run_command


def test_no_failing_driver_call_does_more_harm_than_an_exception(fake_path: Path) -> None:
    command = (sys.executable, "-W", "ignore", "-m", "tests.support.sweep")
    # When a stream is asked for its progress depends on the time, so which calls are chosen
    # differs a little from run to run.
    done = run_command(*command, cwd=ROOT, driver=fake_path, timeout=280, FAKECUDA_CONFIG=NEWEST)
    found = re.search(r"(\d+) runs, (\d+) bad", done.stdout)
    assert found, done.stderr
    print(found[0])
    assert int(found[1]) > 1000
    assert int(found[2]) == 0, done.stdout + done.stderr
