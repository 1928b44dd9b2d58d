"""All uses of one model, in a process: ``python -m tests.gpu.zoo.run NAME FILE [USE...]``.

A process for each model costs the imports, some ten seconds. But an error that leaves a CUDA
context unusable, a crash or a hang then costs one use: the parent notes it and starts another
process for the uses that are left.
"""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gpuprof
from gpuprof.errors import GpuprofError, GraphMismatchError
from tests.gpu.zoo import images, language, layers, perception
from tests.gpu.zoo.uses import FLOORS, USES, precision
from tests.gpu.zoo.world import (
    Model,
    NotApplicable,
    Verdict,
    World,
    as_if_captured,
    differences,
    eager,
    judge,
    relative,
)
from tests.support.processes import ROOT, run_command

KINDS: dict[str, dict[str, Model]] = {
    "encoders (transformers)": language.ENCODERS,
    "decoders (transformers)": language.DECODERS,
    "encoder-decoders (transformers)": language.TRANSLATORS,
    "images (transformers)": perception.IMAGES,
    "sound (transformers)": perception.SOUNDS,
    "time series (transformers)": perception.SERIES,
    "torchvision": images.PICTURES,
    "torch.nn": layers.TORCH,
    "by hand": layers.BY_HAND,
}
MODELS = {name: model for models in KINDS.values() for name, model in models.items()}

# A model has this many seconds.
PATIENCE = 450
MISSING, UNUSABLE = 4, 5


def made(model: Model) -> Any:
    """Return a model from a fixed seed, in which nothing is zero: only then errors show."""
    torch.manual_seed(0)
    net = model.make()
    for each in net.parameters():
        if not each.any():
            nn.init.normal_(each, std=0.02)
    return net


def check(model: Model, net: Any, use: str, graph: Any, device: str = "cuda") -> Verdict:
    """Run a use in an eager and in a graphed world, `graph` being `make_graphed_callable`."""

    def seen(stand_in: Any, moved: float = 0.0, noise: int = 0) -> Any:
        world = World(model, net, stand_in, device, moved=moved, noise=noise)
        USES[use](world)
        return world.seen

    try:
        wanted = seen(eager)
    except NotApplicable as error:
        return Verdict("n/a", str(error))
    except Exception as error:
        # A capture that failed must not have left torch unable to run eagerly.
        broken = "CUDA" in str(error) or "captur" in str(error)
        return Verdict("wrong" if broken else "n/a", f"eager: {_first_line(error)}")
    world = World(model, net, graph, device)
    try:
        USES[use](world)
    except Exception as error:
        return _refused(error)
    counts = [each.stats() for each in world.callables if hasattr(each, "stats")]
    replays, others = (sum(getattr(each, name) for each in counts) for name in _COUNTED)
    verdict = _compared(seen, world.seen, wanted, use)
    verdict.notes = {"replays": replays, "eager calls": others}
    if counts and not replays:
        return Verdict("wrong", "nothing was replayed", notes=verdict.notes)
    return verdict


_COUNTED = ("replays", "eager_calls")


def _compared(seen: Callable[..., Any], found: Any, wanted: Any, use: str) -> Verdict:
    if not differences(found, wanted):
        return Verdict("equal")
    with as_if_captured() as told:
        same = seen(told)
        if not differences(found, same):
            why = "bit-equal to eager that takes the branches of a capture"
            return Verdict("close", why, relative(found, wanted))
        by = precision(use)
        # One starts where the others do: some kernels add in another order each time.
        moved = [seen(told, how_far, noise) for noise, how_far in enumerate((0.0, by, by, by))]
    return judge(found, same, moved, by, FLOORS.get(use, 0.0))


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _refused(error: Exception) -> Verdict:
    """Return whether an error is a refusal: one of gpuprof's, or one with its note of a capture."""
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    named = re.search(r"broke (?:in (\S+)|at)(.*)", "\n".join([str(error), *notes]))
    why = _first_line(error) + (f" [{named.group(0)}]" if named else "")
    is_refusal = named or isinstance(error, (GpuprofError, TypeError))
    if not is_refusal or isinstance(error, GraphMismatchError):
        return Verdict("wrong", why)
    return Verdict("refused", why, operator=(named.group(1) or "") if named else "")


def main(name: str, file: str, *uses: str) -> int:
    """Write a line for each use; return an exit status."""
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    try:
        net = made(MODELS[name])
    except Exception as error:  # of other versions of the libraries
        print(_first_line(error))
        return MISSING
    gc.freeze()  # what was imported need not be looked at for each use
    with Path(file).open("a", encoding="utf-8") as out:
        for use in uses or USES:
            gc.collect()
            began = time.monotonic()
            verdict = check(MODELS[name], net, use, gpuprof.make_graphed_callable)
            usable = True
            try:
                torch.cuda.synchronize()
            except Exception as error:
                usable = False
                verdict = Verdict("wrong", f"{verdict.why}; then {_first_line(error)}")
            line = {"use": use, **asdict(verdict), "seconds": round(time.monotonic() - began, 2)}
            out.write(json.dumps(line) + "\n")
            out.flush()
            if not usable:
                return UNUSABLE
    return 0


def examine(name: str, file: Path) -> list[dict[str, Any]] | str:
    """Run all uses of a model in processes; return a line for each, or why there is no model."""
    done: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + PATIENCE
    file.touch()
    while left := [each for each in USES if each not in done]:
        command = [sys.executable, "-W", "ignore", "-m", __name__, name, str(file), *left]
        status, how = _ended(command, deadline - time.monotonic())
        if status == MISSING:
            return how
        lines = [json.loads(each) for each in file.read_text(encoding="utf-8").splitlines()]
        done |= {each["use"]: each for each in lines}
        left = [each for each in left if each not in done]
        # What the process was at is lost, and all that there is no time for.
        lost = {None: len(left), UNUSABLE: 0}.get(status, 1)
        for use in left[:lost]:
            done[use] = {"use": use, **asdict(Verdict("wrong", how)), "seconds": 0.0}
    return [done[each] for each in USES]


def _ended(command: list[str], seconds: float) -> tuple[int | None, str]:
    """Run a command; return its status, None if there was no time for it, and what it said last."""
    variables = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    try:
        ended = run_command(*command, cwd=ROOT, timeout=max(seconds, 0.1), **variables)
    except subprocess.TimeoutExpired:
        return None, f"not done after {PATIENCE} s"
    said = [*ended.stderr.strip().splitlines(), *ended.stdout.strip().splitlines()]
    return ended.returncode, f"status {ended.returncode}: {said[-1] if said else ''}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
