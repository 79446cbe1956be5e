"""Experts that come when they are chosen: equal logits, few bytes, and the order of each rule."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import cpu_kernels
from qbench.run.choices import DYNAMIC, FREQUENCY, PLACEMENTS
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.offload.experts import COUNTED_PASSES, by_rule
from qbench.runtime.offload.placement import least_bytes
from qbench.sources import open_source
from quant.errors import InputError

EXPERTS, CHOSEN, HIDDEN, INNER = 6, 2, 64, 32


def run(model, num_steps: int) -> list[torch.Tensor]:
    """Logits of a prompt, then of steps of one token."""
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, model.config.vocab_size, (3, 20 + num_steps)))
    cache = model.new_cache(3, 20 + num_steps)
    return [model(tokens[:, :20], cache), *(model(tokens[:, [20 + step]], cache) for step in range(num_steps))]


def with_experts(offloaded, source, share: float, rule: str = DYNAMIC):
    """Everything else in memory, and of the experts this share."""
    model = offloaded(source, 0, expert_placement=rule)
    weights = model.weights
    sizes = {unit.name: weights.region.held_bytes(unit.name) for unit in weights.units}
    rest = sum(size for name, size in sizes.items() if "expert" not in name)
    weights.budget.weight_bytes = lambda *_: rest + round(share * (sum(sizes.values()) - rest))
    return model


@pytest.mark.parametrize("rule", PLACEMENTS)
@pytest.mark.parametrize("spec", ["ref:mla-moe", "rand:tiny-moe", "rand:tiny-mla-moe"])
def test_logits_match_experts_in_memory(spec, rule, offloaded):
    source = open_source(spec)
    model, steps = with_experts(offloaded, source, 0.4, rule), COUNTED_PASSES + 2 if rule == FREQUENCY else 3
    got, expected = run(model, steps), run(load_model(source), steps)
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))
    assert model.weights.streamer.resident_bytes <= model.weights.budget.weight_bytes()
    pinned = model.weights.experts.pinned
    assert (rule == DYNAMIC) == (not pinned)


def test_a_step_reads_only_the_experts_that_its_tokens_choose(offloaded):
    source = open_source("ref:mla-moe")
    model = with_experts(offloaded, source, 0.3)
    tokens, cache = torch.tensor([[1]]), model.new_cache(1, 8)
    model(tokens, cache)
    weights = model.weights
    before, misses = weights.streamer.read_bytes, weights.experts.misses
    model(tokens, cache)
    size = next(unit.size_bytes for unit in weights.units if unit.expert is not None)
    read = weights.streamer.read_bytes - before
    assert read == size * (weights.experts.misses - misses)
    num_layers = sum(model.config.layer_kind(layer) == "moe" for layer in range(model.config.num_layers))
    assert read <= size * num_layers * model.config.moe.num_experts_per_token


def test_a_step_whose_experts_are_in_memory_wakes_no_reader(offloaded, monkeypatch):
    model = with_experts(offloaded, open_source("ref:mla-moe"), 1.0)
    tokens, cache, woken = torch.tensor([[1]]), model.new_cache(1, 8), []
    model(tokens, cache)
    cache.truncate(0)
    monkeypatch.setattr(model.weights.streamer._changed, "notify_all", lambda: woken.append(True))
    model(tokens, cache)
    assert model.weights.experts.hits and not woken


def test_least_memory_holds_one_expert(offloaded):
    source = open_source("rand:tiny-moe")
    model = offloaded(source, 0)
    model.weights.budget.weight_bytes = lambda *_: least_bytes(model.weights.units)
    assert all(torch.equal(*pair) for pair in zip(run(model, 2), run(load_model(source), 2), strict=True))


def test_the_order_of_each_rule():
    counts = np.array([[5, 0, 1], [0, 9, 2]])  # [layers, experts]
    assert by_rule("uniform", counts)[:3] == [(0, 0), (1, 0), (0, 1)]
    assert by_rule("early", counts)[:4] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert by_rule("late", counts)[:4] == [(1, 0), (1, 1), (1, 2), (0, 0)]
    assert by_rule("frequency", counts)[:4] == [(1, 1), (0, 0), (1, 2), (0, 2)]


def test_a_rule_without_a_limit_is_refused():
    with pytest.raises(InputError, match="goes with a memory limit"):
        RunOptions(expert_placement="late")


def test_an_unknown_rule_is_refused():
    with pytest.raises(InputError, match="expert placement 'often' is unknown; known: dynamic, uniform"):
        RunOptions(memory_bytes=1 << 30, expert_placement="often")


@pytest.mark.parametrize("cuts", [(0, 3, 7), (0, 1, 2, 7), (0, 6, 7)])
def test_parts_of_a_call_give_the_bits_of_the_whole(cuts):
    """Six routed experts and a shared one, for tokens that all sit in one piece or in several."""
    rng = np.random.default_rng(0)

    def packed(rows: int, columns: int):
        weight = rng.standard_normal((rows, columns)).astype(np.float32)
        return cpu_kernels.PackedLinear("f32", {"blocks": weight.view(np.uint8)}, (rows, columns))

    shapes = ((INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER))
    gate, up, down = ([packed(*shape) for _ in range(EXPERTS + 1)] for shape in shapes)
    experts = cpu_kernels.PackedExperts(gate, up, down, 1)
    for num_tokens in (1, 5, 300):
        x = rng.standard_normal((num_tokens, HIDDEN)).astype(np.float32)
        chosen = rng.permuted(np.tile(np.arange(EXPERTS), (num_tokens, 1)), axis=1)[:, :CHOSEN].copy()
        weights = rng.random((num_tokens, CHOSEN)).astype(np.float32)
        out = np.full(x.shape, np.nan, np.float32)
        for begin, end in pairwise(cuts):
            experts.forward(x, chosen, weights, out=out, begin=begin, end=end)
        assert np.array_equal(out, experts.forward(x, chosen, weights))


@pytest.mark.parametrize("begin, end", [(-1, 2), (0, 8), (3, 2)])
def test_parts_that_are_not_there_are_refused(begin, end):
    weight = cpu_kernels.PackedLinear("f32", {"blocks": np.zeros((16, 64), np.uint8)}, (16, 16))
    experts = cpu_kernels.PackedExperts([weight], [weight], [weight])
    x = np.zeros((1, 16), np.float32)
    with pytest.raises(ValueError, match=r"begin, end: got .*, expected 0 to 1"):
        experts.forward(x, np.zeros((1, 1), np.int64), np.ones((1, 1), np.float32), out=x, begin=begin, end=end)
