"""Every driver call of every scenario fails once: nothing crashes, leaks or lies."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.hanging_calls import NEWEST
from tests.support.processes import ROOT, environment


def test_no_failing_driver_call_does_more_harm_than_an_exception(fake_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.sweep"],
        cwd=ROOT,
        # When a stream is asked for its progress depends on the time, so which calls are chosen
        # differs a little from run to run.
        env=environment(fake_path, FAKECUDA_CONFIG=NEWEST),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    found = re.search(r"(\d+) runs, (\d+) bad", done.stdout)
    assert found, done.stderr
    print(found[0])
    assert int(found[1]) > 1000
    assert int(found[2]) == 0, done.stdout + done.stderr
