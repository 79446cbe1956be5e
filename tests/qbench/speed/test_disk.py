"""Bounds of streamed weights: the disk if a step reads from it, the memory if all weights stay."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.offloading import offloaded_model, own_streams

from qbench.sources import open_source
from qbench.speed.disk import BANDWIDTH_BYTES, DiskProbe, disk_work, offload_of

WORK = {"tg_bytes": {"linears": 5.0, "norms_and_biases": 1.0, "kv": 2.0}, "tg_ops": {"int8": 9.0}}


def one_step(weight_bytes: int) -> Any:
    """ref:llama after a forward pass with so many bytes for weights."""
    model: Any = offloaded_model(open_source("ref:llama"), weight_bytes)
    model(torch.tensor([[1]]), model.new_cache(1, 4))
    return model


@pytest.fixture(autouse=True)
def own_stream(tmp_path, monkeypatch):
    own_streams(tmp_path, monkeypatch)


def test_a_step_that_reads_is_bound_by_the_bytes_that_it_reads(monkeypatch):
    least = max(unit.size_bytes for unit in one_step(1 << 30).weights.units)
    model = one_step(least)
    monkeypatch.setattr("qbench.speed.disk.measure_bandwidth", lambda _: pytest.fail("memory is no bound"))
    before = model.weights.streamer.read_bytes
    model(torch.tensor([[1]]), model.new_cache(1, 4))
    read = sum(unit.size_bytes for unit in model.weights.units)
    assert disk_work(WORK, model)["tg_bytes"] == {"linears": read, "norms_and_biases": 0.0}
    assert disk_work(WORK, model)["tg_ops"] == WORK["tg_ops"]
    assert model.weights.streamer.read_bytes > before
    assert DiskProbe(model, 1)() > 0
    found = offload_of(model)
    assert found is not None and (found.streamed_bytes, found.pinned_bytes, found.ring_bytes) == (read, 0, least)


def test_experts_that_decode_steps_read_are_bytes_of_a_step():
    """Two steps, each counted by the streamer; a prefill before them does not count."""
    model: Any = offloaded_model(open_source("rand:tiny-moe"), 1 << 30)
    whole = sum(unit.size_bytes for unit in model.weights.units)
    model = offloaded_model(open_source("rand:tiny-moe"), whole // 2)
    cache = model.new_cache(1, 8)
    model(torch.tensor([[1, 2, 3]]), cache)
    assert model.weights.expert_bytes_per_step == 0.0
    experts, counted = model.weights.experts, []
    for token in (4, 5):
        misses = experts.misses
        model(torch.tensor([[token]]), cache)
        counted.append(experts.misses - misses)
    size = next(unit.size_bytes for unit in model.weights.units if unit.expert is not None)
    assert sum(counted) > 0
    assert model.weights.expert_bytes_per_step == size * sum(counted) / 2
    assert disk_work(WORK, model)["tg_bytes"]["experts"] == size * sum(counted) / 2
    found = offload_of(model)
    assert found is not None and found.expert_bytes_per_step == size * sum(counted) / 2


def test_weights_that_all_stay_are_bound_by_memory(monkeypatch):
    model = one_step(1 << 30)
    monkeypatch.setattr("qbench.speed.disk.measure_bandwidth", lambda threads: 7.0 * threads)
    assert disk_work(WORK, model) == WORK
    assert DiskProbe(model, 2)() == 14.0
    found = offload_of(model)
    assert found is not None and found.streamed_bytes == 0


def test_memory_is_not_measured_without_room_for_it(monkeypatch):
    model = one_step(1 << 30)
    monkeypatch.setattr("qbench.speed.disk.measure_bandwidth", lambda _: pytest.fail("there is no room"))
    monkeypatch.setattr(model.weights.budget, "free_bytes", lambda: BANDWIDTH_BYTES - 1)
    probe = DiskProbe(model, 1)
    assert probe() is None
    monkeypatch.setattr(model.weights.budget, "free_bytes", lambda: BANDWIDTH_BYTES)
    assert probe() is None  # as in the first round


def test_no_limit_no_shares():
    assert offload_of(SimpleNamespace()) is None
