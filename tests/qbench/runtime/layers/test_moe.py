"""Routed experts against a loop over tokens."""

import pytest
import torch
import torch.nn.functional as F
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close

from qbench.runtime import load_model
from qbench.runtime.layers.moe import ExpertFeedForward, ExpertParts
from qbench.runtime.layers.paths import LayerPaths
from quant.models import MoeConfig

NUM_TOKENS, HIDDEN, NUM_EXPERTS = 37, 16, 5


def rule(expert: int):
    """An expert that anyone can recompute."""
    return lambda x: torch.tanh(x) * (expert + 1)


def layer(normed: bool, chosen: int, router: torch.Tensor) -> ExpertFeedForward:
    config = MoeConfig(NUM_EXPERTS, chosen, 8, norm_topk_prob=normed)
    experts = [rule(e) for e in range(NUM_EXPERTS)]
    return ExpertFeedForward(ExpertParts(config, lambda x: (F.linear(x, router),), experts))


def moe_ref(x: torch.Tensor, router: torch.Tensor, chosen: int, normed: bool) -> torch.Tensor:
    """One token at a time, in float64."""
    rows = []
    for row in x.double():
        probabilities = (router.double() @ row).softmax(-1)
        best = sorted(range(NUM_EXPERTS), key=lambda e: -probabilities[e])[:chosen]
        total = sum(probabilities[e] for e in best) if normed else 1
        rows.append(sum(probabilities[e] / total * rule(e)(row) for e in best))
    return torch.stack(rows)


@pytest.fixture
def x_and_router():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(NUM_TOKENS, HIDDEN, generator=generator), torch.randn(NUM_EXPERTS, HIDDEN, generator=generator)


@pytest.mark.parametrize("normed", [False, True], ids=["as they are", "normed"])
@pytest.mark.parametrize("chosen", [1, 2, NUM_EXPERTS])
def test_equals_the_loop_over_tokens(x_and_router, chosen, normed):
    x, router = x_and_router
    got = layer(normed, chosen, router)(x[None])
    assert got.shape == (1, NUM_TOKENS, HIDDEN)
    assert_close(got[0], moe_ref(x, router, chosen, normed), atol=2**-20 * NUM_EXPERTS)


def test_routes_hold_every_token_as_often_as_it_chooses(x_and_router):
    x, router = x_and_router
    moe = layer(True, 2, router)
    routes = list(moe.routes(x))
    assert [expert for expert, _, _ in routes] == sorted(expert for expert, _, _ in routes)
    assert torch.cat([tokens for _, tokens, _ in routes]).bincount().tolist() == [2] * NUM_TOKENS
    assert all((tokens.diff() > 0).all() for _, tokens, _ in routes)
    assert_close(sum(weights.sum() for _, _, weights in routes), NUM_TOKENS, rtol=2**-20)


def test_an_expert_without_tokens_is_not_called(x_and_router):
    x, router = x_and_router
    router[2] = 0
    router[2, 0] = -1e4
    moe = layer(True, 2, router)
    moe.experts[2] = None
    moe(x.abs()[None])


# ---- all experts in one call


def load(kind: str, formats: dict[str, str], impl: str = "auto"):
    """A small model whose experts' projections have these formats, "gate", "up", "down" or "" for all three."""
    config = small_config(kind)
    weights = random_weights(config)
    chosen = {
        name: next((fmt for projection, fmt in formats.items() if f".{projection}" in name), "f32")
        for name in weights
        if "expert" in name
    }
    return load_model(ArraySource(config, weights, chosen), impl=impl)


def expert_layers(model) -> list[ExpertFeedForward]:
    return [block.feed_forward for block in model.blocks if isinstance(block.feed_forward, ExpertFeedForward)]


@pytest.mark.parametrize("kind", ["qwen3moe", "deepseek2"])
@pytest.mark.parametrize(
    "formats",
    [
        pytest.param({"": "q8_0"}, id="q8_0"),
        pytest.param({"gate": "q4_0", "up": "q5_0", "down": "q8_0"}, id="q4_0, q5_0 and q8_0"),
        pytest.param({"": "w4g32"}, id="w4g32"),
        pytest.param({"": "w8a8"}, id="w8a8"),
        pytest.param({"": "bf16"}, id="bf16"),
        pytest.param({"": "f32"}, id="f32"),
    ],
)
def test_one_call_equals_one_expert_after_the_other(kind, formats):
    model = load(kind, formats)
    tokens = torch.randint(model.config.vocab_size, (2, 60), generator=torch.Generator().manual_seed(1))
    got = [model(tokens), model(tokens[:, :1])]
    for layer in expert_layers(model):
        assert layer.packed.num_shared == (layer.shared is not None)
        layer.packed = None
    for path in ("net-steps", "python"):  # each expert as one call, or as several
        model.paths = LayerPaths(model.blocks, model.config, path)
        assert_close(got[0], model(tokens))
        assert_close(got[1], model(tokens[:, :1]))


@pytest.mark.parametrize(
    "formats, impl",
    [
        pytest.param({"": "q8_0"}, "reference", id="reference"),
        pytest.param({"": "llm-int8"}, "auto", id="llm-int8 is not packed"),
        pytest.param({"": "w8a8-atensor"}, "auto", id="a scale for all tokens of an expert"),
        pytest.param({"gate": "q8_0", "up": "bf16", "down": "q8_0"}, "auto", id="inputs rounded differently"),
    ],
)
def test_experts_that_cannot_run_as_one_call_run_one_by_one(formats, impl):
    model = load("qwen3moe", formats, impl)
    assert [layer.packed for layer in expert_layers(model)] == [None] * model.config.num_layers
    assert model(torch.arange(7)[None]).isfinite().all()
