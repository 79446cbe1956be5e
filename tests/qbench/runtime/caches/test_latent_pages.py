"""Pages of latents against the cache that owns its memory, bit for bit where the same code attends."""

from dataclasses import replace

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import spec_of
from support.caches import random_tokens
from support.close import assert_close
from support.pages import shuffled

from qbench.run.options import RunOptions
from qbench.runtime import Model, generate, load_model
from qbench.runtime.attention.mla_modes import get_mode
from qbench.runtime.caches.kinds import plan_cache
from qbench.runtime.caches.kv_cache import pooled_cache
from qbench.runtime.caches.places.pages import PagedSequence, PagePool
from qbench.runtime.caches.rules import Asked
from qbench.runtime.caches.step import EVICTED
from qbench.runtime.engine import Engine, EngineOptions, Request
from qbench.runtime.text.sampling import Sampling
from quant.extension import has_cpu_kernels
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY

SIZES = {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "max_position_embeddings": 512}  # that the kernels take
FP8_SIZES = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 2}
FORMATS = [None, "kv-f16", "kv-bf16", "kv-fp8", "kv-int8", "kv-int4"]
MODES = [None, "compressed", "absorbed", "elided", "materialised"]

needs_kernels = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")


def model_of(kv: str | None = None, weights: str = "f32", impl: str = "auto", **options) -> Model:
    config = small_config("deepseek2", **(FP8_SIZES if kv == "kv-fp8" else SIZES))
    values = random_weights(config)
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    formats = {name: weights for name, value in values.items() if value.ndim == 2}
    return load_model(ArraySource(config | entry, values, formats), RunOptions(**options), impl=impl)


def pool_of(model: Model, num_pages: int, page_size: int = 16, mode: str | None = None) -> PagePool:
    pool = PagePool(model.config, model.kv, num_pages, page_size, impl=model.impl, mode=mode)
    for memory in pool.memories:
        memory.held.view(torch.uint8).fill_(255)  # NaN in every format: unwritten slots must not be read
    return shuffled(pool)


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("page_size", [16, 48])
def test_latent_pages_match_owned_memory_bit_for_bit(page_size, kv, impl):
    model, tokens = model_of(kv, impl=impl), random_tokens(3, 61)
    for mode in MODES:
        pool = pool_of(model, 20, page_size, mode)
        paged = pooled_cache(pool, [PagedSequence(pool) for _ in range(3)])
        assert paged.latents.in_kernels == (impl == "auto" and has_cpu_kernels())
        own = model.new_cache(3, capacity=5, mode=mode)
        for part in tokens.split((40, 1, 1, 19), dim=1):
            assert_close(model(part, paged), model(part, own))
        paged.truncate(17)
        own.truncate(17)
        assert_close(model(tokens[:, :2], paged), model(tokens[:, :2], own))
        assert paged.bytes_per_token == own.bytes_per_token


@needs_kernels
@pytest.mark.parametrize("mode", MODES)
def test_sequences_of_unlike_lengths(mode):
    model, counts = model_of("kv-f16"), [(20, 1, 5), (1, 19, 1), (17, 16, 2)]
    tokens, pool = random_tokens(3, 40), pool_of(model, 9, mode=mode)
    one, other = pooled_cache(pool, [PagedSequence(pool) for _ in range(3)]), model.new_cache(3, 5, mode=mode)
    for step in zip(*counts, strict=True):
        logits = [model(tokens[:, : max(step)], cache, num_valid=step) for cache in (one, other)]
        assert torch.equal(*(each.nan_to_num(0) for each in logits))
        assert not all(each.isnan().all() for each in logits)


def test_writing_after_a_fork_never_changes_the_sibling():
    model = model_of("kv-f16")
    pool = pool_of(model, 12)
    first = PagedSequence(pool)
    prompt, texts = random_tokens(1, 37), (random_tokens(1, 9, seed=1), random_tokens(1, 9, seed=2))
    model(prompt, pooled_cache(pool, [first]))
    second = first.fork()
    got = [[], []]
    for part in (slice(0, 4), slice(4, 5), slice(5, 9)):  # by turns, so that each writes between the other's writes
        for which, sequence in enumerate((first, second)):
            got[which].append(model(texts[which][:, part], pooled_cache(pool, [sequence])))
    assert pool.num_free == 12 - 4, "of 3 pages two are still shared"
    for text, logits in zip(texts, got, strict=True):
        cache = model.new_cache()
        model(prompt, cache)
        assert_close(torch.cat(logits, 1), torch.cat([model(part, cache) for part in text.split((4, 1, 4), 1)], 1))


def test_pages_grow_with_their_sequences():
    model, tokens = model_of("kv-f16"), random_tokens(2, 200)
    cache, other = model.new_cache(2, 16, spec=spec_of("paged")), model.new_cache(2)
    for part in tokens.split(50, dim=1):
        assert_close(model(part, cache), model(part, other))
    pool = cache.places.pool
    assert pool.num_pages == 32 and cache.size_bytes == 2 * 13 * pool.page_bytes


# ---- windows


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", FORMATS)
def test_a_window_of_all_tokens_is_the_dynamic_cache_bit_for_bit(kv, impl):
    model, tokens = model_of(kv, impl=impl), random_tokens(2, 70)
    for mode in (None, *MODES):
        one, other = model.new_cache(2, 70, spec=spec_of("window:256"), mode=mode), model.new_cache(2, 70, mode=mode)
        for part in tokens.split((40, 1, 1, 28), dim=1):
            assert_close(model(part, one), model(part, other))


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("mode", MODES)
def test_a_window_is_plain_attention_with_a_mask(mode, impl):
    """Each head's own keys and values, in torch, with a mask over tokens before the window."""
    model, tokens = model_of(impl=impl), random_tokens(2, 330)
    masked = model_of(impl="reference")
    expected = masked.new_cache(2, mode="decompressed")
    expected.rules = [replace(rule, window=9) for rule in expected.rules]
    logits = masked(tokens, expected)
    cache = model.new_cache(2, spec=spec_of("window:9"), mode=mode)
    got = torch.cat([model(part, cache) for part in tokens.split((20, 1, 39, 5, 200, 65), dim=1)], 1)
    assert_close(got, logits, atol=1e-4)
    assert (logits - masked(tokens)).abs().max() > 0.1, "the window hides something"
    memory = plan_cache(Asked(model.config, None, spec_of("window:9"), impl=impl))
    pool = cache.places.pool
    assert memory.size_bytes(1000, 2) == pool.num_pages * pool.page_bytes
    assert EVICTED in cache.places.sequences[1].pages, "what no query sees any more is given back"


def test_windows_of_unlike_lengths():
    model, seq_lens = model_of("kv-int8"), (300, 3, 90)
    tokens, caches = (
        random_tokens(3, 310),
        [model.new_cache(3, 400, spec=spec_of(kind)) for kind in ("window:40", "dynamic")],
    )
    caches[1].rules = caches[0].rules
    for cache in caches:
        cache.max_chunk_tokens = None
        model(tokens[:, :200], cache, num_valid=[min(seq_len, 200) for seq_len in seq_lens])
    for count in (1, 5, 1):
        one, other = (model(tokens[:, 200 : 200 + count], cache) for cache in caches)
        assert_close(one, other)


def test_a_models_own_window_is_seen_without_a_cache():
    for kv in (None, "kv-int8"):
        model, tokens = model_of(kv, policy="window:9", compute="exact"), random_tokens(1, 60)
        cache = model.new_cache()
        steps = torch.cat([model(part, cache) for part in tokens.split((20, 40), dim=1)], 1)
        assert_close(model(tokens), steps, atol=2**-6 if kv else 1e-4)


def few_up_to(count: int):
    """choose_mode that takes so many tokens for few"""
    return lambda sizes, heads, held, new, window: get_mode("elided" if new <= count else "compressed")


@needs_kernels
@pytest.mark.parametrize("kind", ["dynamic", "paged", "window:256"])
def test_exact_products_do_not_depend_on_the_number_of_tokens_per_pass(monkeypatch, kind):
    monkeypatch.setattr("qbench.runtime.layers.latent_kernel.choose_mode", few_up_to(4))
    model, tokens = model_of("kv-f16", "q8_0", compute="exact"), random_tokens(1, 40)
    whole = model(tokens, model.new_cache(spec=spec_of(kind)))
    for sizes in ((39, 1), (1, 3, 36), (7, 33)):
        cache = model.new_cache(spec=spec_of(kind))
        assert_close(torch.cat([model(part, cache) for part in tokens.split(sizes, 1)], 1), whole)
    batch = model.new_cache(3, spec=spec_of(kind))
    assert_close(model(torch.cat((random_tokens(2, 40, 1), tokens)), batch)[2:], whole)


@needs_kernels
@pytest.mark.parametrize("kv", FORMATS)
def test_the_engine_gives_each_request_its_separate_result(kv):
    model = model_of(kv, "q8_0", compute="exact")
    document = tuple(random_tokens(1, 35)[0].tolist())
    requests = [Request((*document, 1 + n, *range(n)), Sampling(), 40, stop_ids=()) for n in range(4)]
    engine = Engine(model, EngineOptions(num_pages=12, prefill_chunk=24))
    ids, texts = [engine.submit(request) for request in requests], {}
    while engine.has_work:
        for event in engine.step():
            if event.kind == "token":
                texts.setdefault(event.request_id, []).append(event.token)
    for id, request in zip(ids, requests, strict=True):
        alone = generate(model, request.tokens, request.sampling, 40, stop_ids=())
        assert tuple(texts[id]) == alone.tokens
    stats = engine.stats()
    assert stats.preemptions > 0 and stats.prefix_hit_tokens > 0
    engine.scheduler.tree.clear()
    assert engine.pool.num_free == 12


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", FORMATS)
def test_an_engine_has_room_for_the_predicted_number_of_tokens(kv, impl):
    model = model_of(kv, impl=impl)
    memory = plan_cache(Asked(model.config, model.kv, spec_of("paged"), impl=impl))
    engine = Engine(model, EngineOptions(memory_bytes=memory.size_bytes(100, 3)))
    assert engine.pool.num_pages == 3 * -(-100 // 16)
    assert engine.pool.page_bytes == 16 * memory.bytes_per_token == 16 * model.new_cache().bytes_per_token
