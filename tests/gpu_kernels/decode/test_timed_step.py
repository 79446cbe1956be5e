"""Both ways of a step on a small model, without a clock."""

import pytest
import torch

from gpu_kernels.decode import timed_step
from gpu_kernels.decode.llama import LlamaShape
from gpu_kernels.graphs import eagerly
from gpu_kernels.proof import timing

SHAPE = LlamaShape(64, 1, 2, 1, 64, 32, 31)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(timed_step, "CONTEXT", 32)
    monkeypatch.setattr(timed_step, "REPETITIONS", 2)
    monkeypatch.setattr(timed_step, "STEPS", 1)
    monkeypatch.setattr(timing, "event_time", lambda work: work() or 7.0)


def test_rows_name_each_implementation_and_batch():
    rows = timed_step.decode_rows("cpu", shape=SHAPE, captured=eagerly)
    assert [(row["impl"], row["sizes"]["B"]) for row in rows] == [
        ("graph", 1),
        ("eager", 1),
        (timed_step.OWN, 1),
        (timed_step.DRAWN, 1),
        ("graph", 16),
        ("eager", 16),
        (timed_step.DRAWN, 16),
    ]
    weights = 2 * (4 * 64 * 64 + 64 * 128 + 3 * 64 * 32 + 31 * 64)  # qkv, output, gate, up, down, head
    for row in rows:
        assert row["samples_us"] == [7.0, 7.0] and row["us"] == 7.0
        assert row["num_bytes"] == weights + 2 * 2 * 64 * 32 * row["sizes"]["B"]
        assert row["ops"] == weights * row["sizes"]["B"]


def test_other_tokens_are_an_error():
    def wrong(call):
        result = call().clone()
        return lambda: result.fill_(-1), result

    with pytest.raises(RuntimeError, match="got other tokens from the graph than from the eager step at a batch of 1"):
        timed_step.decode_rows("cpu", shape=SHAPE, captured=wrong)


def test_pages_hold_the_context_once():
    given = timed_step._inputs(3, 2, "cpu")
    assert sorted(given["block_table"].flatten().tolist()) == list(range(6))
    assert torch.equal(given["slot"], given["block_table"][:, -1] * 16 + 15) and (given["position"] == 31).all()
