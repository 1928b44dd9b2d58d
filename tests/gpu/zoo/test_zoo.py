"""Real models, used graphed as they are used eagerly.

With ``ZOO_RESULTS=FOLDER`` all models are used, which takes some minutes with ``-n 12``. Each
leaves a file in that folder, of which ``python -m tests.gpu.zoo.report FOLDER`` makes the table of
the documentation. Without it, the first model of each kind is used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tests.gpu.zoo import report, run

pytestmark = pytest.mark.timeout(run.PATIENCE + 20)

# What waits for the GPU to decide what to do next, or how many there are of something.
DATA_DEPENDENT = {
    *("aten::_local_scalar_dense", "aten::is_nonzero", "aten::item", "aten::equal"),
    *("aten::nonzero", "aten::index", "aten::index_put_", "aten::masked_select"),
    *("aten::_unique2", "aten::bincount", "aten::repeat_interleave", "aten::where"),
    "aten::_grouped_mm",  # reads on the host where each group ends
}
# Autograd adds gradients on the stream of an earlier pass, as long as results of that are kept.
KEPT = "would make the legacy stream depend on a capturing"
# The models that do so, and for what.
EXPECTED_REFUSALS = {
    "BART": "in float16, branches on whether activations are finite",
    "Marian": "in float16, branches on whether activations are finite",
    "DETR": "in training, branches on whether activations are finite",
    "Mask2Former": "in training, branches on whether activations are finite",
    "Faster R-CNN": "keeps the boxes with the best scores",
    "Mixtral": "finds the tokens of each expert on the host",
    "LSTM with dropout": "in training, torch reads the seed of cuDNN's dropout from the GPU",
    "RAFT": "keeps results of an earlier step, whose gradients are of the legacy default stream",
    "Qwen2-MoE": "finds the tokens of each expert on the host",
}
RESULTS = os.environ.get("ZOO_RESULTS")
NAMES = [
    (kind, name)
    for kind, models in run.KINDS.items()
    for name in list(models)[: None if RESULTS else 1]
]


def unexpected(name: str, uses: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return uses that are wrong, or refused for what is not listed."""
    found = []
    for each in uses:
        is_right = each["operator"].partition(".")[0] in DATA_DEPENDENT or KEPT in each["why"]
        is_listed = name in EXPECTED_REFUSALS and is_right
        if each["status"] == "wrong" or (each["status"] == "refused" and not is_listed):
            found.append((each["use"], each["why"]))
    return found


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_model_does_graphed_what_it_does_eagerly(
    torch: Any, kind: str, name: str, tmp_path: Path
) -> None:
    uses = run.examine(name, tmp_path / "uses")
    if isinstance(uses, str):
        pytest.skip(f"this transformers or torchvision has no {name}: {uses}")
    if RESULTS:
        report.write(Path(RESULTS), name, kind, uses)
    assert not unexpected(name, uses)
