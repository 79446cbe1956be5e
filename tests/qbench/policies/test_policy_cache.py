"""Caches under a policy against a loop over queries that writes the papers' algorithms down."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import assert_a_batch_is_its_sequences, attended, policy_cache
from support.close import assert_close
from support.slow_choices import BUDGET, Heavy, Scissors, snap
from support.slow_policy import Choose, slow_policy

from qbench.policies import parse_policy, policy_names
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.policy.policy_cache import PolicyCache
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig

NEEDS_KERNELS = pytest.mark.skipif(not has_cpu_kernels(), reason="cpu_kernels are not compiled")
IN = pytest.mark.parametrize("in_kernels", [False, pytest.param(True, marks=NEEDS_KERNELS)], ids=["torch", "kernels"])
PASSES = [(30, 1, 1, 1, 1, 1, 7, 1, 1, 1), (9, 9, 9, 9), (1,) * 20]
TOLERANCE = 1e-5  # float32 sums of 45 weights, in another order
HEADS_PER_KV = 2
SLOW = {
    "h2o:budget=12": Heavy,
    "snapkv:budget=12,window=4,kernel=3": lambda: snap,
    "scissorhands:budget=12,recent=5,history=6": lambda: Scissors(HEADS_PER_KV),
    "recent:12": lambda: lambda held, observed, seen, prompt, is_prefill: held[-BUDGET:],
}


def config_of(**changes) -> ModelConfig:
    return ModelConfig.of(ArraySource(small_config("llama", **changes), {}))


def cache_of(text: str, config: ModelConfig, batch: int = 1, *, in_kernels: bool = False) -> PolicyCache:
    return policy_cache(config, text, batch, in_kernels=in_kernels)


def heads(config: ModelConfig, total: int, batch: int = 1, seed: int = 0) -> list[torch.Tensor]:
    make = torch.Generator().manual_seed(seed)
    counts = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    return [torch.randn(batch, count, total, config.head_dim, generator=make) * 2 for count in counts]


@IN
@pytest.mark.parametrize("passes", PASSES, ids=["mixed", "chunks", "decode"])
@pytest.mark.parametrize("text", SLOW)
def test_a_policy_is_its_paper_written_as_a_loop(text: str, passes: tuple[int, ...], in_kernels: bool) -> None:
    config = config_of(head_dim=32)
    q, k, v = heads(config, sum(passes))
    cache = cache_of(text, config, in_kernels=in_kernels)
    out = attended(cache, q, k, v, passes)
    for g in range(config.num_kv_heads):
        group = slice(g * HEADS_PER_KV, (g + 1) * HEADS_PER_KV)
        choose: Choose = SLOW[text]()
        arrays = (x[0].double().numpy() for x in (q[:, group], k[:, g], v[:, g]))
        expected, positions = slow_policy(*arrays, passes, cache.rules[0].scale, choose)
        assert cache.held_positions(0)[0][g] == positions
        assert_close(out[0, group], torch.from_numpy(expected).float(), atol=TOLERANCE)


@IN
def test_tova_keeps_the_same_tokens_in_all_heads(in_kernels: bool) -> None:
    config, passes = config_of(head_dim=32), (30, 1, 1, 1)
    q, k, v = heads(config, sum(passes))
    cache = cache_of("tova:12", config, in_kernels=in_kernels)
    attended(cache, q, k, v, passes)

    held = list(range(30))
    for seen in (30, 31, 32, 33):
        scores = np.zeros(seen)
        for h in range(config.num_heads):
            keys = k[0, h // HEADS_PER_KV, held].double()
            weights = (cache.rules[0].scale * keys @ q[0, h, seen - 1].double()).softmax(0)
            scores[held] += weights.numpy()
        others = sorted(held[:-1], key=lambda s: -scores[s])
        held = sorted([*others[:11], seen - 1])
        held.append(seen)
    assert cache.held_positions(0) == [[held[:-1]] * 2]


@pytest.mark.parametrize("kv", [None, "kv-f16", "kv-fp8", "kv-int8"])
@pytest.mark.parametrize("name", [name for name in policy_names() if name not in ("window", "sinks", "full", "oracle")])
@pytest.mark.parametrize("impl", ["reference", pytest.param("auto", marks=NEEDS_KERNELS)])
def test_a_budget_above_the_context_changes_no_bit(impl: str, name: str, kv: str | None) -> None:
    text = {"fastgen": "fastgen:target=1"}.get(name, f"{name}:budget=600")
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    config = small_config("llama", head_dim=32)
    source = ArraySource(config | entry, random_weights(config))
    model, full = (load_model(source, RunOptions(policy=policy), impl=impl) for policy in (text, "full"))
    tokens = torch.randint(150, (2, 90), generator=torch.Generator().manual_seed(1))
    one, other = model.new_cache(2), full.new_cache(2)
    for part in tokens.split((40, 1, 1, 30, 18), 1):
        assert torch.equal(model(part, one), full(part, other))


@pytest.mark.parametrize(
    "text",
    [
        *("h2o:20", "tova:20", "snapkv:20,window=8", "random:20", "keydiff:20", "scissorhands:20,recent=4"),
        *("fastgen:target=0.6", "adakv:20,window=8"),
    ],
)
@pytest.mark.parametrize("impl", ["reference", pytest.param("auto", marks=NEEDS_KERNELS)])
def test_a_batch_of_unlike_lengths_gets_the_results_of_separate_sequences(text: str, impl: str) -> None:
    config = small_config("llama", head_dim=32)
    model = load_model(ArraySource(config, random_weights(config)), RunOptions(policy=text), impl=impl)
    tokens = torch.randint(150, (3, 60), generator=torch.Generator().manual_seed(2))
    steps = ([40, 7, 25], [1, 1, 1], [1, 1, 1], [5, 9, 2], [1, 1, 1])
    together, alone = assert_a_batch_is_its_sequences(model, tokens, steps)
    for layer in range(config["num_hidden_layers"]):
        assert together.held_positions(layer) == [one.held_positions(layer)[0] for one in alone]


@IN
def test_memory_is_freed_after_the_prompt_and_stays_in_decode(in_kernels: bool) -> None:
    config = config_of(max_position_embeddings=2048, head_dim=32)
    q, k, v = heads(config, 1040)
    cache = cache_of("h2o:budget=128", config, in_kernels=in_kernels)
    attended(cache, q, k, v, (1000, *(1,) * 40))
    token_bytes = 2 * config.num_kv_heads * config.head_dim * 4
    assert cache.num_held[0, 0] == 128
    assert cache.memories[0].size_bytes <= (128 + 16) * token_bytes
    assert cache.peak_bytes >= 1000 * token_bytes


@pytest.mark.parametrize("impl", ["reference", pytest.param("auto", marks=NEEDS_KERNELS)])
def test_a_window_of_the_model_is_kept_and_not_more(impl: str) -> None:
    config = small_config("mistral", max_position_embeddings=1024, head_dim=32)
    source = ArraySource(config, random_weights(config))
    model = load_model(source, RunOptions(policy="h2o:budget=600"), impl=impl)
    full = load_model(source, RunOptions(), impl=impl)
    tokens = torch.randint(150, (1, 300), generator=torch.Generator().manual_seed(3))
    cache, other = model.new_cache(1), full.new_cache(1)
    for part in tokens.split((120, *(1,) * 100, 80), 1):
        assert_close(model(part, cache), full(part, other), atol=1e-4)
    window = model.config.windows[0]
    assert window and (cache.num_held <= window + 64).all()


@pytest.mark.skipif(not has_cpu_kernels(), reason="cpu_kernels are not compiled")
@pytest.mark.parametrize("kv", [None, "kv-f16", "kv-int8"])
@pytest.mark.parametrize(
    "text",
    ["h2o:20", "tova:20", "snapkv:20,window=8", "random:20", "pyramidkv:20,window=4", "scissorhands:20,recent=4"],
)
def test_decode_steps_in_one_call_match_layer_by_layer_calls(text: str, kv: str | None) -> None:
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    config = small_config("llama", head_dim=32)
    weights = random_weights(config)
    formats = {name: "q8_0" for name, value in weights.items() if value.ndim == 2}
    source = ArraySource(config | entry, weights, formats)
    models = [load_model(source, RunOptions(policy=text), path=path) for path in ("auto", "net-steps")]
    tokens = torch.randint(150, (2, 70), generator=torch.Generator().manual_seed(6))
    caches = [model.new_cache(2) for model in models]
    parts = [models[1](tokens[:, :40], cache) for cache in caches]  # a prefill goes layer by layer
    for token in tokens[:, 40:].split(1, 1):
        parts = [model(token, cache) for model, cache in zip(models, caches, strict=True)]
        assert torch.equal(*parts)
    for layer in range(config["num_hidden_layers"]):
        assert caches[0].held_positions(layer) == caches[1].held_positions(layer)
    assert all(cache.peak_bytes >= cache.size_bytes for cache in caches)


@IN
def test_going_back_needs_a_mark_once_tokens_are_gone(in_kernels: bool) -> None:
    config = config_of(head_dim=32)
    q, k, v = heads(config, 60)
    cache = cache_of("h2o:budget=12", config, in_kernels=in_kernels)
    attended(cache, q, k, v, (30,))
    cache.mark()
    rest = [x[:, :, 30:] for x in (q, k, v)]
    first = attended(cache, *rest, (1,) * 20)
    with pytest.raises(InputError, match="has evicted some"):
        cache.truncate(40)
    cache.truncate(30)
    assert torch.equal(attended(cache, *rest, (1,) * 20), first)
    cache.truncate(0)
    full = attended(cache_of("full", config, in_kernels=in_kernels), q, k, v, (30,))
    assert_close(attended(cache, q, k, v, (30,))[:, :, :12], full[:, :, :12])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h2", "unknown policy 'h2'.*did you mean 'h2o'"),
        ("h2o:budgt=3", "option 'budgt' is unknown; did you mean 'budget'.*expected h2o:budget=20%,recent=0.5"),
        ("h2o:budget=0", "budget '0'"),
        ("h2o:0%", "share above 0"),
        ("h2o:120%", "up to 100"),
        ("h2o:1.5", "up to 100"),
        ("snapkv:budget=64", "needs at least 65 tokens"),
        ("snapkv:budget=300,kernel=4", "kernel is 4, expected an odd number"),
        ("snapkv:window=x", "window is 'x', expected a whole number"),
        ("recent", "needs budget"),
        ("recent:", "options are missing"),
        ("window:0", "window:N"),
        ("sinks:4", "sinks:S"),
        ("sinks:3+0", "sinks:S"),
        ("window:two", "window:N"),
        ("full:1", "full has no options"),
        ("tova:5,5", "option '5' is unknown"),
        ("tova:5,budget=6", "given twice"),
        ("adakv:alpha=1.5", "alpha is 1.5, expected a share from 0 to 1"),
        ("fastgen:target=0", "target is 0, expected a share above 0"),
        ("fastgen:local=2", "local is 2, expected a share above 0"),
        ("fastgen:budget=5", "option 'budget' is unknown.*expected fastgen:target=0.9,frequent=0.3,local=0.3"),
    ],
)
def test_a_wrong_policy_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_policy(text)
    assert "\n" not in str(caught.value)


def test_a_model_with_alibi_is_refused() -> None:
    config = small_config("bloom")
    source = ArraySource(config, random_weights(config))
    with pytest.raises(InputError, match="ALiBi"):
        load_model(source, RunOptions(policy="h2o")).new_cache(1)
