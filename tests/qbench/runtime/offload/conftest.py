"""Models under a limit that a test chooses, whatever the process holds."""

from collections.abc import Callable

import pytest

from qbench.run_options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.offload import placement
from qbench.runtime.offload.load import OffloadedModel
from quant.source import Source

CHUNK = 1 << 16  # small models have small chunks


@pytest.fixture(autouse=True)
def small_steps(tmp_path, monkeypatch):
    """Streams go to the test's folder, in small requests."""
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("qbench.runtime.offload.streamer.CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(placement, "AHEAD_BYTES", CHUNK)
    for module in ("budget", "weights"):
        monkeypatch.setattr(f"qbench.runtime.offload.{module}.MARGIN_BYTES", 0)


@pytest.fixture
def offloaded() -> Callable[..., OffloadedModel]:
    def load(source: Source, weight_bytes: int, **options) -> OffloadedModel:
        """The model with so many bytes for weights."""
        model = load_model(source, RunOptions(memory_bytes=1 << 40, **options))
        assert isinstance(model, OffloadedModel)
        model.weights.budget.weight_bytes = lambda *_: weight_bytes
        return model

    return load
