"""Small models stream in small requests, to the test's own folder."""

from collections.abc import Callable

import pytest
from support.offloading import offloaded_model, own_streams

from qbench.runtime.offload import placement
from qbench.runtime.offload.load import OffloadedModel

CHUNK = 1 << 16  # small models have small chunks


@pytest.fixture(autouse=True)
def small_steps(tmp_path, monkeypatch):
    own_streams(tmp_path / "cache", monkeypatch)
    monkeypatch.setattr("qbench.runtime.offload.streamer.CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(placement, "AHEAD_BYTES", CHUNK)


@pytest.fixture
def offloaded() -> Callable[..., OffloadedModel]:
    return offloaded_model
