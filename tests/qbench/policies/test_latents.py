"""Policies over latents: one row per token that all heads share.

The oracle expands the rows to every head's own keys and values in float64, and follows the papers query by query.
"""

import math

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import spec_of
from support.caches import assert_a_batch_is_its_sequences
from support.close import assert_close
from support.slow_choices import BUDGET, Heavy, Scissors, snap
from support.slow_policy import Choose, slow_policy
from torch import Tensor

from qbench.policies import policy_names
from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from qbench.runtime.caches.kinds import plan_cache
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.policy.policy_cache import PolicyCache
from qbench.runtime.caches.rules import Asked
from qbench.runtime.caches.step import Past
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY

# Sizes that the kernels take; and each token passes through all experts, so that no rounding flips a choice.
SIZES = {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "max_position_embeddings": 512, "num_experts_per_tok": 6}
NEEDS_KERNELS = pytest.mark.skipif(not has_cpu_kernels(), reason="cpu_kernels are not compiled")
IMPLS = pytest.mark.parametrize("impl", ["reference", pytest.param("auto", marks=NEEDS_KERNELS)])
PER_HEAD = ("adakv", "fastgen")
OTHERS = ("window", "sinks", "full", "oracle", "quest", "infllm")
NAMES = [name for name in policy_names() if name not in (*OTHERS, *PER_HEAD)]


def model_of(policy: str, impl: str, kv: str | None = None, weights: str = "f32", **changes) -> Model:
    config = small_config("deepseek2", **SIZES | changes)
    values = random_weights(config)
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    formats = {name: weights for name, value in values.items() if value.ndim == 2}
    return load_model(ArraySource(config | entry, values, formats), RunOptions(policy=policy), impl=impl)


def tokens_of(batch: int, seq_len: int, seed: int = 0) -> Tensor:
    return torch.randint(150, (batch, seq_len), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "kv, mode", [(None, None), ("kv-f16", None), ("kv-int8", "absorbed"), (None, "elided"), ("kv-f16", "compressed")]
)
@pytest.mark.parametrize("name", NAMES)
@IMPLS
def test_a_budget_above_the_context_changes_no_bit(impl: str, name: str, kv: str | None, mode: str | None) -> None:
    model, full = (model_of(policy, impl, kv) for policy in (f"{name}:budget=400", "full"))
    tokens = tokens_of(2, 90)
    one, other = model.new_cache(2, mode=mode), full.new_cache(2, mode=mode)
    assert isinstance(one, PolicyCache)
    assert one.latents is not None
    for part in tokens.split((40, 1, 1, 30, 1, 17), 1):
        assert torch.equal(model(part, one), full(part, other))
    assert one.bytes_per_token <= other.bytes_per_token * 96 / 90  # whole blocks of 16


class SlowLayer:
    """Layer 0 of a model up to its attention, in float64.

    keys, values, queries  [H, T, D], [H, T, V], [H, T, D] of each head; the rotated part of D comes last
    unrotated              [H, T, D] queries before their rotation
    """

    def __init__(self, model: Model, weights: dict[str, np.ndarray], tokens: Tensor) -> None:
        sizes, self.config = model.config.mla, model.config
        assert sizes is not None
        rope, nope, rank = sizes.qk_rope_head_dim, sizes.qk_nope_head_dim, sizes.kv_lora_rank

        def weight(name: str) -> Tensor:
            return torch.from_numpy(weights[f"model.{name}.weight"]).double()

        def normed(x: Tensor, name: str, eps: float) -> Tensor:
            return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight(name)

        x = normed(weight("embed_tokens")[tokens[0]], "layers.0.input_layernorm", model.config.norm_eps)
        q = (x @ weight("layers.0.self_attn.q_proj").T).unflatten(1, (model.config.num_heads, -1)).transpose(0, 1)
        latent, turned = (x @ weight("layers.0.self_attn.kv_a_proj_with_mqa").T).split((rank, rope), -1)
        latent = normed(latent, "layers.0.self_attn.kv_a_layernorm", 1e-6)
        expanded = (latent @ weight("layers.0.self_attn.kv_b_proj").T).unflatten(1, (model.config.num_heads, -1))
        kept, self.values = expanded.transpose(0, 1).split((nope, sizes.v_head_dim), -1)
        shared = turned_by(turned, range(len(x)), model.config.rope.theta)
        self.keys = torch.cat((kept, shared.expand(len(kept), -1, -1)), -1)
        kept, turned = q.split((nope, rope), -1)
        rotated = turned_by(turned, range(len(x)), model.config.rope.theta)
        self.unrotated, self.queries = torch.cat((kept, turned), -1), torch.cat((kept, rotated), -1)


def turned_by(x: Tensor, positions: range, theta: float) -> Tensor:
    """Pairs of neighbours (2 i, 2 i + 1) of x [..., T, R] turned by position * theta^(-2 i / R)"""
    size = x.shape[-1]
    out = torch.empty_like(x)
    for t, position in enumerate(positions):
        for i in range(size // 2):
            angle = position * theta ** (-2 * i / size)
            a, b = x[..., t, 2 * i], x[..., t, 2 * i + 1]
            out[..., t, 2 * i] = a * math.cos(angle) - b * math.sin(angle)
            out[..., t, 2 * i + 1] = a * math.sin(angle) + b * math.cos(angle)
    return out


def side_by_side(layer: SlowLayer) -> tuple[np.ndarray, np.ndarray]:
    """Queries and keys of one KV head in which each head reads its own part, as `slow_policy` takes them."""
    num_heads, num_tokens, size = layer.queries.shape
    q = torch.zeros(num_heads, num_tokens, num_heads, size, dtype=torch.float64)
    for h in range(num_heads):
        q[h, :, h] = layer.queries[h]
    return q.flatten(2).numpy(), layer.keys.transpose(0, 1).flatten(1).numpy()


HEADS = 4


def tova(held: list[int], observed: list[dict[int, float]], *facts: object) -> list[int]:
    if len(held) <= BUDGET:
        return held
    others = sorted(held[:-1], key=lambda s: -observed[-1][s])
    return [*others[: BUDGET - 1], held[-1]]


def recent(held: list[int], *facts: object) -> list[int]:
    return held[-BUDGET:]


BY_MASS = {
    "h2o:budget=12": Heavy,
    "tova:12": lambda: tova,
    "snapkv:budget=12,window=4,kernel=3": lambda: snap,
    "scissorhands:budget=12,recent=5,history=6": lambda: Scissors(HEADS),
    "recent:12": lambda: recent,
}
PASSES = [(30, 1, 1, 1, 1, 1, 7, 1, 1, 1), (9, 9, 9, 9), (1,) * 20]


def run(model: Model, tokens: Tensor, passes: tuple[int, ...], mode: str | None = None) -> PolicyCache:
    cache = model.new_cache(mode=mode)
    assert isinstance(cache, PolicyCache)
    for part in tokens.split(passes, 1):
        model(part, cache)
    return cache


@pytest.mark.parametrize("mode", [None, "compressed", "elided"])
@pytest.mark.parametrize("passes", PASSES, ids=["mixed", "chunks", "decode"])
@pytest.mark.parametrize("text", BY_MASS)
@IMPLS
def test_mass_is_summed_over_all_heads(impl: str, text: str, passes: tuple[int, ...], mode: str | None) -> None:
    model, tokens = model_of(text, impl), tokens_of(1, sum(passes))
    cache = run(model, tokens, passes, mode)
    choose: Choose = BY_MASS[text]()
    layer = SlowLayer(model, random_weights(small_config("deepseek2", **SIZES)), tokens)
    q, k = side_by_side(layer)
    _, positions = slow_policy(q, k, k, passes, cache.rules[0].scale, choose)
    assert cache.held_positions(0) == [[positions]]


def norms(layer: SlowLayer, held: list[int], first: int, seen: int) -> Tensor:
    return -layer.keys[:, held].norm(dim=-1)


def cosines(layer: SlowLayer, held: list[int], first: int, seen: int) -> Tensor:
    keys = layer.keys[:, held] / layer.keys[:, held].norm(dim=-1, keepdim=True)
    mean = keys.mean(1, keepdim=True)
    return -(keys * mean).sum(-1) / mean.norm(dim=-1)


def expected(layer: SlowLayer, held: list[int], first: int, seen: int) -> Tensor:
    """Expected Attention over the next 20 positions, with 2 sinks: queries rotated, then averaged, in the long way."""
    sizes, theta, scale = layer.config.mla, layer.config.rope.theta, layer.config.attention_rule(0).scale
    assert sizes is not None
    queries = layer.unrotated[:, max(first, 2) : seen]  # [H, T, D]
    turn = torch.zeros(queries.shape[-1], queries.shape[-1], dtype=torch.float64)
    for position in range(seen, seen + 20):
        one = torch.eye(len(turn), dtype=torch.float64)
        nope = sizes.qk_nope_head_dim
        one[nope:, nope:] = turned_by(one[nope:, None, nope:], range(position, position + 1), theta)[:, 0]
        turn += one / 20
    scores = torch.zeros(len(queries), len(held), dtype=torch.float64)
    for h, its in enumerate(queries):
        mean, covariance = its.mean(0) @ turn, turn.T @ torch.cov(its.T, correction=0) @ turn
        keys = layer.keys[h, held]
        weights = scale * keys @ mean + scale**2 / 2 * (keys @ covariance * keys).sum(-1)
        weights[[s < 2 for s in held]] = -torch.inf
        scores[h] = weights.softmax(0) * layer.values[h, held].norm(dim=-1)
    scores[:, [s < 2 for s in held]] = torch.inf
    return scores


BY_KEYS = {"knorm:12": norms, "keydiff:12": cosines, "expected-attention:budget=12,sinks=2,future=20": expected}


@pytest.mark.parametrize("mode", [None, "compressed", "elided"])
@pytest.mark.parametrize("passes", [PASSES[0], PASSES[1]], ids=["mixed", "chunks"])
@pytest.mark.parametrize("text", BY_KEYS)
@IMPLS
def test_keys_belong_to_heads_and_scores_are_averaged(
    impl: str, text: str, passes: tuple[int, ...], mode: str | None
) -> None:
    model, tokens = model_of(text, impl), tokens_of(1, sum(passes))
    cache = run(model, tokens, passes, mode)
    layer = SlowLayer(model, random_weights(small_config("deepseek2", **SIZES)), tokens)
    held, seen = [], 0
    for count in passes:
        held, first, seen = [*held, *range(seen, seen + count)], seen, seen + count
        if count > 1 and len(held) > BUDGET:
            best = BY_KEYS[text](layer, held, first, seen).mean(0).argsort(descending=True)[:BUDGET]
            held = sorted(held[i] for i in best.tolist())
    assert cache.held_positions(0) == [[held]]


@pytest.mark.parametrize("text", ["h2o:12", "tova:12", "snapkv:12,window=4", "keydiff:12", "pyramidkv:12,window=4"])
@IMPLS
def test_decode_reads_the_same_as_a_cache_of_only_the_kept_tokens(impl: str, text: str) -> None:
    model, full, tokens = model_of(text, impl), model_of("full", impl), tokens_of(1, 41)
    one, whole, other = model.new_cache(), full.new_cache(), model_of("recent:400", impl).new_cache()
    assert isinstance(one, PolicyCache)
    assert type(whole) is KVCache
    model(tokens[:, :40], one)
    full(tokens[:, :40], whole)
    kept = [one.held_positions(layer)[0][0] for layer in range(model.config.num_layers)]
    assert [len(its) for its in kept] == [12] * model.config.num_layers
    other.begin(torch.zeros(1, 12, dtype=torch.int64))
    for layer, positions in enumerate(kept):
        rows, _ = whole.memories[layer].read(Past(whole.places.block_table, np.array([40])))
        view = other.latent_view(layer, 12)
        view.extend(rows[:, 0, positions], view.spans[0])
    other.seq_lens = np.array([40])
    assert_close(model(tokens[:, 40:], one), model(tokens[:, 40:], other), atol=1e-5)


@pytest.mark.parametrize("name", PER_HEAD)
def test_policies_with_lengths_per_head_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"policy {name} keeps other tokens in each head, but all heads of"):
        model_of(name, "reference")
    full, spec = model_of("full", "reference"), spec_of(name)
    for mode in (None, "decompressed"):
        with pytest.raises(InputError, match=f"policy {name} keeps other tokens in each head, but all heads of"):
            full.new_cache(spec=spec, mode=mode)


def test_a_mode_that_forms_no_queries_is_refused_to_a_policy_that_reads_them() -> None:
    with pytest.raises(InputError, match="expected-attention reads queries, which mode 'materialised' does not form"):
        model_of("expected-attention:12", "reference").new_cache(mode="materialised")


@pytest.mark.parametrize("text", ["h2o:20", "tova:20", "snapkv:20,window=8", "keydiff:20", "scissorhands:20,recent=4"])
@IMPLS
def test_a_batch_of_unlike_lengths_gets_the_results_of_separate_sequences(text: str, impl: str) -> None:
    model, tokens = model_of(text, impl), tokens_of(3, 60)
    steps = ([40, 7, 25], [1, 1, 1], [1, 1, 1], [5, 9, 2], [4, 4, 4], [1, 1, 1])
    assert_a_batch_is_its_sequences(model, tokens, steps)


@IMPLS
@pytest.mark.parametrize("text", ["h2o:32", "snapkv:32,window=8", "tova:25%", "knorm:8KiB"])
def test_bytes_match_the_rows_and_the_prediction(text: str, impl: str) -> None:
    model = model_of(text, impl, "kv-f16")
    cache, memory = model.new_cache(2), plan_cache(Asked(model.config, model.kv, model.cache_spec, impl=impl))
    model(tokens_of(2, 200), cache)
    row = 2 * (64 + 16)
    assert memory.bytes_per_token == model.config.num_layers * row
    assert cache.size_bytes <= memory.size_bytes(200, 2) + 2 * 16 * 3 * row
    assert cache.size_bytes >= 2 * int(cache.num_held[:, 0].sum()) * row
    assert cache.peak_bytes >= 2 * 200 * row
    held = {"tova:25%": 50, "knorm:8KiB": 8192 // (3 * row)}.get(text, 32)
    assert (cache.num_held == held).all()


@IMPLS
def test_going_back_to_a_mark_gives_the_same_bits(impl: str) -> None:
    model, tokens = model_of("h2o:20", impl, "kv-f16"), tokens_of(1, 60)
    cache = model.new_cache()
    model(tokens[:, :40], cache)
    cache.mark()
    first = [model(tokens[:, i : i + 1], cache) for i in range(40, 50)]
    with pytest.raises(InputError, match="go back to 0 or to a marked length"):
        cache.truncate(45)
    cache.truncate(40)
    assert all(torch.equal(model(tokens[:, i : i + 1], cache), first[i - 40]) for i in range(40, 50))
    cache.truncate(0)
    again = model.new_cache()
    assert torch.equal(model(tokens, cache), model(tokens, again))
