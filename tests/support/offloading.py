"""Models under a limit that a test chooses, whatever the process holds."""

from pathlib import Path

import pytest

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.offload.load import OffloadedModel
from quant.source import Source


def own_streams(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams go to this folder, and no bytes are held back from the limit."""
    monkeypatch.setenv("QBENCH_CACHE", str(folder))
    for module in ("budget", "weights"):
        monkeypatch.setattr(f"qbench.runtime.offload.{module}.MARGIN_BYTES", 0)
    monkeypatch.setattr("qbench.runtime.offload.budget.VARIES_BYTES", 0)


def offloaded_model(source: Source, weight_bytes: int, **options) -> OffloadedModel:
    """The model with so many bytes for weights."""
    model = load_model(source, RunOptions(memory_bytes=1 << 40, **options))
    assert isinstance(model, OffloadedModel)
    model.weights.budget.weight_bytes = lambda *_: weight_bytes
    return model
